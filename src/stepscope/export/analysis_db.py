# SPDX-License-Identifier: Apache-2.0
"""analysis.db from tables: where the time of steps and communication operators went (docs/formats/outputs.md 7, 9.4, 12.3)."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from stepscope.analysis.communication.collectives import matrix_tags, stepped_tables
from stepscope.analysis.step_time import step_trace_time_by_task, steps_by_task
from stepscope.formats.ascend.db import analysis
from stepscope.formats.ascend.db.schema import ANALYSIS_DB
from stepscope.render.sqlite_file import new_database
from stepscope.tables import Tables


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


def write_communication_db(tables: Tables, folder: Path) -> list[Path]:
    """Write communication_analyzer.db, which msprof makes of one PROF folder; none without communication operators."""
    rows = communication_rows(tables)
    if not any(frame.height for frame in rows.values()):
        return []
    path = folder / analysis.COMMUNICATION_FILE
    with new_database(path) as file:
        for name, frame in rows.items():
            file.fill(ANALYSIS_DB[name], frame)
    return [path]


def _rows(tables: Tables) -> dict[str, pl.DataFrame]:
    level = tables.facts.level
    if level == "Level_none" or not (tables["kernels"].height or tables["collectives"].height):
        return {}
    steps = steps_by_task(tables)
    rows = {"StepTraceTime": analysis.step_rows(step_trace_time_by_task(tables, steps))}
    tables = tables.replace(steps=steps)
    if level != "Level0":  # docs/formats/outputs.md 1.1: level 0 holds only StepTraceTime
        rows |= communication_rows(tables)
    return rows


def communication_rows(tables: Tables) -> dict[str, pl.DataFrame]:
    """One row per operator; per operator, transport and packet size; and per pair of ranks and extreme or sum."""
    times, packets, links = stepped_tables(tables, "collective_times", "collective_packets", "collective_links", by_time=True)
    return {
        "CommAnalyzerTime": analysis.time_rows(times),
        "CommAnalyzerBandwidth": analysis.bandwidth_rows(packets),
        "CommAnalyzerMatrix": analysis.matrix_rows(matrix_tags(links)),
    }
