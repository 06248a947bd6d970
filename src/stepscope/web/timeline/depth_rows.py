# SPDX-License-Identifier: Apache-2.0
"""On which row of its track each slice is drawn: slices of one row never overlap, and none is left out.

A slice takes the first row that is free when it starts. Where slices nest, that is the number of slices around it;
a slice that crosses the end of another one goes to an extra row. A slice without length takes up one nanosecond.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def depth_rows(start: Ints, end: Ints) -> tuple[Ints, int]:
    """Row of each slice of one track, and how many cross another one.

    Args:
        start: sorted; where equal, the longer slice comes first.
        end: not before the start.
    """
    reach = np.maximum(end, start + 1)
    depth = np.zeros(len(start), dtype=np.int64)
    crossing = 0
    for stretch in _nested(start, reach, depth):
        depth[stretch], count = _first_free(start[stretch], reach[stretch])
        crossing += count
    return depth, crossing


def _nested(start: Ints, reach: Ints, depth: Ints) -> list[slice]:
    """Set the depth of slices that nest, level by level; returns the stretches (with a gap at both ends) where some cross."""
    island = np.cumsum(_outer(start, reach)) - 1 if len(start) else np.zeros(0, dtype=np.int64)
    crossed = np.zeros(int(island[-1]) + 1 if len(start) else 0, dtype=np.bool_)
    left = np.arange(len(start))
    level = 0
    while left.size:
        ends = reach[left]
        outer = _outer(start[left], ends)
        roots = np.flatnonzero(outer)
        crosses = np.maximum.reduceat(ends, roots) > ends[roots]
        depth[left[roots]] = level
        if crosses.any():
            crossed[island[left[roots[crosses]]]] = True
            outer |= crossed[island[left]]
        left = left[~outer]
        level += 1
    bounds = np.searchsorted(island, np.arange(crossed.size + 1))
    return [slice(int(bounds[at]), int(bounds[at + 1])) for at in np.flatnonzero(crossed)]


def _outer(start: Ints, reach: Ints) -> npt.NDArray[np.bool_]:
    """Whether a slice starts when all before it have ended."""
    outer = np.ones(len(start), dtype=np.bool_)
    outer[1:] = start[1:] >= np.maximum.accumulate(reach)[:-1]
    return outer


def _first_free(start: Ints, reach: Ints) -> tuple[Ints, int]:
    # Truly sequential: where slices cross, each row depends on the slices before.
    free_at: list[int] = []
    rows = []
    crossing = 0
    for begin, end in zip(start.tolist(), reach.tolist(), strict=True):
        place, crosses = -1, False
        for row, until in enumerate(free_at):
            if until <= begin:
                place = row if place < 0 else place
            elif until < end:
                crosses = True
        if place < 0:
            place = len(free_at)
            free_at.append(end)
        free_at[place] = end
        rows.append(place)
        crossing += crosses
    return np.array(rows, dtype=np.int64), crossing
