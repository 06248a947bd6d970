# SPDX-License-Identifier: Apache-2.0
"""Text that lies somewhere in a file as a polars column, without copying it: Arrow views into the mapped bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from stepscope.formats.framework.tlv import Bytes, Offsets, take
from stepscope.render.arrow import to_series

_INLINE = 12  # a view holds texts up to this length itself
_STEP = 1 << 30  # views have 32-bit offsets: buffers of 2 GiB begin at every GiB, so each text of up to 1 GiB is whole in one
_U8, _U4 = np.dtype("<u8"), np.dtype("<u4")
_FIRST = np.dtype([("head", _U8), ("rest", _U4)])
VIEW = np.dtype([("length", "<i4"), *_FIRST.descr])
_HEAD_MASK = np.array([(1 << 8 * min(length, 8)) - 1 for length in range(_INLINE + 1)], _U8)
_REST_MASK = np.array([(1 << 8 * max(length - 8, 0)) - 1 for length in range(_INLINE + 1)], _U4)


def text_column(data: Bytes, offsets: Offsets, lengths: Offsets) -> tuple[pl.Series, int]:
    """Texts at the offsets; null where the length is negative. Also the number of texts lost: not UTF-8, or over 1 GiB."""
    present = (lengths >= 0) & (lengths <= _STEP)
    count = lengths.size
    if not present.any():
        return pl.Series([None], dtype=pl.String).new_from_index(0, count), int((lengths > _STEP).sum())
    views = _views(data, offsets, np.where(present, lengths, 0))
    text = _checked(data, views, present)
    return text, text.null_count() - count + int((lengths >= 0).sum())


def column_of_views(data: Bytes, views: NDArray[Any], present: NDArray[np.uint8], met: int, shown: int) -> tuple[pl.Series, int]:
    """Texts that have their views already, where `present` is 1: `shown` of the `met` ones. Also the number of texts lost."""
    count = views.size
    text = _checked(data, views, present == 1) if shown else pl.Series([None], dtype=pl.String).new_from_index(0, count)
    return text, text.null_count() - count + met


def _checked(data: Bytes, views: NDArray[Any], present: NDArray[np.bool_]) -> pl.Series:
    """The texts that are UTF-8."""
    buffers = [pa.py_buffer(data[start : start + 2 * _STEP - 1]) for start in range(0, data.size, _STEP)]
    column = _binary(views, buffers, present)
    try:
        text: pl.Series = column.cast(pl.String)
    except pl.exceptions.ComputeError:
        # The cast refuses the whole column for one bad text. Damage is rare, so texts are checked one by one only then.
        good = present & np.fromiter((value is None or _is_text(value) for value in column), bool, views.size)
        text = _binary(np.where(good, views, np.zeros(1, VIEW)), buffers, good).cast(pl.String)
    return text


def _binary(views: NDArray[Any], buffers: list[Any], present: NDArray[np.bool_]) -> pl.Series:
    """The bytes as a column; the view of an absent row is empty: what it points at would still be checked."""
    validity = None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))
    return to_series("", pa.Array.from_buffers(pa.binary_view(), views.size, [validity, pa.py_buffer(views), *buffers]))


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _views(data: Bytes, offsets: Offsets, lengths: Offsets) -> NDArray[Any]:
    views = np.empty(lengths.size, VIEW)
    views["length"] = lengths
    # The last bytes of the file are read from a padded copy, so that twelve can be read everywhere.
    near_end = np.flatnonzero(offsets > data.size - _INLINE)
    safe = offsets.copy()
    safe[near_end] = 0
    first = take(data, _FIRST, safe) if data.size >= _INLINE else np.zeros(offsets.size, _FIRST)
    tail_start = max(data.size - _INLINE, 0)
    tail = np.concatenate([data[tail_start:], np.zeros(_INLINE, np.uint8)])
    first[near_end] = take(tail, _FIRST, offsets[near_end] - tail_start)
    long, inside = lengths > _INLINE, np.minimum(lengths, _INLINE)
    # Of a long text the view holds four bytes, then buffer and offset: two 32-bit numbers that share `head` and `rest`.
    place = first["head"] & 0xFFFFFFFF | (offsets // _STEP).astype(_U8) << 32
    views["head"] = np.where(long, place, first["head"] & _HEAD_MASK[inside])
    views["rest"] = np.where(long, offsets % _STEP, first["rest"] & _REST_MASK[inside])
    return views
