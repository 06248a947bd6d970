# SPDX-License-Identifier: Apache-2.0
"""A raw folder with one kind of file removed: what the rest still gives (the table of docs/formats/cann.md 8)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from prof_folder import MS, T0, write

from stepscope.formats import cann

WHOLE = {"kernels": 7, "kernel_metrics": 3, "api_calls": 18, "collectives": 1, "transfers": 1}
NAMES = ["Add_1", "MatMul_1", "KERNEL_MIX_AIC", "Flash_1", "MEMCPY_ASYNC", "AiCpu_1", "NOTIFY_WAIT"]
DEVICE_NAMES = ["AI_CORE", "AI_CORE", "AI_CORE", "MIX_AIC", "SDMA_SQE", "AI_CPU", "NOTIFY_WAIT_SQE"]
KERNEL_NAMES = ["add_kernel", "matmul_kernel", "AI_CORE", "flash_kernel", "MEMCPY_ASYNC", "cpu_kernel", "NOTIFY_WAIT"]


def test_a_whole_folder_gives_what_was_written(tmp_path: Path):
    tables = cann.read(write(tmp_path))
    assert {name: tables[name].height for name in WHOLE} == WHOLE
    assert tables["quality"].rows() == []
    kernels = tables["kernels"]
    assert kernels["name"].to_list() == NAMES
    assert (kernels["start_ns"] - T0).to_list() == [at * MS + 600_000 for at in (1, 2, 3, 3, 4, 5, 6)]
    assert kernels["duration_ns"].to_list() == [300_000, 300_000, 300_000, 299_999, 300_000, 300_000, 300_000]
    assert kernels.filter(kernels["op_type"] == "Add").select(
        "core", "block_num", "input_shapes", "output_dtypes", "attrs"
    ).rows() == [("AI_VECTOR_CORE", 40, "2,1;2,2", "FLOAT16", "alpha=1")]
    # 9 900 000 cycles of 20 cores at 1650 MHz are 300 us.
    assert tables["kernel_metrics"]["aic_total_time"].to_list() == pytest.approx([0, 300_000, 300_000])
    assert tables["collectives"].select("op_type", "group_name", "data_type", "count", "rank_size").rows() == [
        ("allReduce", "world", "FP32", 1024, 2)
    ]
    assert tables["transfers"].select("task_type", "bytes", "src_rank", "dst_rank", "link").rows() == [
        ("Notify_Wait", 512, 0, 1, "HCCS")
    ]


@pytest.mark.parametrize(
    ("removed", "left", "names"),
    [
        ("*.done", {}, NAMES),
        ("end_info*", {}, NAMES),
        ("*lpm*", {}, NAMES),
        ("*ffts_profile*", {"kernel_metrics": 0}, NAMES),
        ("*task_track*", {"kernel_metrics": 0, "collectives": 0, "transfers": 0}, DEVICE_NAMES),
        ("*expand_stream_spec*", {"kernel_metrics": 2}, NAMES[:2] + DEVICE_NAMES[2:4] + NAMES[4:]),
        ("*api_event*", {"api_calls": 0, "collectives": 0, "transfers": 0}, KERNEL_NAMES),
        ("*stars_soc*", {"kernels": 0, "kernel_metrics": 0, "collectives": 0, "transfers": 0}, []),
        ("host", {"kernel_metrics": 0, "api_calls": 0, "collectives": 0, "transfers": 0}, DEVICE_NAMES),
        ("device_0", {"kernels": 0, "kernel_metrics": 0, "collectives": 0, "transfers": 0}, []),
    ],
)  # fmt: skip
def test_what_is_left(tmp_path: Path, removed: str, left: dict[str, int], names: list[str]):
    prof = write(tmp_path)
    for found in list(prof.rglob(removed)):
        shutil.rmtree(found) if found.is_dir() else found.unlink()
    tables = cann.read(prof)
    assert {name: tables[name].height for name in WHOLE} == WHOLE | left
    assert tables["kernels"]["name"].to_list() == names
    said = [(str(issue), detail) for issue, detail in tables["quality"].select("issue", "detail").iter_rows()]
    if removed == "end_info*":
        assert said == [("recording-unfinished", "no end_info in host, device_0")]
    else:
        assert bool(said) == (left != {} and removed != "*ffts_profile*")


def test_without_texts_names_are_numbers(tmp_path: Path):
    prof = write(tmp_path)
    for found in prof.rglob("*hash_dic*"):
        found.unlink()
    kernels = cann.read(prof)["kernels"]
    assert [name.isdecimal() for name in kernels["name"].to_list()] == [True, True, False, True, False, True, False]
