# SPDX-License-Identifier: Apache-2.0
"""Columns of numbers as pieces of text: few distinct ones, groups of digits, or each row its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.render.number_forms import GROUP, HEAD, SHORTEST, SHORTEST_PLAIN_ZERO, WHOLE, Form, group_table
from stepscope.render.pieces import MOST_COMBINATIONS, ROWS_PER_ENTRY, Coded, Codes, Digits, Flags, Pieces, compact, one_per_row

MOST_INT64 = (1 << 63) - 1
MOST_HEADS = 1 << 12  # beginnings of numbers whose last digits are pieces of their own
# Up to 15 digits a decimal number is the only one of its length that reads back as its float.
MOST_THOUSANDTHS = 10**15
# Multiples of 1/2048 have 11 digits below the point; up to here no shorter number reads back the same.
FINENESS, MOST_FINE = 2048, 1 << 17
SAMPLE = 1024


def whole_numbers(values: pl.Series, form: Form, missing: str) -> Sequence[str | Pieces]:
    """Integers in the given form; `missing` is written for null."""
    least, most = values.min(), values.max()
    if not (isinstance(least, int) and isinstance(most, int)):
        return [missing]
    absent = values.is_null().to_numpy() if values.null_count() else None
    if most > MOST_INT64:
        return [_each(values, form, missing)]
    if most - least < min(MOST_COMBINATIONS, 4 * len(values)):
        return [_few(values.fill_null(least).cast(pl.Int64).to_numpy(), least, most, absent, form, missing)]
    least = least if absent is None else min(least, 0)
    groups = next((n for n in range(1, 5) if most // GROUP**n - least // GROUP**n < MOST_HEADS), 0)
    if least < 0 or not groups or len(values) < ROWS_PER_ENTRY * GROUP:
        return [_each(values, form, missing)]
    numbers = values.fill_null(0).cast(pl.Int64).to_numpy()
    unit = GROUP**groups
    head = numbers // unit
    rest = (numbers - head * unit).astype(np.uint32 if groups <= 2 else np.int64)
    tables = [group_table(HEAD, "")] * (groups - 1) + [group_table(form, missing)]
    heads = _few(head, least // unit, most // unit, None, HEAD, "")
    return [heads, Digits(rest, head == 0 if least < unit else None, absent, tables)]


def _each(values: pl.Series, form: Form, missing: str) -> Coded:
    return one_per_row(number_texts(values, form, missing))


def number_texts(values: pl.Series, form: Form, missing: str) -> pl.Series:
    """The text of each integer; `missing` is written for null."""
    texts = form.alone(values.fill_null(0))
    return texts.set(values.is_null(), missing) if values.null_count() else texts


def _few(numbers: Codes, least: int, most: int, absent: Flags | None, form: Form, missing: str) -> Coded:
    codes, used = compact(numbers - least if least else numbers, most - least + 1)
    texts = form.alone(pl.Series(used + least))
    return Coded(codes, texts) if absent is None else Coded(codes, texts).with_missing(absent, missing)


def fractions(values: pl.Series, missing: str, *, plain_zero: bool) -> Sequence[str | Pieces]:
    """Floats as the shortest text that reads back the same; 0 as `0` instead of `0.0` when it is plain."""
    if values.null_count() == len(values):
        return [missing]
    absent = values.is_null() if values.null_count() else None
    numbers = values.fill_null(0.0).to_numpy()
    if not np.signbit(numbers).any() and numbers.max() < MOST_THOUSANDTHS:  # larger ones are few, and would overflow
        scaled = np.rint(numbers * 1000.0)
        if (scaled / 1000.0 == numbers).all() and scaled.max() < MOST_THOUSANDTHS:
            whole = _nullable(scaled.astype(np.int64), absent)
            return whole_numbers(whole, SHORTEST_PLAIN_ZERO if plain_zero else SHORTEST, missing)
        scaled = numbers * FINENESS
        if not plain_zero and scaled.max() < FINENESS * MOST_FINE and (scaled == np.floor(scaled)).all():
            return _fine(scaled.astype(np.int64), absent, missing)
    return [_formatted(values, missing, plain_zero=plain_zero)]


def _fine(scaled: npt.NDArray[np.int64], absent: pl.Series | None, missing: str) -> Sequence[str | Pieces]:
    below, used = compact(scaled & (FINENESS - 1), FINENESS)
    digits = [f"{number / FINENESS:.11f}"[1:].rstrip("0") for number in used.tolist()]
    behind = Coded(below, pl.Series([text if text != "." else ".0" for text in digits], dtype=pl.String))
    if absent is not None:
        behind = behind.with_missing(absent.to_numpy(), "")
    return [*whole_numbers(_nullable(scaled // FINENESS, absent), WHOLE, missing), behind]


def _formatted(values: pl.Series, missing: str, *, plain_zero: bool) -> Coded:
    if not repeats(values):
        return one_per_row(float_texts(values, missing, plain_zero=plain_zero))
    encoded = values.rechunk().to_arrow().dictionary_encode(null_encoding="encode")
    distinct = pl.Series(encoded.dictionary, dtype=values.dtype)
    return Coded(encoded.indices.to_numpy(), float_texts(distinct, missing, plain_zero=plain_zero))


def float_texts(values: pl.Series, missing: str, *, plain_zero: bool) -> pl.Series:
    """The shortest text of each float that reads back the same; `missing` is written for null."""
    text = pl.lit(values).cast(pl.String)
    if plain_zero:
        text = pl.when(values == 0).then(pl.lit("0")).otherwise(text)
    return pl.select(text.fill_null(missing)).to_series()


def repeats(values: pl.Series) -> bool:
    """Whether most values occur several times, judging by a sample."""
    sample = values.gather_every(max(1, len(values) // SAMPLE))
    return sample.n_unique() * 2 < len(sample)


def _nullable(numbers: npt.NDArray[np.int64], absent: pl.Series | None) -> pl.Series:
    whole = pl.Series(numbers)
    return whole if absent is None else whole.set(absent, None)
