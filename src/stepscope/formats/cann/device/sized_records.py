# SPDX-License-Identifier: Apache-2.0
"""Records that carry their own size, several kinds in one file, as the 310 writes them (docs/formats/cann.md 6.8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.formats.cann.folder import Part
from stepscope.formats.cann.layouts import Layout
from stepscope.formats.cann.records import concatenate, read_bytes
from stepscope.tables import issues, lost

TIMELINE_KIND, EVENT_COUNTER_KIND, STEP_TRACE_KIND, MEMCPY_KIND = 3, 4, 10, 11
_SKIPPED = (6, 7, 8, 9, STEP_TRACE_KIND, MEMCPY_KIND)  # known, and of no use here
_LEAST, _MOST = 8, 4096  # sizes that a record may have


def read_sized(part: Part, file: str, layouts: Mapping[int, Layout]) -> tuple[dict[int, npt.NDArray[Any]], list[pl.DataFrame]]:
    """Records of some kinds in file order. Others are counted by kind and size; a size that cannot be ends the walk."""
    found: dict[int, list[npt.NDArray[Any]]] = {kind: [] for kind in layouts}
    others: dict[tuple[int, int], int] = {}
    losses: list[pl.DataFrame] = []
    for slices in part.slices(file):
        data, bad = read_bytes(slices)
        losses += bad
        place = 0
        while len(data) - place >= _LEAST:
            size = int(data[place + 2]) | int(data[place + 3]) << 8
            if not _LEAST <= size <= _MOST or place + size > len(data):
                break
            run = _run(data[place:], size)
            place += run.size
            for kind in np.unique(run[:, 1]).tolist():
                of_kind = run[run[:, 1] == kind]
                layout = layouts.get(kind)
                if layout is not None and layout.size == size:
                    found[kind].append(np.ascontiguousarray(of_kind).reshape(-1).view(layout.dtype))
                else:
                    others[kind, size] = others.get((kind, size), 0) + len(of_kind)
        left = len(data) - place
        if left:
            losses.append(lost(issues.TRUNCATED_RECORD, slices.name, 1, f"at the end: {left:,} B left"))
    losses += [
        lost(issues.UNKNOWN_KIND, file, count, f"kind {kind}, {size} B each")
        for (kind, size), count in sorted(others.items())
        if kind not in _SKIPPED
    ]
    rows = {kind: concatenate(pieces or [np.empty(0, layouts[kind].dtype)], layouts[kind]) for kind, pieces in found.items()}
    return rows, losses


def _run(data: npt.NDArray[np.uint8], size: int) -> npt.NDArray[np.uint8]:
    """The records from here on that have this size, as rows of bytes."""
    rows = data[: len(data) // size * size].reshape(-1, size)
    # Runs are mostly short or all of the file: look at some before looking at all.
    for some in (64, len(rows)):
        other = np.flatnonzero((rows[:some, 2] != size & 0xFF) | (rows[:some, 3] != size >> 8))
        if len(other):
            return rows[: int(other[0])]
    return rows
