# SPDX-License-Identifier: Apache-2.0
"""What the writers of other chips write is what their readers read: the same six operators in every layout."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from prof_folder import SESSION, write

from stepscope.formats import cann
from stepscope.formats.cann.folder import open_prof
from stepscope.formats.cann.layouts import AICORE, HWTS, PMU_128, STARS_32
from stepscope.formats.cann.records import read_records
from stepscope.tables import Tables

OTHERS = (0, 1, 2, 3, 4, 15, 16)
WHAT = ["name", "stream", "start_ns", "end_ns"]


def session_of(platform: int):
    return replace(SESSION, chip=replace(SESSION.chip, platform=platform))


def read_back(folder: Path, platform: int) -> Tables:
    return cann.read(write(folder, session_of(platform)))


def operators(tables: Tables) -> list[tuple]:
    """Whole tasks that the host described; parts of tasks exist on some chips only."""
    rows = tables.kernels.filter(pl.col("context_id").is_null(), pl.col("name").cast(pl.String) != "UNKNOWN")
    return sorted(rows.select(pl.col("name").cast(pl.String), *WHAT[1:]).rows())


@pytest.mark.parametrize("platform", OTHERS)
def test_tasks_come_back_as_on_a2(tmp_path: Path, platform: int):
    ours = operators(read_back(tmp_path / "other", platform))
    kept = {row[1:] for row in operators(read_back(tmp_path / "a2", 5))}
    assert len(ours) == 6
    assert {row[1:] for row in ours} == kept
    assert {"Add_1", "MatMul_1", "Flash_1", "AiCpu_1"} <= {row[0] for row in ours}


@pytest.mark.parametrize("platform", OTHERS)
def test_nothing_of_tasks_and_counters_is_lost(tmp_path: Path, platform: int):
    lost = read_back(tmp_path, platform).quality.filter(pl.col("severity") == "loss")
    assert lost.filter(~pl.col("source").str.contains("l2_cache|llc|hbm")).rows() == []


@pytest.mark.parametrize("platform", OTHERS)
def test_counters_come_back(tmp_path: Path, platform: int):
    tables = read_back(tmp_path, platform)
    names = tables.kernels["name"].cast(pl.String).gather(tables.kernel_metrics["kernel"]).to_list()
    assert sorted(names) == ["Add_1", "Flash_1", "MatMul_1"]
    cycles = "aic_total_cycles" if platform in (15, 16) else "total_cycles"
    of_matmul = tables.kernel_metrics.filter(pl.Series(names) == "MatMul_1")
    assert of_matmul[cycles].to_list() == [495_000 * 20]


@pytest.mark.parametrize("platform", [15, 16])
def test_both_halves_of_a_mix_kernel_come_back(tmp_path: Path, platform: int):
    tables = read_back(tmp_path, platform)
    names = tables.kernels["name"].cast(pl.String).gather(tables.kernel_metrics["kernel"])
    [flash] = tables.kernel_metrics.filter(names == "Flash_1").to_dicts()
    assert flash["aic_total_cycles"] == 495_000 * 20
    assert flash["aiv_total_cycles"] == 40 * 1000
    assert flash["aiv_total_time"] == pytest.approx(300_000)  # the span of the task, whatever the cycles


@pytest.mark.parametrize(("platform", "layouts"), [(1, (HWTS, AICORE)), (4, (HWTS, AICORE)), (15, (STARS_32, PMU_128))])
def test_running_numbers_and_magics_are_right(tmp_path: Path, platform: int, layouts: tuple):
    [part] = open_prof(write(tmp_path, session_of(platform), slice_bytes=500)).devices
    for layout in layouts:
        found = read_records(part, layout)
        assert len(found)
        assert found.lost == ()
        shift = 4 if layout.dtype["head"].itemsize == 1 else 6
        numbers = found.rows["head"].astype(np.int64) >> shift & 15
        assert (numbers == np.arange(len(numbers)) % 16).all()


def test_ai_cpu_kernels_of_the_910a_are_states_of_tasks(tmp_path: Path):
    tables = read_back(tmp_path, 1)
    found = tables.kernels.filter(pl.col("name").cast(pl.String) == "AiCpu_1")
    assert found["core"].cast(pl.String).to_list() == ["AI_CPU"]
    [part] = open_prof(next(tmp_path.glob("PROF_*"))).devices
    assert len(read_records(part, HWTS)) == 2 * 5
