# SPDX-License-Identifier: Apache-2.0
"""What the writers of other chips write is what their readers read: the same six operators in every layout."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from prof_folder import MS, SESSION, T0, write

from stepscope.export.msprof.trace import write as write_trace
from stepscope.formats import cann
from stepscope.formats.cann.device.side import read_device
from stepscope.formats.cann.folder import open_prof
from stepscope.formats.cann.layouts import AICORE, HWTS, PMU_128, STARS_32
from stepscope.formats.cann.records import read_records
from stepscope.formats.cann.write.folder import ProfWriter
from stepscope.formats.cann.write.other_chips import device_writer
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


PARTS = ["kind", "type", "task_id", "start_ns", "end_ns", "core_id", "block_id", "accelerator", "mission", "die", "cycles"]


@pytest.mark.parametrize("platform", [15, 16])
def test_parts_of_tasks_come_back_with_the_run_they_belong_to(tmp_path: Path, platform: int):
    at = T0 + MS
    with ProfWriter(tmp_path, session_of(platform)) as writer:
        device = device_writer(writer, 0)
        device.tasks(
            stream=5, task=np.array([70_000, 8]), start_ns=np.array([at, at + MS]), end_ns=np.array([at + 900, at + MS + 900])
        )
        device.fusions(
            task=70_000, type=[1, 3], start_ns=[at + 10, at + 20], end_ns=[at + 90, at + 80], mission=[0, 6], accelerator=2
        )
        device.blocks(task=8, vector=[0, 1], core_id=[3, 4], block=[0, 1], start_ns=[at + MS, at + MS + 5], end_ns=at + MS + 800)
        device.counted_blocks(
            task=8, vector=1, core_id=4, block=1, cycles=99, counters=[1, 2], start_ns=[at + MS + 6], end_ns=[at + MS + 700]
        )
        device.block_sizes(task=[8], blocks=20, mix_ratio=2, at_ns=at)
        writer.close(T0 + 9 * MS)
    tables = cann.read(writer.path)
    assert tables.task_parts.select(PARTS).rows() == [
        ("fusion", "AICPU", 70_000, at + 10, at + 90, None, None, 2, 0, None, None),
        ("fusion", "CCU", 70_000, at + 20, at + 80, None, None, 2, 6, 0, None),
        ("block", "AIC", 8, at + MS, at + MS + 800, 3, 0, None, None, None, None),
        ("block", "AIV", 8, at + MS + 5, at + MS + 800, 4, 1, None, None, None, None),
        ("counted block", "AIV", 8, at + MS + 6, at + MS + 700, 4, 1, None, None, None, 99),
    ]
    assert tables.task_parts["kernel"].to_list() == [0, 0, 1, 1, 1]
    assert tables.quality.filter(pl.col("severity") == "loss").rows() == []
    [part] = open_prof(writer.path).devices
    assert read_device(part, True).track.blocks.rows() == [(None, 8, 0, 20, 40)]


@pytest.mark.parametrize("platform", [1, 2, 3, 4])
def test_blocks_of_hwts_chips_come_back(tmp_path: Path, platform: int):
    at = T0 + MS
    with ProfWriter(tmp_path, session_of(platform)) as writer:
        device = device_writer(writer, 0)
        device.tasks(stream=5, task=np.array([7]), start_ns=np.array([at]), end_ns=np.array([at + 900]))
        device.blocks(stream=5, task=7, core_id=[3, 4], block=[0, 1], start_ns=at + 10, end_ns=[at + 80, at + 90], cycles=[11, 22])
        device.block_sizes(stream=5, task=[7], blocks=20, mix_ratio=2, at_ns=at)
        writer.close(T0 + 9 * MS)
    tables = cann.read(writer.path)
    shown = tables.task_parts.select("kernel", "kind", "start_ns", "end_ns", "core_id", "block_id", "cycles").rows()
    assert shown == [(0, "block", at + 10, at + 80, 3, 0, 11), (0, "block", at + 10, at + 90, 4, 1, 22)]
    assert tables.quality.filter(pl.col("severity") == "loss").rows() == []
    [part] = open_prof(writer.path).devices
    assert read_device(part, True).track.blocks.rows() == [(5, 7, 0, 20, 40)]


def test_timelines_show_fusions_and_the_first_and_last_block_of_a_run(tmp_path: Path):
    """As the vendor's tool: processes Fusion Task and Block Detail."""
    at = T0 + MS
    with ProfWriter(tmp_path, session_of(15)) as writer:
        device = device_writer(writer, 0)
        device.tasks(stream=5, task=np.array([8]), start_ns=np.array([at]), end_ns=np.array([at + 900]))
        device.fusions(task=[8], type=1, start_ns=[at + 10], end_ns=[at + 90], accelerator=2)
        device.blocks(task=8, vector=0, core_id=[3, 4, 5], block=[0, 1, 2], start_ns=[at + 1, at + 2, at + 3], end_ns=at + 800)
        writer.close(T0 + 9 * MS)
    write_trace(cann.read(writer.path), tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_bytes())
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    lanes = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
    spans = [event for event in events if event["ph"] == "X"]
    shown = {
        (names[e["pid"]], lanes[e["pid"], e["tid"]]): (e["name"], e["args"]) for e in spans if names[e["pid"]] != "Ascend Hardware"
    }
    assert shown["Fusion Task", "Stream 65535"] == (
        "Fusion AICPU", {"Task Id": 8, "Acc Id": 2, "Task Type": "FUSION", "Fusion Task Type": "AICPU"},
    )  # fmt: skip
    assert shown["Block Detail", "AIC Earliest"][1]["Core Id"] == 3
    assert shown["Block Detail", "AIC Latest"][1]["Core Id"] == 5
    assert shown["Block Detail", "AIC Latest"][0] == "Stream 65535 AI_CORE"


