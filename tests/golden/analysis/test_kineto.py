"""Two independent ways from a GPU kernel to its operator give the same on real Kineto traces."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from stepscope.analysis.link.attribution import attributed
from stepscope.analysis.link.capture import link
from stepscope.analysis.views import module_view
from stepscope.formats.kineto import read as kineto

TRACES = [
    pytest.param("gpu_nccl.pt.trace.json.gz", 3774, id="nccl"),
    pytest.param("rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz", 6095, id="resnet"),
    pytest.param("mi250_minitoy_train_ROCm6_2_kineto.json.gz", 16, id="rocm"),
]


@pytest.mark.parametrize(("trace", "count"), TRACES)
def test_named_operator_is_the_innermost_around_the_launch(golden: Path, trace: str, count: int):
    capture = link(kineto.read(golden / "kineto" / trace)).check()
    assert capture.kernels["op"].null_count() == 0
    assert capture.kernels.height == count
    unnamed = capture.kernels.with_columns(external_id=pl.lit(None, pl.Int64))
    by_time = attributed(unnamed, capture.ops, capture.queue)["op"]
    # NCCL kernels name the range that recorded the parameters; the innermost one is NCCL's own.
    computing = capture.kernels["kind"] != "communication"
    assert by_time.filter(computing).equals(capture.kernels["op"].filter(computing))


def test_checkpointed_blocks_count_where_they_ran_first(golden: Path):
    """A block that backward ran again is no second model, and none of its calls is left out."""
    trace = golden / "kineto" / "mi300_resnet_act_checkpoint.json.gz"
    view = module_view(link(kineto.read(trace)))
    assert view.filter(depth=0)["path"].to_list() == ["DistributedDataParallel_0"]
    with gzip.open(trace, "rt", encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    calls = Counter(name for event in events if (name := event.get("name", "")).startswith("nn.Module: Sequential_"))
    blocks = view.with_columns(name=pl.format("nn.Module: {}", pl.col("path").str.split("/").list.last()))
    assert {name: count for name, count in blocks.select("name", "calls").iter_rows() if name in calls} == calls
    wrapped = view.filter(pl.col("path").str.contains(r"/CheckpointWrapper_\d/Sequential_\d$"))
    assert wrapped.height == 4
    assert wrapped["device_backward_ns"].min() > 1_500_000
