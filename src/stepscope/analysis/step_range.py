# SPDX-License-Identifier: Apache-2.0
"""A part of a capture: the rows of some steps, with the references between tables kept right."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from stepscope.tables import Tables, issues, lost
from stepscope.tables.union import REFERENCES

# The column by which a row belongs to a moment; tables without one follow what they refer to.
_MOMENTS = ("start_ns", "time_ns", "from_ns")
_WHOLE = ("meta", "quality", "data_pipelines", "data_batches", "param_tensors")


def only_steps(tables: Tables, numbers: Sequence[int]) -> Tables:
    """The rows that begin inside the given steps, counted from 1 at the first recorded one; all when there are no steps."""
    steps = tables.steps
    chosen = steps.filter(pl.int_range(1, pl.len() + 1).is_in(list(numbers)))
    if not chosen.height:
        detail = f"steps {list(numbers)} of {steps.height} recorded ones; everything was analysed"
        return tables.with_quality(lost(issues.STEPS_NOT_FOUND, "steps", 1, detail))
    bounds = chosen.select(
        start=pl.min_horizontal("start_ns", "device_start_ns").min(), end=pl.max_horizontal("end_ns", "device_end_ns").max()
    )
    return between(tables, *bounds.row(0))


def missing_steps(tables: Tables, numbers: Sequence[int]) -> str | None:
    """Which of the asked steps the capture lacks, in a sentence; None when it has them all."""
    recorded = tables.steps.height
    missing = [number for number in numbers if number > recorded]
    if not missing:
        return None
    counted = f"the capture has {recorded} steps, counted from 1 at the first recorded one" if recorded else "it has no steps"
    rest = "all steps were analysed" if len(missing) == len(numbers) else "the others were analysed"
    return f"steps {missing} were not recorded: {counted}; {rest}"


def between(tables: Tables, start_ns: int, end_ns: int) -> Tables:
    """The rows that begin in [start_ns, end_ns)."""
    kept: dict[str, pl.Series] = {}
    for name in tables.filled():
        moment = next((column for column in _MOMENTS if column in tables[name].columns), None)
        if moment is not None and name not in _WHOLE:
            kept[name] = (
                tables[name].select(pl.col(moment).is_between(start_ns, end_ns, closed="left").fill_null(False)).to_series()
            )
    places = {name: _places(kept[name]) for name in set(REFERENCES.values()) & kept.keys()}
    frames = {}
    for name in tables.filled():
        frame = tables[name]
        moved = [
            places[target].gather(frame[column]).alias(column)
            for (table, column), target in REFERENCES.items()
            if table == name and target in places and column in frame.columns
        ]
        frame = frame.with_columns(moved)
        if name in kept:
            frame = frame.filter(kept[name])
        elif name not in _WHOLE and moved:
            frame = frame.drop_nulls([column.name for column in moved])
        frames[name] = frame
    return Tables(frames)


def _places(kept: pl.Series) -> pl.Series:
    """The new row number of each row; null for those that go."""
    return pl.DataFrame({"kept": kept}).select(
        pl.when("kept").then(pl.col("kept").cast(pl.Int64).cum_sum() - 1)
    ).to_series()  # fmt: skip
