"""Rows of one thread, and what began last there."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from stepscope.analysis.link.groups import group_numbers, last_started, rows_by_group


def test_equal_values_have_equal_numbers_in_all_frames():
    one = pl.DataFrame({"pid": [7, 7, 8, None], "name": pl.Series(["a", "b", "a", None], dtype=pl.Categorical)})
    other = pl.DataFrame({"pid": [8, None, 9], "name": pl.Series(["a", None, None], dtype=pl.Categorical)})
    first, second = (numbers.tolist() for numbers in group_numbers([one, other], ["pid", "name"]))
    assert len({*first, *second}) == 5
    assert second[:2] == first[2:]


def test_many_columns_with_many_values_stay_small():
    values = np.arange(5000)
    frame = pl.DataFrame({f"c{column}": values for column in range(6)})
    (numbers,) = group_numbers([frame], frame.columns)
    assert sorted(numbers.tolist()) == values.tolist()


@pytest.mark.parametrize("largest", [5, 70_000])
def test_rows_of_a_group_keep_their_order(largest):
    found = {number: rows.tolist() for number, rows in rows_by_group(np.array([largest, 2, largest, 2, 0]))}
    assert found == {0: [4], 2: [1, 3], largest: [0, 2]}


def test_no_rows_no_groups():
    assert list(rows_by_group(np.array([], dtype=np.int64))) == []


def test_last_started_of_its_own_group():
    group, start = np.array([0, 1, 0, 1, 0]), np.array([10, 11, 20, 21, 20])
    asked, at = np.array([0, 0, 1, 0, 2, 0]), np.array([9, 19, 20, 20, 50, 99])
    assert last_started(group, start, asked, at).tolist() == [-1, 0, 1, 4, -1, 4]
