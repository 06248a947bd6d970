# SPDX-License-Identifier: Apache-2.0
"""Which rows belong together, such as those of one thread, as small numbers; and what began last in each group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.arrays import filled, is_null, unique_inverse

Ints = npt.NDArray[np.int64]
_SMALL = np.iinfo(np.uint16).max


def group_numbers(frames: Sequence[pl.DataFrame], columns: Sequence[str]) -> list[Ints]:
    """A number per row for each combination of the columns, the same over all frames; null is a value like others."""
    numbers = [np.zeros(frame.height, dtype=np.int64) for frame in frames]
    for column in columns:
        values = [_numbers(frame[column]) for frame in frames]
        if _are_equal(values):
            continue
        rising = pl.concat([value.unique() for value in values]).unique().drop_nulls().sort().to_numpy()
        for number, value in zip(numbers, values, strict=True):
            place = np.searchsorted(rising, filled(value, rising[0])) + 1
            number *= rising.size + 1
            number += np.where(is_null(value), 0, place) if value.null_count() else place
        numbers = _compact(numbers)
    return numbers


def _numbers(column: pl.Series) -> pl.Series:
    return column if column.dtype.is_integer() else column.to_physical()


def _are_equal(columns: Sequence[pl.Series]) -> bool:
    """Whether all rows have one value or all are null."""
    bounds = {bound for column in columns for bound in (column.min(), column.max()) if len(column)}
    nulls = sum(column.null_count() for column in columns)
    return len(bounds - {None}) < 2 and nulls in (0, sum(map(len, columns)))


def _compact(numbers: list[Ints]) -> list[Ints]:
    """The same groups with the smallest numbers, when these have grown: products of many columns would not fit."""
    if max((int(number.max()) for number in numbers if number.size), default=0) <= _SMALL:
        return numbers
    dense = unique_inverse(np.concatenate(numbers))[1]
    return np.split(dense, np.cumsum([number.size for number in numbers])[:-1])


def rows_by_group(group: Ints) -> Iterator[tuple[int, Ints]]:
    """Each group with its rows, in their order."""
    counts = np.bincount(group)
    present = np.flatnonzero(counts)
    if present.size < 2:
        order = np.arange(group.size)
    else:  # sorting 16-bit numbers is linear
        order = np.argsort(group.astype(np.uint16) if counts.size <= _SMALL else group, kind="stable")
    ends = np.cumsum(counts)
    for number in present.tolist():
        yield number, order[ends[number] - counts[number] : ends[number]]


def last_started(group: Ints, start: Ints, at_group: Ints, at: Ints) -> Ints:
    """Per question (group and time) the last row of the group with start <= time, or -1; rows of a group are sorted by start."""
    found = np.full(at.size, -1, dtype=np.int64)
    if not at.size or not start.size:
        return found
    members = dict(rows_by_group(at_group))
    for number, rows in rows_by_group(group):
        if number in members:
            place = np.searchsorted(start[rows], at[members[number]], side="right") - 1
            found[members[number]] = np.where(place >= 0, rows[place], -1)
    return found
