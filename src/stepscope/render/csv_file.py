# SPDX-License-Identifier: Apache-2.0
"""The csv dialect of the profiler's files (docs/formats/outputs.md 1): CRLF, minimal quotes, times kept as text by spreadsheets."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

import numpy as np
import polars as pl

from stepscope.arrays import filled, is_null, with_nulls
from stepscope.render.atomic import replacing
from stepscope.render.microseconds import microseconds, shown_us
from stepscope.render.number_forms import THOUSANDTHS, THOUSANDTHS_TAB
from stepscope.render.parts import Fraction, Lines, Numbers, Part, Text, Whole

NOT_KNOWN = "N/A"
Cells = tuple[str, Sequence[Part]]
_THOUSANDTH = Decimal("0.001")
_MOST_THOUSANDTHS = 1e15  # above, floats have no thousandths to round


def write_csv(path: Path, frame: pl.DataFrame, columns: Sequence[Cells], line_end: str = "\r\n") -> list[Path]:
    """Write one line per row; no file when there are no rows.

    Args:
        path: final name.
        frame: rows in the order of the file.
        columns: title and parts of each column.
        line_end: what ends a line.
    """
    if not frame.height:
        return []
    from stepscope.render.lines import write_lines  # whoever only declares columns to read by does not need it

    parts: list[Part] = []
    for _, cell in columns:
        parts += [*cell, ","]
    parts[-1] = line_end
    with replacing(path) as handle:
        handle.write(",".join(quoted(title) for title, _ in columns).encode() + line_end.encode())
        write_lines(handle, [Lines(frame, parts)])
    return [path]


def quoted(text: str) -> str:
    """The cell, in quotes only where it must be."""
    if any(mark in text for mark in ',"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text


def in_own_quotes(text: str) -> str:
    """A list of shapes: its cell holds quotes of its own (docs/formats/outputs.md 1)."""
    return quoted(f'"{text}"')


def text(title: str, column: str, missing: str = "") -> Cells:
    return title, [Text(column, quoted, missing)]


def shapes(title: str, column: str, missing: str = NOT_KNOWN) -> Cells:
    return title, [Text(column, in_own_quotes, missing)]


def whole(title: str, column: str, missing: str = "") -> Cells:
    return title, [Whole(column, missing)]


def fraction(title: str, values: pl.Series, missing: str = "", *, plain_zero: bool = False) -> Cells:
    return title, [Fraction(values, missing, plain_zero)]


def duration(title: str, values: pl.Series, missing: str = "", *, plain_zero: bool = False) -> Cells:
    """Nanoseconds as microseconds: the shortest text of the nearest float."""
    return title, [shown_us(values, missing, plain_zero=plain_zero)]


def lasting(title: str, ns: pl.Series) -> Cells:
    """Whole nanoseconds as microseconds with three digits: `27.540`."""
    return title, [Numbers(ns, THOUSANDTHS)]


def moment(title: str, frame: pl.DataFrame, column: str) -> Cells:
    """Microseconds with three digits and a TAB, so that spreadsheets keep all of them; empty for null."""
    return title, [Numbers(frame[column], THOUSANDTHS_TAB)]


def whole_ns(values: pl.Series) -> pl.Series:
    """Durations as the files show them: nanoseconds rounded, as if the float of microseconds were cut to three digits."""
    numbers = filled(values.cast(pl.Float64))
    whole = np.rint(numbers)
    with np.errstate(invalid="ignore"):  # infinity less infinity is no tie
        tie = np.flatnonzero(np.abs(numbers - np.floor(numbers) - 0.5) < 1e-6)
    # Half a nanosecond goes where the nearest float of microseconds lies: 24.2205 is a little more, 23.3205 less.
    below = np.floor(numbers[tie])
    off = microseconds(pl.Series(numbers[tie])).to_numpy().astype(np.longdouble) * 1000 - (below + 0.5)
    whole[tie] = np.where(off > 0, below + 1, np.where(off < 0, below, np.rint(below + 0.5)))
    return with_nulls(pl.Series(values.name, whole), is_null(values))


def thousandths(values: pl.Series) -> pl.Series:
    """Whole thousandths of floats; halves of what the float looks like go away from zero, as in SQLite."""
    numbers = np.clip(np.nan_to_num(filled(values.cast(pl.Float64)), nan=0.0), -_MOST_THOUSANDTHS, _MOST_THOUSANDTHS)
    scaled = np.abs(numbers) * 1000.0
    whole = np.floor(scaled + 0.5)
    near = np.flatnonzero(np.abs(scaled - np.floor(scaled) - 0.5) < 1e-6)
    if near.size:
        # The thousandfold is rounded itself: that of 0.5055 is less than 505.5.
        distinct, places = np.unique(np.abs(numbers[near]), return_inverse=True)
        exact = [int(Decimal(repr(value)).quantize(_THOUSANDTH, ROUND_HALF_UP) * 1000) for value in distinct.tolist()]
        whole[near] = np.array(exact, dtype=np.float64)[places]
    return with_nulls(pl.Series(values.name, np.where(numbers < 0, -whole, whole).astype(np.int64)), is_null(values))


def rounded(title: str, values: pl.Series, missing: str = "") -> Cells:
    """Nanoseconds as microseconds with at most three digits after the point."""
    return duration(title, values.cast(pl.Float64).round(), missing)
