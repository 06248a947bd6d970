"""Training scripts in the environment that has MindSpore, and the documents' samples made runnable."""

from __future__ import annotations

import csv
import json
import os
import re
import struct
import subprocess
import textwrap
from collections import Counter
from pathlib import Path

import pytest
from shared_data import SEEDS

REPOSITORY = Path(__file__).resolve().parents[2]
_OPENS = re.compile(r"(?:if|for|while|with|else|try)\b.*:$")


def interpreter() -> str:
    """Python with MindSpore; it needs a numpy of its own, so it is never this one."""
    for candidate in (os.environ.get("STEPSCOPE_MINDSPORE_PYTHON"), REPOSITORY / ".venv-mindspore" / "bin" / "python"):
        if candidate and Path(candidate).is_file():
            return str(candidate)
    pytest.skip("no environment with MindSpore: `make test` builds .venv-mindspore, or set STEPSCOPE_MINDSPORE_PYTHON")


# Two ways to run an unchanged script.
UNCHANGED = (("-m", "stepscope", "run"), ("-m", "stepscope.mindspore"))


def run(folder: Path, code: str, *, through: tuple[str, ...] = (), **environment: str) -> str:
    """Run a script, with `through` between Python and its name; what it printed."""
    script = folder / "training.py"
    script.write_text(textwrap.dedent(code))
    done = subprocess.run(
        [interpreter(), *through, str(script)],
        cwd=folder,
        env={**os.environ, "STEPSCOPE_MIN_FREE_BYTES": "0", "GLOG_v": "3", **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def captures(folder: Path) -> list[Path]:
    return sorted(folder.glob("*_ascend_ms"))


def results(capture: Path) -> set[str]:
    return {path.name for path in (capture / "ASCEND_PROFILER_OUTPUT").iterdir()}


def counted(capture: Path) -> Counter[str]:
    """Ranges and launches of a graph's kernels, read from the file in plain Python (docs/formats/mindspore.md 7.1, 7.2)."""
    data = (capture / "FRAMEWORK" / "mindspore.op_range").read_bytes()
    found: Counter[str] = Counter()
    at = 0
    while at < len(data):
        _, length = struct.unpack_from("<HI", data, at)
        body = data[at + 6 : at + 6 + length]
        at += 6 + length
        start, end = struct.unpack_from("<2Q", body, 24)
        event, is_stack = struct.unpack_from("<H", body, 46)[0], body[53]
        texts, place = {}, 54
        while place < length:
            field, size = struct.unpack_from("<HI", body, place)
            texts[field] = body[place + 6 : place + 6 + size]
            place += 6 + size
        if start and not is_stack and not (texts[13] == b"flow" and start != end):
            found["ranges"] += 1
            found["launches"] += event == 4
            found["dataset"] += texts[15] == b"Dataset"
    return found


def check_every_file(capture: Path) -> None:
    """Every file that the processor can give, with as many rows as other files count."""
    folder, framework = capture / "ASCEND_PROFILER_OUTPUT", capture / "FRAMEWORK"

    def rows(path: Path) -> list[dict[str, str]]:
        with path.open(newline="") as file:
            return list(csv.DictReader(file))

    kernels = sum(int(row["type_occurrences"]) for row in rows(framework / "cpu_op_type_info_0.csv"))
    assert len(rows(folder / "kernel_details.csv")) == len(rows(folder / "operator_details.csv")) == kernels > 0
    assert sum(int(row["Count"]) for row in rows(folder / "op_statistic.csv")) == kernels
    info = json.loads((capture / "profiler_info_0.json").read_bytes())
    window = info["start_info"]["unix_ns"], info["end_info"]["collectionTimeEnd"]
    times = [int(row["Timestamp(ns)"]) for row in rows(framework / "cpu_ms_memory_record_0.txt")]
    assert len(rows(folder / "memory_record.csv")) == sum(window[0] <= time <= window[1] for time in times) > 0
    stages = rows(folder / "dataset.csv")
    assert sum(int(row["Occurrences"]) for row in stages) == counted(capture)["dataset"] > 0
    pipeline = json.loads((framework / "pipeline_profiling_0.json").read_bytes())
    assert len(rows(folder / "minddata_pipeline_raw_0.csv")) == len(pipeline["op_info"])
    assert {"trace_view.json", "step_trace_time.csv", "minddata_pipeline_summary_0.json"} <= results(capture)


# A small network, its training step, and a list that counts what MindSpore itself says about the kernels it ran.
NETWORK = """
import os, sys
import numpy as np
import mindspore as ms
from mindspore import nn, Tensor
import mindspore.dataset as ds
ms.set_context(mode=ms.GRAPH_MODE if os.environ.get("MODE") == "graph" else ms.PYNATIVE_MODE, device_target="CPU")
from stepscope.mindspore import *

net = nn.SequentialCell(nn.Dense(8, 16), nn.ReLU(), nn.Dense(16, 2))
loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
step = nn.TrainOneStepCell(nn.WithLossCell(net, loss), nn.Momentum(net.trainable_params(), 0.1, 0.9))
x, y = Tensor(np.ones((4, 8), np.float32)), Tensor(np.zeros(4, np.int32))

def train(steps=1):
    for _ in range(steps):
        step(x, y).asnumpy()

train()

def read_data():
    rows = ds.GeneratorDataset(lambda: ((np.ones(2, np.float32),) for _ in range(12)), ["data"]).batch(2)
    for _ in rows.create_tuple_iterator(num_epochs=1, output_numpy=True):
        pass
"""


def examples() -> list[str]:
    """The examples in the document of MindSpore's profiler, indented again: the document lost that."""
    (path,) = SEEDS.folder().glob("004_*.txt")
    found: list[list[str]] = []
    inside = False
    for line in path.read_text(encoding="utf-8").splitlines():
        is_code = line.startswith((">>>", "..."))
        if is_code and not inside:
            found.append([])
        if is_code:
            found[-1].append(line)
        inside = is_code
    return [_indented(lines) for lines in found]


def _indented(lines: list[str]) -> str:
    """Every block is a class of methods, a function, or a condition; inner blocks have one statement."""
    made: list[str] = []
    in_class = in_block = after_opening = False
    open_brackets = 0
    for line in lines:
        text = line[3:].strip()
        if line.startswith(">>>"):
            in_class, in_block, after_opening = text.startswith("class "), text.endswith(":"), False
            made.append(text)
            continue
        depth = int(in_block) + (in_class and not text.startswith(("def ", "@")))
        depth += after_opening or bool(open_brackets)
        made.append("    " * depth + text)
        if text and not text.startswith("#"):
            open_brackets += sum(map(text.count, "([{")) - sum(map(text.count, ")]}"))
            after_opening = bool(_OPENS.match(text))
    return "\n".join(made)
