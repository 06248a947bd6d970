# SPDX-License-Identifier: Apache-2.0
"""Which operator encloses which: one tree per thread.

A range leaves its parent only when it starts after the parent's end, so a range that starts at the very
end of another one is its child (docs/formats/outputs.md 2.3). Step ranges are ordinary nodes on their own thread; what
they cover on other threads is a question of time, answered in `steps`.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import CDLL, c_int64, c_void_p

import numpy as np
import polars as pl

from stepscope.analysis.link.groups import Ints, group_numbers, last_started, rows_by_group
from stepscope.arrays import filled, with_nulls
from stepscope.native.codec import codec

STEP_MARK = "ProfilerStep#"


def parents(spans: pl.DataFrame, by: Sequence[str] = ("pid", "tid")) -> pl.Series:
    """Row of the enclosing span on the same thread, null at the root.

    Args:
        spans: start_ns, end_ns and the columns of `by`, in any order of rows.
    """
    starts, ends = spans["start_ns"].to_numpy(), spans["end_ns"].to_numpy()
    walk = None if _outer_first(spans) else np.lexsort((-ends, starts))
    group = group_numbers([spans], by)[0]
    functions = codec()
    if functions is not None and starts.dtype == ends.dtype == np.int64:  # no null among them
        return to_rows(_by_kernel(functions, starts, ends, group, walk), "parent")
    parent = np.full(spans.height, -1, dtype=np.int64)
    order = np.arange(spans.height) if walk is None else walk
    for _, places in rows_by_group(group[order]):
        rows = order[places]
        place = np.array(_enclosing(starts[rows].tolist(), ends[rows].tolist()), dtype=np.int64)
        parent[rows] = np.where(place >= 0, rows[place], -1)
    return to_rows(parent, "parent")


def _by_kernel(functions: CDLL, starts: Ints, ends: Ints, group: Ints, walk: Ints | None) -> Ints:
    """The row of the enclosing span, -1 at the root, by the C++ kernel (native/codec/trees.cpp)."""
    parent = np.empty(starts.size, np.int64)
    last = np.full(int(group.max(initial=-1)) + 1, -1, np.int64)
    arrays = [None if array is None else np.ascontiguousarray(array, np.int64) for array in (starts, ends, group, walk)]
    functions.enclosing.restype = None
    functions.enclosing(
        *(None if array is None else c_void_p(array.ctypes.data) for array in arrays),
        c_int64(starts.size),
        c_void_p(last.ctypes.data),
        c_void_p(parent.ctypes.data),
    )
    return parent


def _outer_first(spans: pl.DataFrame) -> bool:
    """Whether rows are sorted by start and, where these are equal, the longer ones first."""
    start, end = np.diff(spans["start_ns"].to_numpy()), np.diff(spans["end_ns"].to_numpy())
    return bool(((start > 0) | ((start == 0) & (end <= 0))).all())


def _enclosing(starts: list[int], ends: list[int]) -> list[int]:
    # Truly sequential: improperly nested ranges make each parent depend on the one before. 0.2 s per million.
    place = [-1] * len(starts)
    last = -1
    for i, start in enumerate(starts):
        while last >= 0 and start > ends[last]:
            last = place[last]
        place[i] = last
        last = i
    return place


def row_numbers(references: pl.Series) -> Ints:
    """References to rows as a writable array, -1 where there is none."""
    return np.array(filled(references, -1), dtype=np.int64)


def to_rows(numbers: Ints, name: str) -> pl.Series:
    """The reverse of `row_numbers`."""
    return with_nulls(pl.Series(name, numbers, dtype=pl.Int64), numbers < 0)


def depths(parent: pl.Series) -> Ints:
    """Number of ancestors of each row."""
    ancestor = row_numbers(parent)
    depth = (ancestor >= 0).astype(np.int64)
    open_rows = np.flatnonzero(ancestor >= 0)
    # Pointer doubling: each round looks twice as far up, so the rounds are the logarithm of the depth.
    while open_rows.size:
        above = ancestor[open_rows]
        depth[open_rows], ancestor[open_rows] = depth[open_rows] + depth[above], ancestor[above]
        open_rows = open_rows[ancestor[open_rows] >= 0]
    return depth


def subtree_sums(parent: pl.Series, *values: Ints) -> list[Ints]:
    """Sum over each row and everything below it; whole numbers, so the order of additions does not matter."""
    above = row_numbers(parent)
    totals = [value.copy() for value in values]
    for rows in levels(parent)[:0:-1]:
        for total in totals:
            np.add.at(total, above[rows], total[rows])
    return totals


def levels(parent: pl.Series) -> list[Ints]:
    """Rows by depth, roots first."""
    depth = depths(parent)
    if not depth.size:
        return []
    order = np.argsort(depth, kind="stable")
    return np.split(order, np.cumsum(np.bincount(depth))[:-1])


def child_sums(parent: pl.Series, value: Ints) -> Ints:
    """Sum over the direct children of each row."""
    above = row_numbers(parent)
    inner = above >= 0
    total = np.zeros(len(above), dtype=np.int64)
    np.add.at(total, above[inner], value[inner])
    return total


def innermost(
    spans: pl.DataFrame, points: pl.DataFrame, *, by: Sequence[str] = ("tid",), at_end: bool = True, parent: pl.Series | None = None
) -> pl.Series:
    """Row of the innermost span that covers each point; null when none does.

    Args:
        spans: start_ns, end_ns, parent and the columns of `by`, sorted by start, outer ones first.
        points: `time_ns` and the columns of `by`, one row per question.
        by: what must be equal, such as the thread.
        at_end: whether a span covers its own end, as the tree does for things that touch.
        parent: the tree, when it is not in `spans`.
    """
    started = _last_started(spans, points, by)
    above = row_numbers(spans["parent"] if parent is None else parent)
    reach = spans["end_ns"].to_numpy() + (1 if at_end else 0)
    time = filled(points["time_ns"])
    open_points = np.flatnonzero(started >= 0)
    while open_points.size:
        open_points = open_points[reach[started[open_points]] <= time[open_points]]
        started[open_points] = above[started[open_points]]
        open_points = open_points[started[open_points] >= 0]
    return to_rows(started, "row")


def _last_started(spans: pl.DataFrame, points: pl.DataFrame, by: Sequence[str]) -> Ints:
    rows = np.full(points.height, -1, dtype=np.int64)
    known = points[[*by, "time_ns"]].with_row_index("point")
    known = known.drop_nulls() if any(column.null_count() for column in known) else known
    if known.height:
        group, at_group = group_numbers([spans, known], by)
        rows[known["point"].to_numpy()] = last_started(group, spans["start_ns"].to_numpy(), at_group, known["time_ns"].to_numpy())
    return rows
