# SPDX-License-Identifier: Apache-2.0
"""Framework records to columns by the C++ kernel: one pass over the bytes for all numbers and texts of a file.

Finds the same as `tlv` and `text_views`, which do it where there is no kernel.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from stepscope.formats.framework.layouts import HEADER, Layout
from stepscope.formats.framework.text_views import VIEW, column_of_views
from stepscope.formats.framework.tlv import Bytes, Offsets
from stepscope.native.codec import codec
from stepscope.render.arrow import to_series

_TYPES = {"i8": pa.int64(), "u8": pa.uint64(), "i1": pa.int8(), "u1": pa.uint8()}


class _Number(ctypes.Structure):
    """As in native/codec/records.cpp, like `_Text`."""

    _fields_ = (("offset", ctypes.c_int32), ("width", ctypes.c_int32), ("values", ctypes.c_void_p))


class _Text(ctypes.Structure):
    _fields_ = (
        ("field", ctypes.c_int32),
        ("first_place", ctypes.c_int32),
        ("views", ctypes.c_void_p),
        ("present", ctypes.c_void_p),
        ("met", ctypes.c_int64),
        ("shown", ctypes.c_int64),
    )


@dataclass(frozen=True)
class Columns:
    numbers: dict[str, pl.Series]
    texts: dict[str, tuple[pl.Series, int]]  # with the number of texts lost, in the order in which the fields were met
    torn: NDArray[np.bool_]


def find_records(data: Bytes, shortest: int) -> Offsets | None:
    """Where whole records start; None when the kernel is not there or the records are shorter than they should be."""
    functions = codec()
    if functions is None:
        return None
    functions.find_records.restype = ctypes.c_int64
    most = data.size // (HEADER.itemsize + shortest) + 1
    starts = np.empty(most, np.int64)
    count = functions.find_records(_address(data), ctypes.c_int64(data.size), _address(starts), ctypes.c_int64(most))
    return starts[:count] if count >= 0 else None


def read_columns(data: Bytes, layout: Layout, offsets: Offsets | int, lengths: Offsets | None = None) -> Columns | None:
    """The columns of a layout; None when the kernel is not there.

    Args:
        data: the file.
        layout: of its records.
        offsets: where their payloads begin, or the number of records that lie end to end.
        lengths: of the payloads.
    """
    functions = codec()
    if functions is None:
        return None
    functions.read_records.restype = ctypes.c_int64
    places: Mapping[str, Any] = layout.fixed.fields or {}
    rows = offsets if isinstance(offsets, int) else offsets.size
    values = {name: np.empty(rows, place[0]) for name, place in places.items()}
    numbers = (_Number * len(values))()
    for number, (name, array) in zip(numbers, values.items(), strict=True):
        number.offset, number.width, number.values = places[name][1], array.itemsize, array.ctypes.data
    views = {field: (np.zeros(rows, VIEW), np.zeros(rows, np.uint8)) for field in layout.texts}
    texts = (_Text * len(views))()
    for text, (field, (shown, present)) in zip(texts, views.items(), strict=True):
        text.field, text.first_place, text.views, text.present = field, -1, shown.ctypes.data, present.ctypes.data
    torn = np.zeros(rows if views else 0, np.bool_)
    done = functions.read_records(
        _address(data),
        ctypes.c_int64(data.size),
        None if isinstance(offsets, int) else _address(np.ascontiguousarray(offsets)),
        None if lengths is None else _address(np.ascontiguousarray(lengths)),
        ctypes.c_int64(layout.fixed.itemsize),
        ctypes.c_int64(rows),
        ctypes.c_int64(layout.fixed.itemsize),
        numbers,
        ctypes.c_int32(len(values)),
        texts,
        ctypes.c_int32(len(views)),
        _address(torn),
    )
    if done != rows:
        return None
    met = sorted((text for text in texts if text.met), key=lambda text: text.first_place)
    return Columns(
        {name: _series(name, array) for name, array in values.items()},
        {layout.texts[text.field]: column_of_views(data, *views[text.field], text.met, text.shown) for text in met},
        torn,
    )


def _series(name: str, values: NDArray[Any]) -> pl.Series:
    """The numbers as a column, without a copy."""
    kind = _TYPES[f"{values.dtype.kind}{values.itemsize}"]
    return to_series(name, pa.Array.from_buffers(kind, values.size, [None, pa.py_buffer(values)]))


def _address(values: NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(values.ctypes.data)
