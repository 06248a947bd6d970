# SPDX-License-Identifier: Apache-2.0
"""analysis.db from tables: where the time of steps and communication operators went (outputs.md 7, 9.4, 12.3)."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from stepscope.analysis.communication import analyzer_bandwidth, analyzer_matrix, analyzer_time
from stepscope.analysis.step_time import step_trace_time_by_task, steps_by_task
from stepscope.formats.ascend.db.schema import ANALYSIS_DB
from stepscope.render.sqlite_file import building
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
    with building(path) as file:
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
    if level != "Level0":  # outputs.md 1.1: level 0 holds only StepTraceTime
        rows["CommAnalyzerTime"] = _plain(analyzer_time(tables))
        rows["CommAnalyzerBandwidth"] = _plain(analyzer_bandwidth(tables))
        rows["CommAnalyzerMatrix"] = _plain(analyzer_matrix(tables))
    return rows


def _steps(tables: Tables, steps: pl.DataFrame) -> pl.DataFrame:
    times = step_trace_time_by_task(tables, steps)
    # outputs.md 16: microseconds, whatever the documents say.
    return times.select(
        pl.col("device").cast(pl.Int64).alias("deviceId"),
        pl.col("step").cast(pl.String),
        *((pl.col(column) / 1000).alias(name) for name, column in _STEP_VALUES.items()),
    )


def _plain(frame: pl.DataFrame) -> pl.DataFrame:
    """Text as strings: the database has no dictionary for it."""
    return frame.with_columns(pl.col(pl.Categorical).cast(pl.String))
