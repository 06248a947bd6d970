"""The examples of MindSpore's profiler document on the processor, unchanged."""

from __future__ import annotations

import json

import polars as pl
import pytest
from training import UNCHANGED, captures, counted, examples, results, run

import stepscope

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("seeds")]  # each sample is a training process and an analysis

MODES = ("graph", "pynative")
FILES = {"trace_view.json", "kernel_details.csv", "step_trace_time.csv", "dataset.csv", "op_statistic.csv", "analyse.done"}

# What the callbacks of the document are used in: 2 epochs of 6 steps.
TRAINING = """
import numpy as np, mindspore as ms
from mindspore import nn
import mindspore.dataset as ds
ms.set_context(mode=ms.{mode}, device_target="Ascend")
net = nn.Dense(2, 2)
data = ds.GeneratorDataset(lambda: ((np.ones(2, np.float32), np.int32(1)) for _ in range(12)), ["data", "label"]).batch(2)
loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
model = ms.train.Model(net, loss, nn.Momentum(net.trainable_params(), 0.1, 0.9))
model.train(2, data, callbacks=[{callback}])
"""


def sample(*holding: str) -> str:
    (found,) = [code for code in examples() if all(text in code for text in holding)]
    return found


def word(mode: str) -> str:
    return "GRAPH_MODE" if mode == "graph" else "PYNATIVE_MODE"


def opened(capture):
    return stepscope.open(capture, source="raw")


def events(capture) -> list[dict]:
    return json.loads((capture / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").read_bytes())


def lines(capture, name: str) -> int:
    return len((capture / "ASCEND_PROFILER_OUTPUT" / name).read_text().splitlines()) - 1


def said_kernels(capture) -> int | None:
    """How many kernels MindSpore's own sums count; None where it was not asked for them."""
    files = list((capture / "FRAMEWORK").glob("cpu_op_type_info_*.csv"))
    return pl.read_csv(files[0])["type_occurrences"].sum() if files else None


@pytest.mark.parametrize("mode", MODES)
def test_the_constructors_example(mode, tmp_path):
    code = sample("ProfilerLevel.Level0", "aicore_metrics=AicoreMetrics.AiCoreNone")
    assert 'device_target="Ascend"' in code
    said = run(tmp_path, code.replace("GRAPH_MODE", word(mode)), through=UNCHANGED[mode == "graph"])
    assert said.count("no Ascend device can be used here: the script asks for Ascend and runs on the CPU") == 1
    (capture,) = captures(tmp_path / "data")
    assert results(capture) >= FILES
    tables = opened(capture)
    assert tables.quality.filter(pl.col("source") != "link").is_empty()
    assert tables.steps["step"].to_list() == [1, 2]  # the generator yields two rows
    assert lines(capture, "step_trace_time.csv") == 2
    assert lines(capture, "kernel_details.csv") == tables.kernels.height > 0
    assert said_kernels(capture) in (None, tables.kernels.height)
    assert (said_kernels(capture) is None) == (mode == "graph")
    # One MatMul forward in each of the two steps, and the optimizer's two updates.
    kinds = dict(tables.kernels["op_type"].cast(pl.String).value_counts().iter_rows())
    assert kinds["ApplyMomentum"] == 4
    assert kinds["MatMul"] % 2 == 0
    found = counted(capture)
    assert found["ranges"] == tables.ops.height
    assert mode == "pynative" or found["launches"] == tables.kernels.height
    shown = events(capture)
    assert sum(event["pid"] == 1 and event["ph"] in "Xi" for event in shown) == tables.ops.height
    assert sum(event["pid"] == 2 and event["ph"] == "X" for event in shown) == tables.kernels.height


@pytest.mark.parametrize("mode", MODES)
def test_stop_at_step_with_a_list_of_steps(mode, tmp_path):
    code = sample("StopAtStep", "step_list=[2,3,4]")
    run(tmp_path, code + TRAINING.format(mode=word(mode), callback="StopAtStep()"), through=UNCHANGED[mode == "graph"])
    (capture,) = captures(tmp_path / "data")
    tables = opened(capture)
    assert tables.steps["step"].to_list() == [1, 2, 3, 4, 5]
    # The files hold steps 2 to 4 of the five; every step runs the same kernels.
    text = (capture / "ASCEND_PROFILER_OUTPUT" / "step_trace_time.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in text[1:]] == ["2", "3", "4"]
    per_step = (tables.kernels["op_type"] == "ApplyMomentum").sum() // 5
    details = pl.read_csv(capture / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv")
    assert details.filter(pl.col("Type") == "ApplyMomentum").height == 3 * per_step == 6


@pytest.mark.parametrize(
    ("mode", "holding"), [("graph", ("StopAtStep", "start_step, stop_step):")), ("pynative", ("StopAtEpoch",))]
)
def test_stop_at_step_and_at_epoch(mode, holding, tmp_path):
    code = sample(*holding, "self.profiler.analyse()")
    name = holding[0]
    run(tmp_path, code + TRAINING.format(mode=word(mode), callback=f"{name}(2, 2)"), through=UNCHANGED[0])
    (capture,) = captures(tmp_path / "data")
    steps = opened(capture).steps["step"].to_list()
    assert steps == ([2] if name == "StopAtStep" else [7, 8, 9, 10, 11, 12])  # the second of two epochs
    assert lines(capture, "step_trace_time.csv") == len(steps)


def test_offline_analyse(tmp_path):
    begin = sample("StopAtEpoch").replace("self.profiler.analyse()", "pass")
    run(tmp_path, begin.replace("Profiler(start", 'Profiler(output_path="./profiling_path", start') + TRAINING.format(
        mode="GRAPH_MODE", callback="StopAtEpoch(1, 1)"), through=UNCHANGED[0])  # fmt: skip
    (capture,) = captures(tmp_path / "profiling_path")
    assert not (capture / "ASCEND_PROFILER_OUTPUT").exists()
    again = '\nProfiler.offline_analyse("./profiling_path", step_list=[99])'
    said = run(tmp_path, sample("offline_analyse") + again, through=UNCHANGED[1])
    short = capture.relative_to(tmp_path)
    files = len(results(capture) - {"analyse.done"})
    assert said.count(f"{files} files in {short / 'ASCEND_PROFILER_OUTPUT'}; next: stepscope top {short}") == 2
    assert "[ERROR]" in said
    assert "steps [99] were not recorded: the capture has 6 steps" in said
    assert results(capture) >= FILES
    assert opened(capture).steps["step"].to_list() == [1, 2, 3, 4, 5, 6]