def test_ai_cpu_kernels_of_the_910a_are_states_of_tasks(tmp_path: Path):
    tables = read_back(tmp_path, 1)
    found = tables.kernels.filter(pl.col("name").cast(pl.String) == "AiCpu_1")
    assert found["core"].cast(pl.String).to_list() == ["AI_CPU"]
    [part] = open_prof(next(tmp_path.glob("PROF_*"))).devices
    assert len(read_records(part, HWTS)) == 2 * 5


def devices_of(folder: Path, platforms: tuple[int, int]) -> Path:
    """A folder of two devices with the records of the first chip; the second says that it is another."""
    with ProfWriter(folder, replace(session_of(platforms[0]), devices=(0, 1))) as writer:
        for device in (0, 1):
            at = T0 + MS * (1 + device)
            device_writer(writer, device).tasks(stream=5, task=np.array([7]), start_ns=np.array([at]), end_ns=np.array([at + 900]))
        writer.close(T0 + 9 * MS)
    settings = writer.path / "device_1" / "info.json.1"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "platform_version": str(platforms[1])}))
    return writer.path


def test_of_several_chips_the_one_that_is_least_sure_counts(tmp_path: Path):
    tables = cann.read(devices_of(tmp_path, (1, 4)))
    assert tables.kernels["device"].to_list() == [0, 1]
    assert tables.facts.evidence["task times"] == "reference"  # real bytes for the first, none for the second


@pytest.mark.parametrize("unknown", [9, 99])
def test_a_device_of_an_unknown_chip_is_left_out_and_said(tmp_path: Path, unknown: int):
    tables = cann.read(devices_of(tmp_path, (1, unknown)))
    assert tables.kernels["device"].to_list() == [0]
    found = tables.quality.filter(pl.col("issue").cast(pl.String) == "raw-device-unread").select("source", "detail").rows()
    assert [source for source, _ in found] == ["device_1"]
    assert f"platform_version {unknown}" in found[0][1]


def test_a_device_that_lost_its_settings_is_of_the_folders_chip(tmp_path: Path):
    prof = write(tmp_path, session_of(4))
    (prof / "device_0" / "info.json.0").unlink()
    tables = cann.read(prof)
    assert tables.kernels.height == 6  # records of a 310P, not of the default chip
    assert tables.facts.evidence["task times"] == "reference"
    assert "incomplete-clock" in tables.quality["issue"].cast(pl.String).to_list()
