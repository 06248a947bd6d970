"""Two independent ways from a GPU kernel to its operator give the same on real Kineto traces."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from stepscope.analysis.link.attribution import attributed
from stepscope.analysis.link.capture import link
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
