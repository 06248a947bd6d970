# SPDX-License-Identifier: Apache-2.0
"""Numbers and texts made of pieces read exactly as if each were formatted by itself."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from stepscope.render import lines, pieces
from stepscope.render.lines import Fraction, Label, Lines, Numbers, Part, Text, Whole
from stepscope.render.number_forms import SHORTEST, THOUSANDTHS, THOUSANDTHS_TAB

pytestmark = pytest.mark.usefixtures("both_ways")
# Enough rows for digits to be written in groups.
MANY = 100_000


def written(frame: pl.DataFrame, *parts: Part) -> list[str]:
    text = b"".join(bytes(slice_) for slice_, _ in lines.render_lines([Lines(frame, [*parts, "\n"])]))
    return text.decode().split("\n")[:-1]


def spread(most: int, *first: int) -> list[int]:
    """Whole numbers of all lengths up to `most`."""
    random = np.random.default_rng(7)
    return [*first, *(most * random.random(MANY - len(first)) ** 8).astype(np.int64).tolist()]


@pytest.mark.parametrize("most", [9, 60_000, 99_999_999, 10**12, 10**18])
def test_whole_numbers(most):
    values = spread(most, 0, 1, 9, min(10, most), most)
    assert written(pl.DataFrame({"n": values}), Whole("n")) == [str(value) for value in values]


@pytest.mark.parametrize("most", [60_000, 10**12])
def test_missing_numbers(most):
    values = [None if value % 7 == 3 else value for value in spread(most, 0, 3, most)]
    assert written(pl.DataFrame({"n": values}), "<", Whole("n", "N/A"), ">") == [
        "<N/A>" if value is None else f"<{value}>" for value in values
    ]


@pytest.mark.parametrize("values", [[-5, 7, 10**15], [2**64 - 1, 0, 3], [-(2**63), 2**63 - 1]])
def test_numbers_that_have_no_groups(values):
    frame = pl.DataFrame({"n": pl.Series(values, dtype=pl.Int64 if min(values) < 0 else pl.UInt64)})
    assert written(frame, Whole("n")) == [str(value) for value in values]


def test_times_of_an_epoch():
    start = 1_736_408_883_500_101_850
    values = pl.Series([start + 12_345 * number for number in range(MANY)])
    frame = pl.DataFrame({"t": values})
    assert written(frame, '"', Numbers(values, THOUSANDTHS), '"') == [f'"{t // 1000}.{t % 1000:03}"' for t in values.to_list()]


@pytest.mark.parametrize(("ns", "text"), [(0, "0.000\t"), (5, "0.005\t"), (1234567, "1234.567\t"), (-5, "-0.005\t"), (None, "")])
def test_thousandths(ns, text):
    values = pl.Series([ns, 10**18], dtype=pl.Int64)
    assert written(values.to_frame("t"), Numbers(values, THOUSANDTHS_TAB))[0] == text


@pytest.mark.parametrize("most", [5_000, 10**7, 10**14])
def test_shortest_microseconds(most):
    values = spread(most, 0, 1, 10, 100, 1000, 1001, 10_800)
    shown = [str(value / 1000) for value in values]
    assert written(pl.DataFrame({"n": values}), Numbers(pl.Series(values), SHORTEST)) == shown
    assert written(pl.DataFrame({"n": values}), Fraction(pl.Series([value / 1000 for value in values]))) == shown


@pytest.mark.parametrize("most", [10**8, 2**17 * 2048 - 1])
def test_fractions_of_memory_sizes(most):
    values = [value / 2048 for value in spread(most, 0, 1, 2047, 2048, most)]
    assert written(pl.DataFrame({"n": values}), Fraction(pl.Series(values))) == [str(value) for value in values]


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([0.1 + 0.2, 1 / 3, 100.0], id="long"),
        pytest.param([-1.5, 2.25, -0.0], id="signed"),
        pytest.param([131072.00048828125, 1.0], id="large-with-fine-part"),
        pytest.param([1 / 3] * 50 + [2.5] * 50, id="repeated"),
    ],
)
def test_other_fractions(values):
    assert written(pl.DataFrame({"n": values}), Fraction(pl.Series(values))) == [str(value) for value in values]


@pytest.mark.parametrize("other", [0.5, 1 / 3, 1 / 2048])
def test_plain_zero_and_none(other):
    values = pl.Series([0.0, None, 10.0, other])
    assert written(values.to_frame("n"), Fraction(values, "N/A", plain_zero=True)) == ["0", "N/A", "10.0", str(other)]
    assert written(values.to_frame("n"), Fraction(values, "N/A")) == ["0.0", "N/A", "10.0", str(other)]


def test_texts_numbers_and_labels_side_by_side():
    frame = pl.DataFrame({"name": ["a", None, 'q"', "a"], "n": [1, 2, None, 1], "same": [7, 7, 7, 7]})
    parts = [
        "{",
        Text("name", missing="-"),
        ":",
        Label("n", "n="),
        Whole("n"),
        " ",
        Whole("same"),
        pl.lit("|"),
        Whole("n", "?"),
        "}",
    ]
    assert written(frame, *parts) == ["{a:n=1 7|1}", "{-:n=2 7|2}", '{q\\": 7|?}', "{a:n=1 7|1}"]


def test_neighbours_are_one_piece(monkeypatch):
    """What occurs together is written together: one piece per row here."""
    monkeypatch.setenv("STEPSCOPE_KERNELS", "0")
    frame = pl.DataFrame({"name": ["a", "b"] * 50, "n": [1, 2] * 50})
    rows = lines._prepare(Lines(frame, ["<", Text("name"), "/", Whole("n"), ">"]))
    assert (len(rows.first), rows.texts.to_pylist()) == (1, ["<a/1>", "<b/2>"])


def test_only_what_all_rows_share():
    assert written(pl.DataFrame({"n": [1, 2, 3]}), "same") == ["same"] * 3


def test_the_same_part_twice_is_formatted_once(monkeypatch):
    monkeypatch.setenv("STEPSCOPE_KERNELS", "0")
    made = []
    one_per_row = pieces.one_per_row
    monkeypatch.setattr(lines, "one_per_row", lambda texts: made.append(len(texts)) or one_per_row(texts))
    frame = pl.DataFrame({"n": range(3)})
    part = pl.col("n").cast(pl.String) + "!"
    assert written(frame, part, " ", part) == ["0! 0!", "1! 1!", "2! 2!"]
    assert made == [3]
