# SPDX-License-Identifier: Apache-2.0
"""Csv files are known by their names and titles."""

from __future__ import annotations

import pytest

from stepscope.formats.ascend import kernel_details, memory, operator_details, statistics, step_trace_time, task_time
from stepscope.formats.ascend.hardware import CACHE
from stepscope.formats.ascend_capture import csv_files

COLUMNS = {
    "op_summary": kernel_details.COLUMNS,
    "task_time": task_time.COLUMNS,
    "operator_details": operator_details.COLUMNS,
    "step_trace_time": step_trace_time.COLUMNS,
    "op_statistic": statistics.OP,
    "api_statistic": statistics.API,
    "operator_memory": memory.ALLOCATION,
    "memory_record": memory.RECORD,
    "npu_module_mem": memory.MODULE,
    "l2_cache": CACHE["l2"],
}


@pytest.mark.parametrize("place", [0, -1], ids=["newest-titles", "oldest-titles"])
@pytest.mark.parametrize("kind", COLUMNS)
def test_a_renamed_file_is_known_by_its_titles(kind, place, tmp_path):
    titles = [[*item.names][place] for item in COLUMNS[kind]]
    (tmp_path / "renamed.csv").write_text(",".join(titles) + "\n")
    assert csv_files.kind_of(tmp_path / "renamed.csv") == kind


def test_a_column_less_is_another_file(tmp_path):
    titles = [item.title for item in kernel_details.COLUMNS if item.key != "core"]
    (tmp_path / "renamed.csv").write_text(",".join(titles) + "\n")
    assert csv_files.kind_of(tmp_path / "renamed.csv") is None


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("kernel_details.csv", "op_summary"),
        ("op_summary_20260522113006.csv", "op_summary"),
        ("op_summary_slice_0_20260522113006.csv", "op_summary"),
        ("op_summary_0_1.csv", "op_summary"),
        ("ge_memory_record_20260522113006.csv", "memory_record"),
        ("data_preprocess.csv", "aicpu"),
        ("kernel_details.txt", None),
        ("op_summary_of_mine.csv", None),
        ("step_trace_20260522113006.csv", None),
    ],
)
def test_files_are_known_by_their_names(tmp_path, name, kind):
    (tmp_path / name).write_text("some,thing\n1,2\n")
    assert csv_files.kind_of(tmp_path / name) == kind


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\0\0", b'"' + b"x" * 200_000, b"a,b\n", b"Mode,Min,Max,Avg\n"])
def test_files_of_other_programs_are_not_known(tmp_path, content):
    (tmp_path / "other.csv").write_bytes(content)
    assert csv_files.kind_of(tmp_path / "other.csv") is None
