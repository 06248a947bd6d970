# SPDX-License-Identifier: Apache-2.0
"""Csv files of a real capture without its timeline: one alone, or a folder of them with something else beside."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest

from stepscope.capture import open_all, open_capture

OUTPUT = Path("ascend_pt/text/level2/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT")


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("kernel_details", "kernels"),
        ("operator_details", "op_times"),
        ("step_trace_time", "step_times"),
        ("l2_cache", "cache_rates"),
    ],
)
def test_one_csv_file_opens(golden, tmp_path, name, table):
    path = Path(shutil.copy(golden / OUTPUT / f"{name}.csv", tmp_path))
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    tables = open_capture(path).tables
    listed = tables[table].height + (tables.collectives.height if table == "kernels" else 0)
    assert listed >= len(rows) > 0
    if table == "kernels":
        steps = {int(row["Step Id"]) for row in rows if row["Step Id"]}
        assert set(tables.kernels["step"].drop_nulls()) == steps


def test_a_foreign_json_beside_csv_files_is_no_obstacle(golden, tmp_path):
    for path in (golden / OUTPUT).glob("*.csv"):
        shutil.copy(path, tmp_path)
    (tmp_path / "notes.json").write_text('{"author": "somebody"}')
    (capture,) = open_all(tmp_path)
    assert capture.tables.kernels.height > 0
    assert capture.tables.step_times["step"].to_list() == [50]
