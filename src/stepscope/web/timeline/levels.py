# SPDX-License-Identifier: Apache-2.0
"""Level of detail: what one tile of one row of a timeline shows.

Bins of level k are 2**k ns wide and a tile is 512 of them. A tile with few slices holds them all; one with many holds one
cluster per bin. Clusters of tiles with very many slices are computed once, so that no tile costs more than some thousand
slices, however large the capture is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Array = npt.NDArray[Any]

BINS = 512
TILE_BITS = 9
EXACT = 1024  # slices that a tile may hold one by one
HEAVY = 4096  # slices in a tile from which its clusters are computed beforehand
MAX_LEVEL = 62 - TILE_BITS

CLUSTER = {
    "bin": "<i8", "start": "<i8", "end": "<i8", "busy": "<i8", "longest": "<i8", "id": "<i8", "count": "<i8",
}  # fmt: skip


@dataclass(frozen=True)
class Clusters:
    """Parallel columns: one entry per bin that has slices."""

    bin: Ints
    start: Ints  # of the first slice
    end: Ints  # of the last slice
    busy: Ints  # sum of lengths
    longest: Ints  # length of the longest slice
    id: Ints  # of that slice
    count: Ints

    def columns(self) -> dict[str, Ints]:
        return {name: getattr(self, name) for name in CLUSTER}

    def part(self, chosen: Any) -> Clusters:
        return Clusters(**{name: column[chosen] for name, column in self.columns().items()})


def clusters(start: Ints, end: Ints, first_id: int, level: int) -> Clusters:
    """The slices of a stretch of one row by bin; `first_id` is the id of the first of them."""
    return _grouped(
        Clusters(
            start >> level, start, end, end - start, end - start, np.arange(first_id, first_id + len(start)),
            np.ones(len(start), dtype=np.int64),
        )
    )  # fmt: skip


def coarser(finer: Clusters) -> Clusters:
    """The clusters of the next level."""
    return _grouped(Clusters(**{**finer.columns(), "bin": finer.bin >> 1}))


def _grouped(parts: Clusters) -> Clusters:
    """Join neighbours of one bin; slices of a row do not overlap, so the last to start is the last to end."""
    if not parts.bin.size:
        return parts
    first = np.flatnonzero(np.concatenate(([True], parts.bin[1:] != parts.bin[:-1])))
    if first.size == parts.bin.size:
        return parts
    last = np.append(first[1:], parts.bin.size) - 1
    longest = np.maximum.reduceat(parts.longest, first)
    # The first entry that is as long as the longest of its bin.
    is_longest = np.flatnonzero(parts.longest == np.repeat(longest, last - first + 1))
    chosen = is_longest[np.searchsorted(is_longest, first)]
    return Clusters(
        parts.bin[first], parts.start[first], parts.end[last], np.add.reduceat(parts.busy, first), longest,
        parts.id[chosen], np.add.reduceat(parts.count, first),
    )  # fmt: skip


def prepared(start: Ints, end: Ints, first_id: int) -> dict[int, Clusters]:
    """Clusters of all tiles of a row with more than `HEAVY` slices, by level."""
    levels: dict[int, Clusters] = {}
    working: Clusters | None = None
    for level in range(_first_heavy(start), MAX_LEVEL + 1):
        working = clusters(start, end, first_id, level) if working is None else coarser(working)
        tile = working.bin >> TILE_BITS
        edges = np.flatnonzero(np.concatenate(([True], tile[1:] != tile[:-1])))
        slices = np.add.reduceat(working.count, edges)
        heavy = np.repeat(slices > HEAVY, np.diff(np.append(edges, tile.size)))
        levels[level] = working if heavy.all() else working.part(heavy)
        if tile[-1] == 0:
            break
    return levels


def _first_heavy(start: Ints) -> int:
    """The first level at which some tile has more than `HEAVY` slices; beyond the last when none ever has."""
    if len(start) <= HEAVY:
        return MAX_LEVEL + 1
    # More than HEAVY slices start in one tile exactly when two slices HEAVY places apart do.
    low, high = 0, MAX_LEVEL + 1
    while low < high:
        middle = (low + high) // 2
        shift = middle + TILE_BITS
        if ((start[HEAVY:] >> shift) == (start[:-HEAVY] >> shift)).any():
            high = middle
        else:
            low = middle + 1
    return low


def tile(
    start: Ints, end: Ints, name: Array, first_id: int, prepared_levels: Mapping[int, Clusters], level: int, index: int
) -> dict[str, Array]:
    """One tile of a row as columns; see docs/http_api.md.

    Args:
        start: starts of the row's slices, ns since the begin of the capture, sorted.
        end: their ends.
        name: their name ids.
        first_id: id of the first of them.
        prepared_levels: `prepared` of the row.
        level: of the bins.
        index: of the tile.
    """
    width = BINS << level
    left, right = index * width, (index + 1) * width
    low, high = (int(place) for place in np.searchsorted(start, (left, right)))
    reaching = low > 0 and end[low - 1] > left
    if high - low <= EXACT:
        low -= reaching
        return _columns(
            start[low:high], (end[low:high] - start[low:high]), name[low:high], np.arange(first_id + low, first_id + high),
            np.ones(high - low, dtype="<u4"), np.ones(high - low, dtype="<f4"),
        )  # fmt: skip
    if high - low > HEAVY and level in prepared_levels:
        ready = prepared_levels[level]
        shown = ready.part(slice(*np.searchsorted(ready.bin, (index << TILE_BITS, (index + 1) << TILE_BITS))))
    else:
        shown = clusters(start[low:high], end[low:high], first_id + low, level)
    length = shown.end - shown.start
    share = np.where(length > 0, shown.busy / np.maximum(length, 1), 1.0)
    columns = _columns(shown.start, length, name[shown.id - first_id], shown.id, shown.count, share)
    if not reaching:
        return columns
    one = low - 1
    outer = _columns(
        start[one:low], end[one:low] - start[one:low], name[one:low], np.array([first_id + one]), np.ones(1), np.ones(1)
    )
    return {key: np.concatenate((outer[key], columns[key])) for key in columns}


def _columns(start: Array, length: Array, name: Array, number: Array, count: Array, busy: Array) -> dict[str, Array]:
    return {
        "start": start.astype("<f8"), "dur": length.astype("<f8"), "name": name.astype("<u4"), "id": number.astype("<u8"),
        "count": count.astype("<u4"), "busy": busy.astype("<f4"),
    }  # fmt: skip
