# SPDX-License-Identifier: Apache-2.0
"""How whole numbers look: as they are, or as thousandths; alone, and as the last digits of a longer number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import polars as pl

GROUP = 10_000  # digits are written four at a time


@dataclass(frozen=True)
class Form:
    """`alone` gives the texts of whole numbers, `following` those of 0 to 9999 behind further digits."""

    alone: Callable[[pl.Series], pl.Series]
    following: Callable[[pl.Series], pl.Series]


def _digits(numbers: pl.Series) -> pl.Series:
    texts: pl.Series = numbers.cast(pl.String)
    return texts


def _padded(numbers: pl.Series) -> pl.Series:
    return _digits(numbers).str.zfill(4)


def _digits_unless_zero(numbers: pl.Series) -> pl.Series:
    return _unless_zero(numbers, _digits(numbers), "")


def _thousandths(numbers: pl.Series) -> pl.Series:
    """1234567 is `1234.567`. Splits the digits; a float would lose the last ones."""
    return _thousandths_before(numbers, "")


def _thousandths_tab(numbers: pl.Series) -> pl.Series:
    return _thousandths_before(numbers, "\t")


def _thousandths_before(numbers: pl.Series, end: str) -> pl.Series:
    text = numbers.abs().cast(pl.String).str.zfill(4)
    sign = pl.when(numbers < 0).then(pl.lit("-")).otherwise(pl.lit(""))
    return pl.select(pl.concat_str(sign, text.str.head(-3), pl.lit("."), text.str.tail(3), pl.lit(end))).to_series()


def _shortest(numbers: pl.Series) -> pl.Series:
    # numpy divides; polars multiplies by 0.001, which is off by one in the last digit.
    return _digits(pl.Series(numbers.to_numpy() / 1000.0))


def _shortest_plain_zero(numbers: pl.Series) -> pl.Series:
    return _unless_zero(numbers, _shortest(numbers), "0")


def _plain(numbers: pl.Series) -> pl.Series:
    """1500 is `1.5`, 2000 is `2`."""
    return _thousandths(numbers).str.strip_chars_end("0").str.strip_chars_end(".")


def _unless_zero(numbers: pl.Series, texts: pl.Series, zero: str) -> pl.Series:
    return pl.select(pl.when(numbers == 0).then(pl.lit(zero)).otherwise(texts)).to_series()


WHOLE = Form(_digits, _padded)
HEAD = Form(_digits_unless_zero, _padded)
THOUSANDTHS = Form(_thousandths, _thousandths)
THOUSANDTHS_TAB = Form(_thousandths_tab, _thousandths_tab)
PLAIN = Form(_plain, _plain)
SHORTEST = Form(_shortest, _shortest)
SHORTEST_PLAIN_ZERO = Form(_shortest_plain_zero, _shortest)


@lru_cache(maxsize=32)
def group_table(form: Form, missing: str) -> pl.Series:
    """0 to 9999 behind further digits, the same without any before them, and the text for a missing number."""
    numbers = pl.Series(np.arange(GROUP))
    return pl.concat([form.following(numbers), form.alone(numbers), pl.Series([missing], dtype=pl.String)])
