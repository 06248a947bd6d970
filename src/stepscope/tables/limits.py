# SPDX-License-Identifier: Apache-2.0
"""What a fraction in a table can be: a damaged file holds any number, and sums and the digits of files are whole numbers."""

from __future__ import annotations

import polars as pl
import polars.selectors as cs

from stepscope.tables import issues
from stepscope.tables.tableset import Tables, lost

MOST = 9e15  # a thousand times as much is still a whole number of 64 bits
LONGEST_NS = 9e13  # of all tasks together, 25 hours: they are added up in units of 1e-5 ns
DURATION = "duration_ns"


def within_limits(tables: Tables) -> Tables:
    """The same tables without numbers that cannot be: null instead, and 0 for the duration of a task. They are counted."""
    mended, quality = {}, []
    for name in tables.filled():
        frame = tables[name]
        for column in frame.select(cs.float()).columns:
            odd = _too_long(frame) if column == DURATION else _too_much(frame[column])
            if odd is not None:
                frame = frame.with_columns(frame[column].set(odd, 0.0 if column == DURATION else None))
                quality.append(lost(issues.VALUE_OUT_OF_RANGE, name, int(odd.sum()), f"column {column}"))
        if frame is not tables[name]:
            mended[name] = frame
    return tables.replace(**mended).with_quality(*quality) if mended else tables


def _too_much(values: pl.Series) -> pl.Series | None:
    """Which values cannot be, NaN among them; None where all can."""
    odd = ~(values.abs() <= MOST).fill_null(True)
    return odd if odd.any() else None


def _too_long(tasks: pl.DataFrame) -> pl.Series | None:
    """The tasks that have no length, or are the longest where all together take too long; None where all can be."""
    lengths = tasks[DURATION]
    if lengths.null_count():  # their span says how long they are
        lengths = lengths.fill_null((tasks["end_ns"] - tasks["start_ns"]).cast(pl.Float64))
    lengths = lengths.abs()
    if not lengths.null_count() and float(lengths.sum()) <= LONGEST_NS:
        return None
    ordered = lengths.drop_nulls().sort()
    kept = ordered.filter(ordered.cum_sum() <= LONGEST_NS)
    return ~(lengths <= (float(kept[-1]) if kept.len() else -1.0)).fill_null(False)
