"""The rows that hold most of a sum."""

from __future__ import annotations

import polars as pl
import pytest

from stepscope.analysis.largest import largest

ROWS = pl.DataFrame({"name": ["d", "b", "a", "c", "e"], "us": [0.0, 3.0, 3.0, 10.0, 1.0]})


@pytest.mark.parametrize(
    ("count", "names", "other"),
    [
        pytest.param(2, ["c", "a"], 4.0, id="equal-values-by-name"),
        pytest.param(0, ["c", "a", "b", "e"], 0.0, id="all-but-zero"),
        pytest.param(9, ["c", "a", "b", "e"], 0.0, id="more-than-there-are"),
    ],
)
def test_largest(count, names, other):
    rows, total, rest = largest(ROWS, "us", count)
    assert (rows["name"].to_list(), total, rest) == (names, 17.0, other)
