# SPDX-License-Identifier: Apache-2.0
"""Which operator encloses which: one tree per thread.

A range leaves its parent only when it starts after the parent's end, so a range that starts at the very
end of another one is its child (outputs.md 2.3). Step ranges are ordinary nodes on their own thread; what
they cover on other threads is a question of time, answered in `steps`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import polars as pl

Ints = npt.NDArray[np.int64]

STEP_MARK = "ProfilerStep#"


def parents(spans: pl.DataFrame, by: Sequence[str] = ("pid", "tid")) -> pl.Series:
    """Row of the enclosing span on the same thread, null at the root.

    Args:
        spans: start_ns, end_ns and the columns of `by`, in any order of rows.
    """
    keys = list(by)
    walk = spans.select(*keys, "start_ns", "end_ns").with_row_index("row")
    if not _outer_first(spans):
        walk = walk.sort("start_ns", "end_ns", descending=[False, True], maintain_order=True)
    walk = walk.sort(keys, maintain_order=True)
    rows = walk["row"].cast(pl.Int64).to_numpy()
    starts, ends = walk["start_ns"].to_numpy(), walk["end_ns"].to_numpy()
    begins = pl.any_horizontal((pl.col(key).ne_missing(pl.col(key).shift(1))) | (pl.int_range(pl.len()) == 0) for key in keys)
    bounds = [*walk.select(begins.arg_true()).to_series().to_list(), walk.height]
    parent = np.full(spans.height, -1, dtype=np.int64)
    for first, beyond in pairwise(bounds):
        place = np.array(_enclosing(starts[first:beyond].tolist(), ends[first:beyond].tolist()), dtype=np.int64)
        inner = place >= 0
        parent[rows[first:beyond][inner]] = rows[first + place[inner]]
    return to_rows(parent, "parent")


def _outer_first(spans: pl.DataFrame) -> bool:
    """Whether rows are sorted by start and, where these are equal, the longer ones first."""
    start, end = pl.col("start_ns").diff(), pl.col("end_ns").diff()
    return bool(spans.select(((start > 0) | ((start == 0) & (end <= 0))).all()).item())


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
    return np.array(references.fill_null(-1).to_numpy(), dtype=np.int64)


def to_rows(numbers: Ints, name: str) -> pl.Series:
    """The reverse of `row_numbers`."""
    series = pl.Series(name, numbers, dtype=pl.Int64)
    return pl.select(pl.when(series >= 0).then(series).alias(name)).to_series()


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
    time = points["time_ns"].fill_null(0).to_numpy()
    open_points = np.flatnonzero(started >= 0)
    while open_points.size:
        open_points = open_points[reach[started[open_points]] <= time[open_points]]
        started[open_points] = above[started[open_points]]
        open_points = open_points[started[open_points] >= 0]
    return to_rows(started, "row")


def _last_started(spans: pl.DataFrame, points: pl.DataFrame, by: Sequence[str]) -> Ints:
    starts = spans.select(*by, "start_ns").with_row_index("span")
    asked = points.select(*by, "time_ns").with_row_index("point").drop_nulls()
    if not asked["time_ns"].is_sorted():
        asked = asked.sort("time_ns")
    # A key with one value all over, such as the process, would only double the time of the join.
    keys = [key for key in by if pl.concat([starts[key].unique(), asked[key].unique()]).n_unique() > 1]
    found = asked.join_asof(
        starts, left_on="time_ns", right_on="start_ns", by=keys or None, strategy="backward", check_sortedness=False
    ).drop_nulls("span")
    rows = np.full(points.height, -1, dtype=np.int64)
    rows[found["point"].to_numpy()] = found["span"].to_numpy()
    return rows
