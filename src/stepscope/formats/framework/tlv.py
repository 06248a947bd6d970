# SPDX-License-Identifier: Apache-2.0
"""Where the records of a TLV file and their inner fields are: offsets only, no bytes are copied.

record = type:u16 length:u32 payload        payload = fixed struct, then fields
field  = type:u16 length:u32 text           (docs/formats/framework.md 3.1)
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepscope.formats.framework.layouts import HEADER

Bytes = NDArray[np.uint8]
Offsets = NDArray[np.int64]

_HEAD = HEADER.itemsize
_U2, _U4 = np.dtype("<u2"), np.dtype("<u4")
_LANES = 1024
_SYNC_WINDOW = 2048
_SYNC_HOPS = 3
_TRIES = 3
_FIELD_ROUNDS = 32


def take(data: Bytes, dtype: np.dtype[Any], offsets: Offsets) -> NDArray[Any]:
    """Values of `dtype` at any byte offsets; each must lie inside the data."""
    count = max(data.size - dtype.itemsize + 1, 0)
    # Gathering opaque bytes is twice as fast as gathering a struct field by field.
    gathered = np.dtype((np.void, dtype.itemsize)) if dtype.names else dtype
    # An overlapping view with a stride of one byte: one gather instead of one per byte of the value.
    everywhere: NDArray[Any] = np.ndarray((count,), gathered, data.data, strides=(1,)) if count else np.empty(0, gathered)
    values: NDArray[Any] = everywhere[offsets].view(dtype)
    return values


def take_structs(data: Bytes, dtype: np.dtype[Any], offsets: Offsets) -> NDArray[Any]:
    """Whole structs at byte offsets; those at even distances are not copied."""
    step = int(offsets[1] - offsets[0]) if offsets.size > 1 else 0
    if step and offsets[-1] == offsets[0] + step * (offsets.size - 1) and (np.diff(offsets) == step).all():
        structs: NDArray[Any] = np.ndarray((offsets.size,), dtype, data.data, int(offsets[0]), (step,))
        return structs
    return take(data, dtype, offsets)


@dataclass(frozen=True)
class Outer:
    """Payloads of whole records, and where the walk stopped (the size of the file when nothing was torn)."""

    offsets: Offsets
    lengths: Offsets
    stopped: int


def records(data: Bytes, shortest: int, find: Callable[[Bytes, int], Offsets | None] = lambda data, shortest: None) -> Outer:
    """Find the records by following their lengths from the start; payloads are expected to have `shortest` bytes at least.

    `find` may know their starts faster.
    """
    starts = _all_alike(data)
    if starts is None:
        starts = find(data, shortest)
    if starts is None and data.size >= _LANES * _SYNC_WINDOW:
        starts = _in_lanes(data, shortest)
    if starts is None:
        starts = _one_by_one(data)
    lengths = take(data, _U4, starts + 2).astype(np.int64)
    stopped = int(starts[-1] + _HEAD + lengths[-1]) if starts.size else 0
    return Outer(starts + _HEAD, lengths, stopped)


def _all_alike(data: Bytes) -> Offsets | None:
    """Starts of the records when all have the length of the first one."""
    if data.size < _HEAD:
        return None
    length = take(data, _U4, np.array([2]))[0]
    step = _HEAD + int(length)
    count = data.size // step
    if count * step != data.size or (np.ndarray((count,), _U4, data.data, 2, (step,)) != length).any():
        return None
    return np.arange(count, dtype=np.int64) * step


def _one_by_one(data: Bytes) -> Offsets:
    starts: list[int] = []
    found, length_at, view, size, position = starts.append, struct.Struct("<I").unpack_from, data.data, data.size, 0
    while position + _HEAD <= size:
        following = position + _HEAD + length_at(view, position + 2)[0]
        if following > size:
            break
        found(position)
        position = following
    return np.array(starts, dtype=np.int64)


def _in_lanes(data: Bytes, shortest: int, lanes: int = _LANES) -> Offsets | None:
    """The same as one by one, but walking from many guessed places at once.

    A guess is right when the walk from the guess before arrives exactly there, so the result is exact;
    None when the walk does not fit together (damage, a torn tail) and the slow way has to decide.
    """
    begins = _guesses(data, shortest, lanes)
    for _ in range(_TRIES):
        found, arrived = _walk(data, begins)
        wrong = arrived != np.append(begins[1:], data.size)
        if not wrong.any():
            return np.sort(np.concatenate(found))
        begins = begins[np.append(True, ~wrong[:-1])]
    return None


def _walk(data: Bytes, begins: Offsets) -> tuple[list[Offsets], Offsets]:
    """Record starts met on the way from each place to the next one, and where each walk ended."""
    ends = np.append(begins[1:], data.size)
    here, limit, lane = begins, np.minimum(ends, data.size - _HEAD + 1), np.arange(begins.size)
    arrived, found = begins.copy(), []
    while lane.size:
        found.append(here)
        here = here + _HEAD + take(data, _U4, here + 2)
        arrived[lane] = here
        going = here < limit
        if not going.all():
            here, limit, lane = here[going], limit[going], lane[going]
    return found, arrived


def _guesses(data: Bytes, shortest: int, lanes: int) -> Offsets:
    """Places that look like the start of a record, one per lane where there is one; the first is the file's start."""
    wanted = take(data, _U2, np.zeros(1, np.int64))[0]
    lane_size = data.size // lanes
    window = min(lane_size, _SYNC_WINDOW)
    kinds = np.ndarray((data.size - 1,), _U2, data.data, strides=(1,))
    rows = np.lib.stride_tricks.as_strided(kinds, ((kinds.size - window) // lane_size + 1, window), (lane_size, 1))
    lane, column = np.nonzero(rows == wanted)
    place = (lane * lane_size + column).astype(np.int64)
    ahead, good = place.copy(), np.ones(place.size, bool)
    for _ in range(_SYNC_HOPS):
        good &= ahead + _HEAD <= data.size
        ahead = np.where(good, ahead, 0)
        header = take(data, HEADER, ahead)
        good &= (header["type"] == wanted) & (header["length"] >= shortest)
        ahead = ahead + _HEAD + header["length"]
    place, lane = place[good], lane[good]
    first_of_lane = np.unique(lane, return_index=True)[1]
    return np.unique(np.append(place[first_of_lane], 0))


@dataclass(frozen=True)
class Fields:
    """Offset and length of the text of each id that occurs, per record; a length of -1 means absent in that record."""

    offsets: dict[int, Offsets]
    lengths: dict[int, Offsets]
    torn: NDArray[np.bool_]  # records with a field that runs past their end

    def put(self, field: int, rows: NDArray[Any] | int, offset: Any, length: Any) -> None:
        if isinstance(rows, np.ndarray) and rows.size == self.torn.size:
            self.offsets[field], self.lengths[field] = offset, length
            return
        if field not in self.offsets:
            self.offsets[field] = np.zeros(self.torn.size, np.int64)
            self.lengths[field] = np.full(self.torn.size, -1, np.int64)
        self.offsets[field][rows] = offset
        self.lengths[field][rows] = length


def fields(data: Bytes, begins: Offsets, ends: Offsets, wanted: Collection[int]) -> Fields:
    """Find inner fields by position (first field of all records, then the second …); a repeated id keeps the last."""
    found = Fields({}, {}, np.zeros(begins.size, bool))
    record, position, stop = np.arange(begins.size), begins, ends
    for _ in range(_FIELD_ROUNDS):
        going = position + _HEAD <= stop
        if not going.all():
            found.torn[record[~going & (position < stop)]] = True
            record, position, stop = record[going], position[going], stop[going]
        if not record.size:
            return found
        header = take(data, HEADER, position)
        value, length, kinds = position + _HEAD, header["length"].astype(np.int64), header["type"]
        position = value + length
        whole = position <= stop
        if not whole.all():
            found.torn[record[~whole]] = True
            kinds = np.where(whole, kinds, 0)
            position = np.where(whole, position, stop)
        seen = np.bincount(kinds, minlength=max(wanted) + 1)
        for field in wanted:
            if seen[field] == kinds.size:
                found.put(field, record, value, length)
            elif seen[field]:
                hit = np.flatnonzero(kinds == field)
                found.put(field, record[hit], value[hit], length[hit])
    # Real records have at most nine fields; what is left are damaged ones with very many of them.
    for row, start, end in zip(record.tolist(), position.tolist(), stop.tolist(), strict=True):
        _rest_of(data, start, end, row, found, wanted)
    return found


def _rest_of(data: Bytes, position: int, end: int, row: int, found: Fields, wanted: Collection[int]) -> None:
    unpack, view = struct.Struct("<HI").unpack_from, data.data
    while position + _HEAD <= end:
        kind, length = unpack(view, position)
        position += _HEAD
        if position + length > end:
            break
        if kind in wanted:
            found.put(kind, row, position, length)
        position += length
    if position < end:
        found.torn[row] = True
