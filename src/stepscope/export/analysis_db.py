# SPDX-License-Identifier: Apache-2.0
"""analysis.db from tables: where the time of steps and communication operators went (docs/formats/outputs.md 7, 9.4, 12.3)."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from stepscope.analysis.communication import matrix_tags, stepped
from stepscope.analysis.step_time import step_trace_time_by_task, steps_by_task
from stepscope.formats.ascend.db import analysis
from stepscope.formats.ascend.db.schema import ANALYSIS_DB
from stepscope.render.sqlite_file import new_database
from stepscope.tables import Tables

_STEP_VALUES = {
    "computing": "computing_ns",
    "communication_not_overlapped": "not_overlapped_ns",
    "overlapped": "overlapped_ns",
    "communication": "communication_ns",
    "free": "free_ns",
    "stage": "stage_ns",
    "bubble": "bubble_ns",
    "communication_not_overlapped_and_exclude_receive": "not_overlapped_except_receive_ns",
    "preparing": "preparing_ns",
}


def write_analysis_db(tables: Tables, path: Path) -> bool:
    """Write the database, or nothing when the capture has no device work to analyse; says whether it was written.

    Args:
        tables: linked tables.
        path: its folder must exist; replaced as a whole or left as it was.

    Raises:
        CaptureError: the folder or the disk does not take it.
    """
    rows = _rows(tables)
    if not any(frame.height for frame in rows.values()):
        return False
    with new_database(path) as file:
        for name, frame in rows.items():
            file.fill(ANALYSIS_DB[name], frame)
    return True


def _rows(tables: Tables) -> dict[str, pl.DataFrame]:
    level = tables.facts.level
    if level == "Level_none" or not (tables["kernels"].height or tables["collectives"].height):
        return {}
    steps = steps_by_task(tables)
    rows = {"StepTraceTime": _steps(tables, steps)}
    tables = tables.replace(steps=steps)
    if level != "Level0":  # docs/formats/outputs.md 1.1: level 0 holds only StepTraceTime
        rows["CommAnalyzerTime"] = time_rows(tables)
        rows["CommAnalyzerBandwidth"] = bandwidth_rows(tables)
        rows["CommAnalyzerMatrix"] = matrix_rows(tables)
    return rows


def _steps(tables: Tables, steps: pl.DataFrame) -> pl.DataFrame:
    times = step_trace_time_by_task(tables, steps)
    # docs/formats/outputs.md 16: microseconds, whatever the documents say.
    return times.select(
        pl.col("device").cast(pl.Int64).alias("deviceId"),
        pl.col("step").cast(pl.String),
        *((pl.col(column) / 1000).alias(name) for name, column in _STEP_VALUES.items()),
    )


def time_rows(tables: Tables) -> pl.DataFrame:
    """CommAnalyzerTime: one row per communication operator."""
    return analysis.time_rows(stepped(tables, "collective_times", by_time=True))


def bandwidth_rows(tables: Tables) -> pl.DataFrame:
    """CommAnalyzerBandwidth: one row per operator, transport and packet size."""
    return analysis.bandwidth_rows(stepped(tables, "collective_packets", by_time=True))


def matrix_rows(tables: Tables) -> pl.DataFrame:
    """CommAnalyzerMatrix: one row per pair of ranks and extreme or sum."""
    return analysis.matrix_rows(matrix_tags(stepped(tables, "collective_links", by_time=True)))
