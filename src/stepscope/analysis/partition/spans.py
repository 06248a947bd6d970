# SPDX-License-Identifier: Apache-2.0
"""Sets of time as sorted, disjoint, half-open spans in int64 ns, and exact arithmetic on them.

A set is two arrays of equal length: starts and ends. The covered-time function of a set (cumulative sums and one binary search)
gives the overlap with any number of windows at once; no sum passes through a float.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Spans:
    """A set of time."""

    start: Ints
    end: Ints

    @property
    def total_ns(self) -> int:
        return int((self.end - self.start).sum())

    def covered(self, at: Ints) -> Ints:
        """Time of the set before each moment."""
        if not self.start.size:
            return np.zeros(at.shape, dtype=np.int64)
        before = np.concatenate(([0], np.cumsum(self.end - self.start)))
        place = np.searchsorted(self.start, at, side="right")
        over = np.where(place > 0, np.maximum(self.end[place - 1] - at, 0), 0)
        return np.asarray(before[place] - over, dtype=np.int64)

    def within(self, start: Ints, end: Ints) -> Ints:
        """Time of the set inside each window."""
        return self.covered(end) - self.covered(start)


EMPTY = Spans(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


def union(start: Ints, end: Ints) -> Spans:
    """The set that any spans cover; they may overlap, touch, be empty or out of order."""
    real = end > start
    if not real.all():
        start, end = start[real], end[real]
    if not start.size:
        return EMPTY
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    opens = np.concatenate(([True], start[1:] > reach[:-1]))
    closes = np.concatenate((opens[1:], [True]))
    return Spans(start[opens], reach[closes])


def spans_of(frame: pl.DataFrame) -> Spans:
    """The set that the rows of a table cover."""
    rows = frame.select("start_ns", "end_ns").drop_nulls()
    return union(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())


def join(*sets: Spans) -> Spans:
    """What any of the sets covers."""
    filled = [one for one in sets if one.start.size]
    if len(filled) < 2:
        return filled[0] if filled else EMPTY
    return union(np.concatenate([one.start for one in filled]), np.concatenate([one.end for one in filled]))


def minus(spans: Spans, holes: Spans) -> Spans:
    """What the first set covers and the second does not."""
    if not spans.start.size or not holes.start.size:
        return spans
    at = np.concatenate((spans.start, spans.end, holes.start, holes.end))
    ours, theirs = spans.start.size, holes.start.size
    inside = np.repeat(np.array([1, -1, 0, 0], dtype=np.int8), (ours, ours, theirs, theirs))
    hole = np.repeat(np.array([0, 0, 1, -1], dtype=np.int8), (ours, ours, theirs, theirs))
    order = np.argsort(at, kind="stable")
    at = at[order]
    kept = (np.cumsum(inside[order], dtype=np.int32) > 0) & (np.cumsum(hole[order], dtype=np.int32) == 0)
    kept = kept[:-1] & (at[1:] > at[:-1])
    return union(at[:-1][kept], at[1:][kept])


def complement(spans: Spans, start: int, end: int) -> Spans:
    """What of one window the set does not cover."""
    bounds = np.clip(np.stack((spans.start, spans.end), axis=1).ravel(), start, end)
    edges = np.concatenate(([start], bounds, [end])).astype(np.int64)
    first, beyond = edges[0::2], edges[1::2]
    kept = beyond > first
    return Spans(first[kept], beyond[kept])
