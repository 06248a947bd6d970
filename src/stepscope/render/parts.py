# SPDX-License-Identifier: Apache-2.0
"""What a line of text is made of: texts that all rows share, and columns with the form they are written in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import polars as pl

from stepscope.render.json_text import escaped
from stepscope.render.number_forms import Form


@dataclass(frozen=True)
class Text:
    """A text column; each distinct value is shaped once. Rows without a value get `missing`."""

    column: str
    shape: Callable[[str], str] = escaped
    missing: str = ""


@dataclass(frozen=True)
class Whole:
    """An integer column; `missing` is written for null."""

    column: str
    missing: str = ""


@dataclass(frozen=True)
class Numbers:
    """Integers in a form of their own; `missing` is written for null."""

    values: pl.Series
    form: Form
    missing: str = ""


@dataclass(frozen=True)
class Fraction:
    """Floats as the shortest text that reads back the same; 0 may be plain: without a point."""

    values: pl.Series
    missing: str = ""
    plain_zero: bool = False


@dataclass(frozen=True)
class Label:
    """A text where the column has a value."""

    column: str
    text: str


Part = str | Text | Whole | Numbers | Fraction | Label | pl.Expr


@dataclass(frozen=True)
class Lines:
    """One kind of line: its rows, and the parts that make the text of a row. Null parts are left out."""

    frame: pl.DataFrame
    parts: Sequence[Part]
