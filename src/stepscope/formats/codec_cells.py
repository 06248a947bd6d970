# SPDX-License-Identifier: Apache-2.0
"""Columns of a csv file by the C++ kernel, in one pass over its bytes.

Finds the same as the columnar engine, which reads what the kernel has no exact form for, and all files where there is no kernel.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from stepscope.native.codec import codec
from stepscope.render.arrow import to_series
from stepscope.tables import TEXT

_TEXT, _COUNT, _NUMBER, _TIME = range(4)
_KINDS: Mapping[str, int] = {"text": _TEXT, "shapes": _TEXT, "count": _COUNT, "number": _NUMBER, "time": _TIME}
_VALUES = {_COUNT: (np.int64, pa.int64()), _NUMBER: (np.float64, pa.float64()), _TIME: (np.int64, pa.int64())}


class _Column(ctypes.Structure):
    """As in native/codec/cells.cpp."""

    _fields_ = (
        ("index", ctypes.c_int32),
        ("kind", ctypes.c_int32),
        ("values", ctypes.c_void_p),
        ("present", ctypes.c_void_p),
        ("texts", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("missing", ctypes.c_int64),
    )


def read_lines(lines: bytes, width: int, wanted: Sequence[tuple[int, str]]) -> list[pl.Series] | None:
    """The wanted columns, times in nanoseconds; None where the columnar engine is to read the lines.

    Args:
        lines: whole lines of a file, without its header.
        width: cells of a line.
        wanted: which cells of a line, and as what kind of column.
    """
    functions = codec()
    if functions is None or not wanted:
        return None
    functions.read_lines.restype = ctypes.c_int64
    rows = lines.count(b"\n") + (not lines.endswith(b"\n"))
    # A line has a byte after each cell, the last one of a file perhaps one less: there is no room for rows that nobody can read.
    if rows * width > len(lines) + 1:
        return None
    columns = (_Column * len(wanted))()
    kept = []  # what the columns point to
    for column, (index, kind) in zip(columns, wanted, strict=True):
        column.index, column.kind = index, _KINDS[kind]
        is_text = column.kind == _TEXT
        values = np.empty(rows, np.uint32 if is_text else _VALUES[column.kind][0])
        present, texts = np.empty(rows, np.uint8), np.empty(2 * rows if is_text else 0, np.int64)
        column.values, column.present, column.texts = (array.ctypes.data for array in (values, present, texts))
        kept.append((values, present, texts))
    done = functions.read_lines(
        lines,
        ctypes.c_int64(len(lines)),
        ctypes.c_int32(width),
        columns,
        ctypes.c_int32(len(columns)),
        ctypes.c_int64(rows),
    )
    if done != rows:
        return None
    try:
        return [_series(lines, column, *arrays) for column, arrays in zip(columns, kept, strict=True)]
    except UnicodeDecodeError:
        return None


def _series(lines: bytes, column: _Column, values: NDArray[Any], present: NDArray[np.uint8], texts: NDArray[np.int64]) -> pl.Series:
    valid = pa.py_buffer(np.packbits(present, bitorder="little")) if column.missing else None
    if column.kind != _TEXT:
        return to_series("", pa.Array.from_buffers(_VALUES[column.kind][1], values.size, [valid, pa.py_buffer(values)]))
    rows = to_series("", pa.Array.from_buffers(pa.uint32(), values.size, [valid, pa.py_buffer(values)]))
    different = texts[: 2 * column.count].reshape(-1, 2).tolist()
    known = pl.Series([_cell(lines[begin : begin + length]) for begin, length in different], dtype=pl.String)
    found: pl.Series = known.cast(TEXT).gather(rows)
    return found


def _cell(text: bytes) -> str:
    """The cell without the quotes around it."""
    shown = text.decode()
    return shown[1:-1].replace('""', '"') if shown.startswith('"') else shown
