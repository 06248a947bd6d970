"""Marks of the user, input shapes in PyNative, and recording by MS_PROFILER_OPTIONS (docs/formats/mindspore.md 5, 12)."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter

import polars as pl
import pytest
from training import NETWORK, captures, results, run

import stepscope

pytestmark = pytest.mark.slow  # training processes

# Of one step: forward, then backward; counted by hand from the network's layers.
FAST_PATH = Counter({
    ("MatMul", "4,8;16,8;;"): 1, ("ReLU", "4,16"): 1, ("MatMul", "4,16;2,16;;"): 1, ("MatMul", "4,2;2,16;;"): 1,
    ("MatMul", "4,2;4,16;;"): 1, ("ReluGrad", "4,16;4,16"): 1, ("MatMul", "4,16;4,8;;"): 1,
})  # fmt: skip


def times(counter: Counter, many: int) -> Counter:
    return Counter({key: count * many for key, count in counter.items()})


def test_marks_alone_and_shapes_of_the_fast_path(tmp_path):
    said = run(
        tmp_path,
        NETWORK
        + """
import time
from mindspore import ops
from mindspore.profiler import mstx as stock
from mindspore.utils import MsDispatchMode

def marked(steps):
    for number in range(steps):
        with mstx.mstx_range("train", domain="mine"):
            train()
        stock.mark("done", None, "theirs")  # MindSpore's own function, which does nothing without a device

config = _ExperimentalConfig(profiler_level=ProfilerLevel.LevelNone, mstx=True, mstx_domain_exclude=["theirs"])
began = time.time_ns()
prof = Profiler(output_path="./marks", experimental_config=config); marked(3); prof.stop()
print("window", began, time.time_ns())
assert mstx.range_start("after") == 0
prof = Profiler(output_path="./shapes", record_shapes=True, mstx=True); marked(2); prof.stop()
assert stock.mark is not mstx.mark

class User(MsDispatchMode):  # lies above the profiler's own, and is left after it has stopped
    def __ms_dispatch__(self, func, args, kwargs=None):
        return func(*args)

prof = Profiler(output_path="./nested", record_shapes=True)
with User():
    train(); prof.stop(); train()
prof = Profiler(output_path="./again", record_shapes=True); train(); prof.stop()
with User():
    prof = Profiler(output_path="./not", record_shapes=True); train(); prof.stop()
prof = Profiler(output_path="./last", record_shapes=True); train(); ops.concat([x, x]).asnumpy(); prof.stop()
""",
        MODE="pynative",
    )
    assert "failed" not in said
    assert "a dispatch mode of the script is active" in said
    (alone,) = captures(tmp_path / "marks")
    tables = stepscope.open(alone, source="raw").tables
    began, ended = map(int, next(line for line in said.splitlines() if line.startswith("window")).split()[1:])
    assert tables.marks.select("message", "domain").rows() == [("train", "mine")] * 3
    assert began <= tables.marks["start_ns"].min() <= tables.marks["end_ns"].max() <= ended
    assert tables.kernels.is_empty()
    assert tables.ops.is_empty()
    expected = {"shapes": 2, "nested": 1, "again": 1, "last": 1}
    for name, steps in expected.items():
        (capture,) = captures(tmp_path / name)
        opened = stepscope.open(capture, source="raw")
        kernels = opened.kernels.select(pl.col("name", "input_shapes").cast(pl.String))
        rows = kernels.filter(pl.col("name").is_in(["MatMul", "ReLU", "ReluGrad"])).rows()
        expected_rows = times(FAST_PATH, steps)
        assert Counter(kind for kind, _ in rows) == Counter(kind for kind, _ in expected_rows.elements()), name
        # Ids of arrows are reused, as it happens by two threads at once: such a kernel has no shapes rather than those of another.
        doubtful = Counter(kind for kind, shapes in rows if shapes is None)
        assert Counter(row for row in rows if row[1] is not None) <= expected_rows, name
        assert doubtful.total() <= 1, name
        without = kernels.filter(pl.col("input_shapes").is_null())["name"].to_list()
        assert Counter(without) == doubtful + Counter(["Concat"] if name == "last" else [])
        assert opened.quality.select("issue", "count").rows() == ([("shapes-unknown", len(without))] if without else [])
    (capture,) = captures(tmp_path / "shapes")
    both = stepscope.open(capture, source="raw").marks.select("message", "domain").rows()
    assert Counter(both) == {("train", "mine"): 2, ("done", "theirs"): 2}


def test_the_variable_records_a_script_that_was_not_touched(tmp_path):
    script = NETWORK.replace("from stepscope.mindspore import *", "") + "train(2)\n"
    (tmp_path / "plain.py").write_text(script)
    options = {
        "start": True, "output_path": "./by_variable", "activities": ["CPU"], "profiler_level": "Level1",
        "aic_metrics": "PipeUtilization", "export_type": ["text", "db"], "with_stak": True,
    }  # fmt: skip
    code = "import runpy, sys; sys.argv = ['', 'plain.py']; runpy.run_module('stepscope.mindspore', run_name='__main__')"
    said = run(tmp_path, code, MODE="graph", MS_PROFILER_OPTIONS=json.dumps(options))
    assert "with_stak cannot be set in this variable" in said
    (capture,) = captures(tmp_path / "by_variable")
    assert results(capture) >= {"trace_view.json", "kernel_details.csv", "ascend_mindspore_profiler_0.db"}
    info = json.loads((capture / "profiler_info_0.json").read_bytes())["profiler_parameters"]
    assert (info["profiler_level"], info["activities"], info["export_type"]) == ("Level1", ["CPU"], ["text", "db"])
    kernels = stepscope.open(capture, source="raw").kernels
    momentum = kernels.filter(pl.col("op_type") == "ApplyMomentum").height
    assert momentum == 3 * 4  # three steps, four parameters
    with sqlite3.connect(capture / "ASCEND_PROFILER_OUTPUT" / "ascend_mindspore_profiler_0.db") as database:
        assert database.execute("select count(*) from STRING_IDS").fetchone()[0] > 0
