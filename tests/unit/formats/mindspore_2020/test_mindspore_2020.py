# SPDX-License-Identifier: Apache-2.0
"""Folders of MindSpore 2020 from hand-made records: names, steps, all-reduces, AI CPU, and what is damaged."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from stepscope.capture import open_capture
from stepscope.errors import CaptureError
from stepscope.formats.cann.layouts import AICORE, HWTS, STARS_MAGIC, TRAINING_TRACE
from stepscope.formats.mindspore_2020 import texts
from stepscope.formats.mindspore_2020.read import read
from stepscope.formats.mindspore_2020.step_trace import step_trace

TAG = "dev.profiler_default_tag.0"


def trace(*records: tuple[int, int]) -> np.ndarray:
    """(tag, counter)."""
    rows = np.zeros(len(records), TRAINING_TRACE.dtype)
    rows["tag"], rows["counter"] = [tag for tag, _ in records], [counter for _, counter in records]
    rows["stream"] = 7
    return rows


STEPS = ((10010, 90), (1, 100), (3, 120), (4, 140), (2, 160), (255, 200), (10010, 205), (1, 210), (2, 230), (255, 300), (1, 310))


def write(folder: Path) -> Path:
    hwts = np.zeros(5, HWTS.dtype)
    hwts["head"] = [0, 17, 32, 49, 64]
    hwts["magic"], hwts["stream"], hwts["task"] = STARS_MAGIC, 7, [70, 70, 80, 80, 90]
    hwts["counter"] = [100, 150, 210, 260, 300]
    (folder / "data").mkdir(parents=True)
    (folder / f"hwts.log.data.45.{TAG}.slice_0").write_bytes(hwts.tobytes())
    (folder / "data" / f"training_trace.46.{TAG}.0").write_bytes(trace(*STEPS).tobytes())
    (folder / "Framework.host.vm.task_desc_info.0.slice_0").write_text("Default/Mul-op1 2 70 3\nbroken line\n")
    (folder / "Framework.host.vm.graph_desc_info.0.slice_0").write_text(
        'op_name:Default/Mul-op1 op_type:Mul input_id:0 input_format:NCHW input_data_type:40 input_shape:"2,3" '
        'input_id:1 input_format:DefaultFormat input_data_type:40 input_shape:"" '
        'output_id:0 output_format:NCHW output_data_type:40 output_shape:"2,3"\n'
    )
    (folder / "Framework.host.vm.point.0.slice_0").write_text("1 Default/Cast-op6\n3 Default/AllReduce-op9\n")
    return folder


def test_operators_are_named_by_their_task(tmp_path: Path):
    kernels = read(write(tmp_path / "run")).kernels
    columns = ["name", "op_type", "kind", "start_ns", "end_ns", "block_num", "input_shapes", "input_formats"]
    assert kernels.select(columns).rows() == [
        ("Default/Mul-op1", "Mul", "compute", 1000, 1500, 2, "2,3;", "NCHW;DEFAULT"),
        ("Other", None, "other", 2100, 2600, None, None, None),
    ]


def test_steps_and_collectives(tmp_path: Path):
    tables = read(write(tmp_path / "run"))
    assert tables.steps.select("step", "start_ns", "end_ns").rows() == [(1, 1000, 2000), (2, 2000, 3000)]
    assert tables.collectives.select("name", "op_type", "start_ns", "end_ns", "step").rows() == [
        ("Default/AllReduce-op9", "AllReduce", 1200, 1400, 1)
    ]
    assert tables.marks.select("start_ns", "end_ns").rows() == [(1000, 1600), (2100, 2300)]


def test_what_is_lost_is_counted(tmp_path: Path):
    quality = read(write(tmp_path / "run")).quality
    found = set(quality.select("source", pl.col("issue").cast(pl.String), "count").rows())
    assert ("hwts.data", "start-without-end", 1) in found
    assert ("training_trace", "start-without-end", 1) in found
    assert ("Framework.host.vm.task_desc_info", "unreadable-line", 1) in found
    assert {issue for _, issue, _ in found} == {"start-without-end", "unreadable-line", "incomplete-clock"}


def test_it_opens_like_any_capture(tmp_path: Path):
    assert open_capture(write(tmp_path / "run")).tables.kernels.height == 2


def test_a_step_without_a_forward_pass_starts_with_its_first_record():
    found = step_trace(trace((3, 50), (4, 60), (255, 70)))
    assert found.steps.rows() == [(1, 50, 70, None, None)]


def test_an_all_reduce_without_its_other_end_is_counted():
    found = step_trace(trace((1, 10), (3, 50), (6, 60), (255, 70)))
    assert found.reduces.height == 0
    assert found.odd_reduces == 2


def test_nothing_to_read_is_said(tmp_path: Path):
    (tmp_path / f"hwts.log.data.45.{TAG}.slice_0").write_bytes(b"")
    with pytest.raises(CaptureError, match="nothing in this folder"):
        read(tmp_path)


@pytest.mark.parametrize("size", [0, 1, 19, 63, 64, 200])
def test_cut_files_never_raise_anything_else(tmp_path: Path, size: int):
    folder = write(tmp_path / "run")
    for path in folder.rglob("*.*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:size])
    with contextlib.suppress(CaptureError):
        assert read(folder).quality.height


def test_entries_of_ai_cpus_with_and_without_a_node():
    entry = (
        "Thread[ 1] process device[0]:aicpu[ 0] task end, tickDrvTopHalf=1,tickDrvBottomHalf=2, tickBeforeRun=30,tickAfterRun=40, "
    )
    times = "dispatchTime=5 us, totalTime=60 us."
    stages = "compute start:110, memcpy start:120, memcpy end:125,"
    text = f"{entry}{times}\0[9] Node:Default/A-op0, Run start:100, {stages}Run end:130 {entry}{times} [9] task end, damaged"
    found, strange = texts.ai_cpu(text)
    assert strange == 1
    columns = [
        "node",
        "run_start_us",
        "run_end_us",
        "compute_us",
        "memcpy_us",
        "before_ticks",
        "after_ticks",
        "dispatch_us",
        "total_us",
    ]
    assert found.select(columns).rows() == [
        (None, None, None, None, None, 30, 40, 5, 60),
        ("Default/A-op0", 100, 130, 10.0, 5.0, 30, 40, 5, 60),
    ]


def test_counters_of_cores_belong_to_operators(tmp_path: Path):
    """Two devices with the same records: the kernels of the first come first."""
    folder = write(tmp_path / "run")
    counters = np.zeros(1, AICORE.dtype)
    counters["head"], counters["magic"], counters["stream"], counters["task"] = 5, STARS_MAGIC, 7, 70
    counters["cycles"], counters["counters"] = 1000, [[500, 0, 250, 0, 0, 0, 0, 0]]
    for device in (0, 1):
        tag = f"dev.profiler_default_tag.{device}"
        (folder / f"aicore.data.43.{tag}.slice_0").write_bytes(counters.tobytes())
        (folder / f"info.json.{device}").write_text('{"DeviceInfo": [{"aic_frequency": "1000", "ai_core_num": 32}]}')
    for name in (f"hwts.log.data.45.{TAG}.slice_0", "Framework.host.vm.task_desc_info.0.slice_0"):
        copy = name.replace("tag.0.", "tag.1.").replace("info.0.", "info.1.")
        (folder / copy).write_bytes((folder / name).read_bytes())
    events = '{"ai_core_metrics": "PipeUtilization", "ai_core_profiling_events": "0x8,0xa,0x9,0xb,0xc,0xd,0x54,0x55"}'
    (folder / "sample.json").write_text(events)
    tables = read(folder)
    found = tables.kernel_metrics.select("kernel", "total_cycles", "aic_total_time", "vec_ratio", "scalar_ratio").rows()
    assert found == [(0, 1000.0, 500.0, 0.5, 0.25), (2, 1000.0, 500.0, 0.5, 0.25)]
    assert tables.kernels["name"].cast(pl.String).gather(tables.kernel_metrics["kernel"]).to_list() == ["Default/Mul-op1"] * 2
    assert tables.kernels["device"].gather(tables.kernel_metrics["kernel"]).to_list() == [0, 1]


def test_files_that_are_known_and_not_shown_are_no_loss(tmp_path: Path):
    folder = write(tmp_path / "run")
    (folder / "DATA_PREPROCESS.dev.TDT.0.slice_0").write_text("[393233413] Enqueue data to dp, source:a, index:1, size:0 ")
    quality = read(folder).quality.filter(pl.col("source") == "DATA_PREPROCESS.dev.TDT")
    assert quality.select(pl.col("severity").cast(pl.String), "detail").rows() == [("warning", "file: queue of the data set")]
