# SPDX-License-Identifier: Apache-2.0
"""The simulated NPU pretends to be another chip: the raw records are that chip's, what they say is what ran."""

from __future__ import annotations

import csv
import logging
import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from npu_process import on_npu  # noqa: E402

from stepscope.simnpu.pretended import CHIP, CHIPS, VARIABLE, on_chip, pretended_chip  # noqa: E402

FILES = {
    "910A": {"hwts.data.0", "aicore.data.0"},
    "310P": {"hwts.data.0", "aicore.data.0"},
    "950": {"stars_soc.data.0", "ffts_profile.data.0"},
}
TITLES = {"910A": "total_cycles", "310P": "total_cycles", "950": "aic_total_cycles"}


@pytest.mark.parametrize("chip", FILES)
@on_npu
def test_operators_come_back_from_the_chips_records(tmp_path: Path, chip: str):
    from stepscope import profiler
    from stepscope.analyser import analyse
    from stepscope.capture import open_capture

    os.environ[VARIABLE] = chip
    try:
        x = torch.randn(256, 256, device="npu")
        settings = profiler._ExperimentalConfig(
            profiler_level=profiler.ProfilerLevel.Level1, aic_metrics=profiler.AiCMetrics.PipeUtilization
        )
        with profiler.profile(
            experimental_config=settings, on_trace_ready=profiler.tensorboard_trace_handler(str(tmp_path), analyse_flag=False)
        ) as prof:
            for _ in range(3):
                (x @ x).relu().softmax(-1).sum().item()
                prof.step()
    finally:
        del os.environ[VARIABLE]
    (capture,) = tmp_path.glob("*_ascend_pt")
    (device,) = capture.glob("PROF_*/device_0/data")
    assert {path.name.partition(".slice_")[0] for path in device.iterdir()} >= FILES[chip]
    tables = open_capture(capture).tables
    assert tables.facts.platform == CHIPS[chip].platform
    kernels = tables.kernels.filter(pl.col("kind") == "compute")
    assert kernels.height >= 3 * 4
    assert kernels["op"].null_count() == 0, "every kernel has the operator that launched it"
    assert "operator-unknown" not in tables.quality["issue"].cast(pl.String).to_list()
    assert tables.quality.filter(pl.col("severity") == "loss").to_dicts() == []
    matmul = kernels.with_row_index("kernel").filter(pl.col("name").cast(pl.String).str.contains("MatMul"))
    assert matmul.height == 3
    assert tables.kernel_metrics.height == kernels.filter(pl.col("core").cast(pl.String) != "AI_CPU").height
    analyse(str(capture), export_type=["text"])
    with (capture / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv").open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert len(rows) == kernels.height
    assert all(
        float(row["aicore_time(us)"]) <= float(row["Duration(us)"]) + 0.02 for row in rows if row["aicore_time(us)"] != "N/A"
    )
    assert TITLES[chip] in rows[0]


def test_an_unknown_chip_is_reported_and_the_default_taken(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    monkeypatch.setenv(VARIABLE, "H100")
    with caplog.at_level(logging.WARNING, "stepscope"):
        assert pretended_chip() is CHIP
    assert "H100" in caplog.text


@pytest.mark.parametrize("text", ["910a", " Ascend910A "])
def test_names_may_be_written_in_other_ways(monkeypatch: pytest.MonkeyPatch, text: str):
    monkeypatch.setenv(VARIABLE, text)
    assert pretended_chip().platform == 1


def test_kernels_fit_the_cores_of_the_chip():
    kernels = np.array([(0, 40, 2), (4, 20, 2)], [("core", "u1"), ("blocks", "<u4"), ("mix_ratio", "<u4")])
    moved = on_chip(kernels, CHIPS["310P"])
    assert moved["core"].tolist() == [0, 0]
    assert moved["blocks"].tolist() == [8, 8]
    assert on_chip(kernels, CHIPS["950"]) is kernels
