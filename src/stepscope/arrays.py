# SPDX-License-Identifier: Apache-2.0
"""Columns of numbers as arrays, nulls apart, without a query: on a small capture each query costs more than its rows."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

_FLOATS = {"float": "float32", "double": "float64"}  # as Arrow calls them
_FEW_SLOTS = 1 << 16


def is_null(column: pl.Series) -> npt.NDArray[np.bool_]:
    """Which rows of a column of numbers are null."""
    if not column.null_count():
        return np.zeros(len(column), np.bool_)
    if "pyarrow" not in sys.modules:  # loading it takes longer than a few queries
        return column.is_null().to_numpy()
    array = column.to_arrow()
    bits = np.frombuffer(array.buffers()[0], np.uint8)
    first = array.offset >> 3
    bits = bits[first : (array.offset + len(array) + 7) >> 3]
    nulls: npt.NDArray[np.bool_] = np.unpackbits(bits, bitorder="little")[array.offset & 7 :][: len(array)] == 0
    return nulls


def filled(column: pl.Series, value: float = 0) -> npt.NDArray[Any]:
    """The values of a column of numbers, with `value` for null; not to be written to."""
    if not column.null_count():
        return column.to_numpy()
    if "pyarrow" not in sys.modules:
        return column.fill_null(value).to_numpy()
    array = column.to_arrow()
    kind = np.dtype(_FLOATS.get(str(array.type), str(array.type)))
    values = np.frombuffer(array.buffers()[1], kind, len(array), array.offset * kind.itemsize)
    return np.where(is_null(column), kind.type(value), values)


def with_nulls(column: pl.Series, nulls: npt.NDArray[np.bool_]) -> pl.Series:
    """The column with null in the marked rows."""
    return column.set(pl.Series(nulls), None) if nulls.any() else column


def distinct(column: pl.Series) -> set[int]:
    """The different numbers of a column, without null; most columns of a capture hold one."""
    least = column.min()
    if least is None or least == column.max():
        return set() if least is None else {int(least)}  # type: ignore[arg-type]
    return set(column.drop_nulls().unique().to_list())


def unique_inverse(numbers: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The different ones of numbers that are not negative, rising, and which of them each number is."""
    largest = int(numbers.max(initial=0))
    if largest > _FEW_SLOTS + 4 * numbers.size:
        different, place = np.unique(numbers, return_inverse=True)
        return different, place.astype(np.int64)
    # To have a slot for each number takes a tenth of the time of sorting them.
    there = np.zeros(largest + 1, np.bool_)
    there[numbers] = True
    return np.flatnonzero(there), (np.cumsum(there) - 1)[numbers]
