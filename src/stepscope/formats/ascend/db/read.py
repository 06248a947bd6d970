# SPDX-License-Identifier: Apache-2.0
"""ascend_pytorch_profiler[_n].db and msprof_*.db of all layout generations -> tables (docs/formats/outputs.md 12)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl

from stepscope.errors import CaptureError
from stepscope.formats.ascend.db.analysis import COMMUNICATION_FILE, attached, read_analysis
from stepscope.formats.ascend.db.capture import with_database
from stepscope.formats.ascend.db.counters import read_counters, read_link_summary
from stepscope.formats.ascend.db.database import Database
from stepscope.formats.ascend.db.device import read_collectives, read_kernels, read_metrics, read_tasks, read_transfers
from stepscope.formats.ascend.db.host import read_api_calls, read_framework, read_gc_pauses, read_marks
from stepscope.formats.ascend.db.memory import read_memory
from stepscope.formats.ascend.db.schema import PROFILER_DB, WITHOUT_HOME
from stepscope.tables import Facts, Tables, issues, lost


def read(db: Path, facts: Facts) -> Tables:
    """Everything a database holds that has a place in our tables, and the vendor's analysis where it lies beside it.

    Damaged tables, missing columns and rows without times are counted in `quality`.

    Raises:
        CaptureError: the file is not a database, cannot be opened, or has none of the tables.
    """
    # The driver works outside the interpreter's lock, so the longest table is read beside all the others.
    with Database(db) as file, ThreadPoolExecutor(1) as beside:
        if not set(file.columns) & (set(PROFILER_DB) - {"STRING_IDS"}):
            raise CaptureError(
                "a database without any table of a profiler",
                where=str(db),
                cause=f"its tables are {', '.join(sorted(file.columns)) or 'none'}",
                fix="give ascend_pytorch_profiler*.db or msprof_*.db of a capture",
            )
        calls = beside.submit(_api_calls, db)
        tasks = read_tasks(file)
        collectives = read_collectives(file, tasks)
        kernels = read_kernels(file, tasks, collectives)
        events, allocations = read_memory(file)
        frames = {
            **read_framework(file),
            "gc_pauses": read_gc_pauses(file),
            "marks": read_marks(file, tasks),
            "kernels": kernels,
            "kernel_metrics": read_metrics(file, kernels),
            "collectives": collectives,
            "transfers": read_transfers(file, tasks, collectives),
            "memory_events": events,
            "allocations": allocations,
            "counters": read_counters(file),
            "link_summary": read_link_summary(file),
            "meta": with_database(facts, file).table(),
        }
        frames["api_calls"], quality = calls.result()
        for name in WITHOUT_HOME:
            file.lost(issues.UNSUPPORTED_TABLE, int(file.has(name)), name)
        tables = Tables({name: frame for name, frame in frames.items() if frame.height}).with_quality(*file.quality, *quality)
    return _with_analysis(tables, db)


def _with_analysis(tables: Tables, db: Path) -> Tables:
    """Add what the vendor's analysis beside the database says about communication operators."""
    # Beside the profiler's database, and in the folder that msprof itself writes.
    for path in (db.with_name("analysis.db"), db.parent / "analyze" / COMMUNICATION_FILE):
        if path.is_file() and not path.is_symlink():
            try:
                return attached(tables, read_analysis(path))
            except CaptureError as error:
                tables = tables.with_quality(lost(issues.UNREADABLE_FILE, str(path), 1, str(error.cause)))
    return tables


def _api_calls(db: Path) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
    with Database(db) as file:
        return read_api_calls(file), file.quality
