# SPDX-License-Identifier: Apache-2.0
"""How much of a window each track and each process of the timeline is busy."""

from __future__ import annotations

from typing import Any

import numpy as np

from stepscope.web.timeline.index import NONE, Array, TraceIndex

MOST_SLICES = 4_000_000  # of more, the answer would come later than the reader has moved on


def busy_shares(index: TraceIndex, low: int, high: int) -> dict[str, Any]:
    """Share of [low, high) that some slice covers, per track and per process; null without slices to count.

    Only slices without a parent count: the others lie inside of them.
    """
    tracks: list[float | None] = [None] * len(index.tracks)
    processes: list[float | None] = [None] * len(index.processes)
    if index.count > MOST_SLICES or high <= low:
        return {"tracks": tracks, "processes": processes}
    of_process: dict[int, list[tuple[Array, Array]]] = {}
    for track in index.tracks:
        rows = track.get("rows")
        if not rows:
            continue
        pieces = [_outer(index, row, low, high) for row in rows]
        starts, ends = (np.concatenate(side) for side in zip(*pieces, strict=True))
        tracks[track["id"]] = _covered(starts, ends) / (high - low)
        of_process.setdefault(track["process"], []).append((starts, ends))
    for process, parts in of_process.items():
        starts, ends = (np.concatenate(side) for side in zip(*parts, strict=True))
        processes[process] = _covered(starts, ends) / (high - low)
    return {"tracks": tracks, "processes": processes}


def _outer(index: TraceIndex, row: int, low: int, high: int) -> tuple[Array, Array]:
    """Starts and ends of the slices of a row that have no parent, cut to the window."""
    start, end = index.part(row, "start"), index.part(row, "end")
    first, beyond = (int(place) for place in np.searchsorted(start, (low, high)))
    first -= first > 0 and bool(end[first - 1] > low)
    own = index.part(row, "parent")[first:beyond] == NONE
    return np.maximum(start[first:beyond][own], low), np.minimum(end[first:beyond][own], high)


def _covered(starts: Array, ends: Array) -> int:
    """Length of the union."""
    if not starts.size:
        return 0
    order = np.argsort(starts, kind="stable")
    starts, reach = starts[order], np.maximum.accumulate(ends[order])
    before = np.concatenate(([starts[0]], reach[:-1]))
    return int(np.maximum(reach - np.maximum(starts, before), 0).sum())
