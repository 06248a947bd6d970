"""Columns as arrays: nulls of sliced columns, every number type, and what holds one value."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from stepscope.arrays import distinct, filled, is_null, unique_inverse, with_nulls

TYPES = [pl.Int8, pl.UInt16, pl.Int32, pl.UInt32, pl.Int64, pl.UInt64, pl.Float32, pl.Float64]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("skip", [0, 1, 7, 8, 13])
def test_nulls_of_a_slice(dtype, skip):
    column = pl.Series([None if n % 3 == 0 else n for n in range(40)], dtype=dtype)[skip:37]
    assert is_null(column).tolist() == [value is None for value in column.to_list()]
    assert filled(column, 1).tolist() == [1 if value is None else value for value in column.to_list()]


@pytest.mark.parametrize("values", [[], [1, 2], [None, None]])
def test_without_and_with_nothing_but_nulls(values):
    column = pl.Series(values, dtype=pl.Int64)
    assert is_null(column).tolist() == [value is None for value in values]
    assert filled(column, -1).tolist() == [-1 if value is None else value for value in values]
    assert distinct(column) == set(values) - {None}


def test_columns_of_several_chunks():
    column = pl.concat([pl.Series([1, None]), pl.Series([None, 4])], rechunk=False)
    assert filled(column).tolist() == [1, 0, 0, 4]
    assert distinct(column) == {1, 4}


def test_rows_become_null():
    column = pl.Series("rows", [5, 6, 7])
    assert with_nulls(column, np.array([False, True, False])).to_list() == [5, None, 7]
    assert with_nulls(column, np.zeros(3, bool)) is column


@pytest.mark.parametrize("numbers", [[], [0], [5, 0, 5, 3], [70_000, 2, 70_000], [1 << 60, 7, 0, 7]])
def test_different_numbers_and_where_each_of_them_is(numbers):
    different, place = unique_inverse(np.array(numbers, np.int64))
    assert different.tolist() == sorted(set(numbers))
    assert different[place].tolist() == numbers
