# SPDX-License-Identifier: Apache-2.0
"""Events of a trace by the C++ kernel: typed columns in one pass, texts as views of the bytes that were read.

The kernel refuses a stretch that it does not read exactly as the general parser would; the caller then parses that stretch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from stepscope.native.codec import codec
from stepscope.render.arrow import to_series

# The kinds and the layout of native/codec/events.cpp.
_TEXT, _INTEGER, _FLOAT, _BOOLEAN, _TIME, _LENGTH, _NUMBER_OR_TEXT = range(7)
_TEXT_FIELDS = ("ph", "name", "cat", "id", "bp", "s")
_TYPES = {_INTEGER: pa.int64(), _NUMBER_OR_TEXT: pa.int64(), _TIME: pa.int64(), _FLOAT: pa.float64(), _LENGTH: pa.float64()}
_BYTES = {_TEXT: 16, _BOOLEAN: 1}
_LINE_END, _NOT_ASCII = ord("\n"), 0x80


class _Column(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_int32),
        ("other", ctypes.c_int32),
        ("uses_source", ctypes.c_int32),
        ("uses_decoded", ctypes.c_int32),
        ("values", ctypes.c_void_p),
        ("present", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("last_row", ctypes.c_int64),
    )


class EventKernel:
    """Reads stretches of events with the same wanted arguments."""

    def __init__(self, functions: ctypes.CDLL, args: Mapping[str, pl.DataType], absent: Mapping[str, pl.Expr]):
        self._functions, self._absent = functions, absent
        functions.read_events.restype = functions.most_events.restype = functions.keys_size.restype = ctypes.c_int64
        self._columns: list[tuple[str, int, pl.DataType | None]] = [(name, _TEXT, None) for name in _TEXT_FIELDS]
        self._columns += [("pid", _NUMBER_OR_TEXT, None), ("tid", _NUMBER_OR_TEXT, None)]
        self._columns += [("pid_text", _TEXT, None), ("tid_text", _TEXT, None), ("ts_ns", _TIME, None), ("dur_ns", _LENGTH, None)]
        self._texts: list[bytes] = []  # the kernel points to the keys
        self._fields, self._args = self._keys(), self._keys()
        for number, (name, _, _) in enumerate(self._columns):
            if not name.endswith("_text"):
                self._add(self._fields, name.removesuffix("_ns"), number)
        for key, dtype in args.items():
            kind = (
                _TEXT if dtype == pl.String() else _BOOLEAN if dtype == pl.Boolean() else _INTEGER if dtype.is_integer() else _FLOAT
            )
            self._add(self._args, key, len(self._columns))
            self._columns.append((f"args.{key}", kind, dtype))
        self._template = (_Column * len(self._columns))()
        for column, (name, kind, _) in zip(self._template, self._columns, strict=True):
            column.kind, column.last_row = kind, -1
            column.other = {"pid": 8, "tid": 9}.get(name, 0)

    def read(self, text: bytes | memoryview, *, by_lines: bool = False) -> tuple[pl.DataFrame, dict[str, int]] | None:
        """The events and how many have a text for `ts` and `dur`; None when the stretch is left to the parser.

        Args:
            text: JSON objects with commas between them.
            by_lines: each stands on a line of its own instead.
        """
        codes = np.frombuffer(text, np.uint8)
        if not _is_text(codes):
            return None
        place = ctypes.c_void_p(codes.ctypes.data)
        most = self._functions.most_events(place, ctypes.c_int64(len(text)))
        columns = (_Column * len(self._columns)).from_buffer_copy(self._template)
        decoded, decoded_size = ctypes.c_void_p(), ctypes.c_int64()
        height = self._functions.read_events(
            place,
            ctypes.c_int64(len(text)),
            self._fields,
            self._args,
            columns,
            ctypes.c_int64(most),
            ctypes.c_int32(by_lines),
            ctypes.byref(decoded),
            ctypes.byref(decoded_size),
        )
        # Everything that the kernel allocated has an owner from here on.
        extra = self._buffer(decoded.value, decoded_size.value)
        owned = [self._owned(column, kind, max(height, 0)) for column, (_, kind, _) in zip(columns, self._columns, strict=True)]
        if height < 1 or (by_lines and int(np.count_nonzero(codes == _LINE_END)) + 1 != height):
            return None
        found = zip(columns, owned, self._columns, strict=True)
        series = [_series(column, *buffers, height, text, extra, described) for column, buffers, described in found if buffers]
        names = {item.name for item in series}
        counts = {name: int(columns[at].count) for name, at in (("ts", 10), ("dur", 11))}
        return pl.DataFrame(series).select(name if name in names else null for name, null in self._absent.items()), counts

    def _keys(self) -> Any:
        keys = ctypes.create_string_buffer(self._functions.keys_size())
        self._functions.clear_keys(keys)
        return keys

    def _add(self, keys: Any, key: str, column: int) -> None:
        text = key.encode()
        self._texts.append(text)
        if not self._functions.add_key(keys, text, ctypes.c_int64(len(text)), ctypes.c_int32(column)):
            raise ValueError(f"too many keys: {key}")

    def _owned(self, column: _Column, kind: int, height: int) -> tuple[Any, Any] | None:
        if not column.values and not column.present:
            return None
        return self._buffer(column.values, height * _BYTES.get(kind, 8)), self._buffer(column.present, height)

    def _buffer(self, address: int | None, size: int) -> Any:
        """Memory of the kernel, given back when nobody uses it any more."""
        return pa.foreign_buffer(address, size, _Allocation(self._functions, address)) if address else pa.py_buffer(b"")


def event_kernel(args: Mapping[str, pl.DataType], absent: Mapping[str, pl.Expr]) -> EventKernel | None:
    """The kernel for these arguments; None where it is not available or the arguments are not its own."""
    functions = codec()
    odd = any(key == "*" or (dtype.is_float() and dtype != pl.Float64()) for key, dtype in args.items())
    return None if functions is None or odd else EventKernel(functions, args, absent)


class _Allocation:
    def __init__(self, functions: ctypes.CDLL, address: int):
        self._release, self._address = functions.release, ctypes.c_void_p(address)

    def __del__(self) -> None:
        self._release(self._address)


def _is_text(codes: NDArray[np.uint8]) -> bool:
    if codes.max(initial=0) < _NOT_ASCII:
        return True
    try:
        codes.tobytes().decode()
    except UnicodeDecodeError:
        return False
    return True


def _series(
    column: _Column,
    values: Any,
    present: Any,
    height: int,
    text: bytes | memoryview,
    extra: Any,
    described: tuple[str, int, pl.DataType | None],
) -> pl.Series:
    name, kind, dtype = described
    valid = None
    if column.count < height:
        valid = pa.py_buffer(np.packbits(np.frombuffer(present, np.uint8), bitorder="little"))
    if kind == _TEXT:
        buffers = [valid, values]
        if column.uses_source or column.uses_decoded:
            # A column of short texts must not keep the bytes in memory.
            buffers.append(pa.py_buffer(text if column.uses_source else b""))
        if column.uses_decoded:
            buffers.append(extra)
        return to_series(name, pa.Array.from_buffers(pa.string_view(), height, buffers))
    if kind == _BOOLEAN:
        bits = pa.py_buffer(np.packbits(np.frombuffer(values, np.uint8), bitorder="little"))
        return to_series(name, pa.Array.from_buffers(pa.bool_(), height, [valid, bits]))
    series = to_series(name, pa.Array.from_buffers(_TYPES[kind], height, [valid, values]))
    return series if dtype is None or series.dtype == dtype else series.cast(dtype, strict=False)
