# SPDX-License-Identifier: Apache-2.0
"""The C++ kernels write the same bytes as polars and numpy: each way is checked against the other on generated columns."""

from __future__ import annotations

import io
import os
from unittest import mock

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stepscope.render import codec_rows, lines, sqlite_pages
from stepscope.render.lines import Fraction, Label, Lines, Numbers, Part, Text, Whole
from stepscope.render.number_forms import PLAIN, SHORTEST, SHORTEST_PLAIN_ZERO, THOUSANDTHS, THOUSANDTHS_TAB, WHOLE

pytestmark = pytest.mark.usefixtures("kernels")

FORMS = [WHOLE, THOUSANDTHS, THOUSANDTHS_TAB, PLAIN, SHORTEST, SHORTEST_PLAIN_ZERO]
INTEGERS = [pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64]


def by_kernel() -> mock._patch_dict:
    return mock.patch.dict(os.environ, STEPSCOPE_KERNELS="")


def by_polars() -> mock._patch_dict:
    return mock.patch.dict(os.environ, STEPSCOPE_KERNELS="0")


def rendered(frame: pl.DataFrame, parts: list[Part]) -> bytes:
    return b"".join(bytes(text) for text, _ in lines.render_lines([Lines(frame, parts)]))


def assert_same(frame: pl.DataFrame, *parts: Part) -> bytes:
    with by_kernel():
        assert isinstance(lines._prepare(Lines(frame, ["", *parts])), codec_rows.CodecRows)
        found = rendered(frame, list(parts))
    with by_polars():
        assert found == rendered(frame, list(parts))
    return found


# The form `shortest` divides by 1000 in doubles, which are exact to 2^53; no time of ours is longer.
numbers = st.one_of(st.integers(-(2**53), 2**53), st.integers(-2000, 2000), st.none())


@given(st.lists(numbers, min_size=1, max_size=50), st.sampled_from(FORMS), st.sampled_from(["", "N/A"]), st.integers(0, 3))
def test_whole_numbers(values, form, missing, cut):
    column = pl.Series(values, dtype=pl.Int64)[cut:]  # an array that begins within its buffer
    if len(column):
        assert_same(column.to_frame("n"), "<", Numbers(column, form, missing), ">", Label("n", "here"))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("form", [WHOLE, THOUSANDTHS], ids=["whole", "thousandths"])
def test_bounds_of_integers(dtype, form):
    least, most = pl.select(dtype.min(), max=dtype.max()).row(0)
    least += form is THOUSANDTHS and least < 0  # polars has no absolute value of the smallest number
    values = pl.Series([least, most, 0, 1, None], dtype=dtype)
    assert_same(values.to_frame("n"), Numbers(values, form, "?"), "\n")


floats = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.floats(1e-4, 1e13),
    st.integers(-(10**9), 10**9).map(lambda n: n / 1000),
    st.integers(0, 2**40).map(lambda n: n / 2048),
    st.none(),
)


@pytest.mark.slow  # thousands of lists of numbers
@given(st.lists(floats, min_size=1, max_size=40), st.booleans(), st.sampled_from(["", "N/A"]), st.integers(0, 3))
@example([1.797693134862316e305], False, "", 0)  # its thousandfold is not finite
@settings(max_examples=300)
def test_floats(values, plain_zero, missing, cut):
    column = pl.Series(values, dtype=pl.Float64)[cut:]
    if len(column):
        assert_same(column.to_frame("n"), Fraction(column, missing, plain_zero), "\n")


@given(st.lists(st.floats(1e-3, 1e12), min_size=1, max_size=200))
def test_floats_read_back(values):
    column = pl.Series(values)
    assert assert_same(column.to_frame("n"), Fraction(column), "\n").decode().split() == [str(value) for value in values]


@pytest.mark.parametrize("dtype", [pl.String(), pl.Categorical(), pl.Enum(["a", 'q"', "é", "", "long " * 9])], ids=str)
@given(data=st.data())
def test_texts(dtype, data):
    words = st.sampled_from(["a", 'q"', "é", "", "long " * 9, None])
    column = pl.Series("t", data.draw(st.lists(words, min_size=1, max_size=30)), dtype=dtype)
    frame = column.to_frame()[data.draw(st.integers(0, 3)) :]
    if frame.height:
        expression = pl.col("t").cast(pl.String).str.to_uppercase()
        assert_same(frame, "[", Text("t", missing="-"), "|", expression, "|", pl.lit("x"), Label("t", "!"), "]")


def test_chunks_slices_and_long_texts(monkeypatch):
    """More than one buffer for a slice, more than one slice, columns in several chunks."""
    monkeypatch.setattr(codec_rows, "_MOST_BUFFER_BYTES", 1 << 16)
    rows = 3 * lines.SLICE_ROWS + 7
    parts = [
        pl.DataFrame({"n": range(begin, begin + rows), "t": [f"text {at} " * (at % 50) for at in range(rows)]}) for begin in (0, 9)
    ]
    frame = pl.concat(parts, rechunk=False)
    written = assert_same(frame, Whole("n"), ",", pl.col("t"), "\n")
    assert written.count(b"\n") == 2 * rows


def test_columns_of_another_length_are_refused():
    with by_kernel(), pytest.raises(ValueError, match="2 values for 3 rows"):
        rendered(pl.DataFrame({"n": [1, 2, 3]}), [Numbers(pl.Series([1, 2]), WHOLE)])


columns = st.one_of(
    st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), min_size=64, max_size=64).map(
        lambda v: pl.Series(v, dtype=pl.Int64)
    ),
    st.lists(st.one_of(st.none(), st.integers(-200, 200)), min_size=64, max_size=64).map(lambda v: pl.Series(v, dtype=pl.Int16)),
    st.lists(st.one_of(st.none(), st.floats(allow_nan=False)), min_size=64, max_size=64).map(
        lambda v: pl.Series(v, dtype=pl.Float64)
    ),
    st.sampled_from([0, 1, 2, None]).map(lambda value: pl.Series([value] * 64, dtype=pl.Int64)),
    st.lists(st.booleans(), min_size=64, max_size=64).map(pl.Series),
)


@pytest.mark.slow  # many values
@given(st.lists(columns, min_size=1, max_size=12), st.integers(1, 400), st.booleans(), st.sampled_from([1 << 9, 1 << 16]))
def test_pages(found, repeats, with_key, rows_at_once):
    frame = pl.concat([pl.DataFrame({f"c{at}": column for at, column in enumerate(found)})] * repeats, rechunk=False)
    if with_key:
        frame = frame.insert_column(0, pl.Series("key", np.arange(frame.height)[::-1] * 3))
    written = []
    for way in (by_kernel, by_polars):
        file = io.BytesIO()
        with way(), mock.patch.object(sqlite_pages, "_ROWS_AT_ONCE", rows_at_once):
            table = sqlite_pages.write_leaves("T", frame, "key" if with_key else None, file)
        written.append((table, file.getvalue()))
    assert written[0] == written[1]
