# SPDX-License-Identifier: Apache-2.0
"""Columns of numbers as arrays, nulls apart, without a query: on a small capture each query costs more than its rows."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

_FLOATS = {"float": "float32", "double": "float64"}  # as Arrow calls them


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
