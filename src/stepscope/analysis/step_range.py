# SPDX-License-Identifier: Apache-2.0
"""A part of a capture: the rows of some steps, with the references between tables kept right."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from stepscope.errors import CaptureError
from stepscope.tables import Tables, issues, lost
from stepscope.tables.union import REFERENCES

# The column by which a row belongs to a moment; tables without one follow what they refer to.
_MOMENTS = ("start_ns", "time_ns", "from_ns")
_WHOLE = ("meta", "quality", "data_pipelines", "data_batches", "param_tensors")
_ON_DEVICE = ("kernels", "waits", "task_parts", "collectives", "transfers", "overlap", "aicpu_tasks")
_SUMS = ("op_times", "op_type_times", "api_times", "cache_rates", "link_summary", "link_extremes")  # over a whole capture


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


def numbered(tables: Tables, first: int, last: int) -> Tables:
    """The tables with the steps numbered `first` to `last` alone; other tables, and so their row numbers, stay as they are.

    Raises:
        CaptureError: none of these steps was recorded.
    """
    chosen = tables.steps.filter(pl.col("step").is_between(first, last))
    if not chosen.height:
        known = sorted(tables.steps["step"].drop_nulls().unique().to_list())
        raise CaptureError(
            f"no step {first}" if first == last else f"no step from {first} to {last}",
            cause=f"recorded steps: {_listed(known)}" if known else "the capture marks no steps",
            fix="leave --step out for all" + (", or name one of these" if known else ""),
        )
    return tables.replace(steps=chosen)


def rows_of_steps(tables: Tables, first: int, last: int) -> Tables:
    """The rows that begin in the steps numbered `first` to `last`: work of a device in their time on it. Sums over the whole
    capture that nothing can divide are left out.

    Raises:
        CaptureError: none of these steps was recorded.
    """
    chosen = numbered(tables, first, last).steps
    bounds = chosen.select(
        pl.col("start_ns").min(),
        pl.col("end_ns").max(),
        device_start=pl.coalesce("device_start_ns", "start_ns").min(),
        device_end=pl.coalesce("device_end_ns", "end_ns").max(),
    ).row(0)
    without = {name: tables[name].clear() for name in _SUMS if tables[name].height}
    times = tables.step_times
    if times.height:
        without["step_times"] = times.filter(pl.col("step").is_between(first, last))
    return _cut(tables.replace(**without), (bounds[0], bounds[1]), (bounds[2], bounds[3]))


def _listed(numbers: Sequence[int]) -> str:
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]} to {numbers[-1]}"
    shown = ", ".join(map(str, numbers[:20]))
    return shown if len(numbers) <= 20 else f"{shown}, … {numbers[-1]}"


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
    return _cut(tables, (start_ns, end_ns), (start_ns, end_ns))


def _cut(tables: Tables, host: tuple[int, int], device: tuple[int, int]) -> Tables:
    kept: dict[str, pl.Series] = {}
    for name in tables.filled():
        moment = next((column for column in _MOMENTS if column in tables[name].columns), None)
        if moment is not None and name not in _WHOLE:
            window = device if name in _ON_DEVICE else host
            kept[name] = tables[name].select(pl.col(moment).is_between(*window, closed="left").fill_null(False)).to_series()
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
