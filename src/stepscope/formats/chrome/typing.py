# SPDX-License-Identifier: Apache-2.0
"""Texts of trace events as numbers and exact times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import polars as pl

# What lies beyond is damage, and sums of it would not fit 64 bits.
_LATEST_NS = 1 << 62
_LONGEST_NS = 1 << 61


class Texts(Protocol):
    """Columns of text that may be converted."""

    def names(self) -> list[str]: ...
    def count(self, key: str) -> int: ...
    def text(self, key: str) -> pl.Series: ...
    def cast(self, key: str, convert: Callable[[pl.Series], pl.Series]) -> pl.Series: ...


@dataclass(frozen=True)
class ParsedTexts:
    """Columns of text from a parser."""

    frame: pl.DataFrame

    def names(self) -> list[str]:
        return self.frame.columns

    def count(self, key: str) -> int:
        return self.frame[key].count()

    def text(self, key: str) -> pl.Series:
        return self.frame[key]

    def cast(self, key: str, convert: Callable[[pl.Series], pl.Series]) -> pl.Series:
        return convert(self.frame[key])


def absent_columns(args: Mapping[str, pl.DataType]) -> dict[str, pl.Expr]:
    """All columns of a frame of events in their order, as nulls that take no memory."""
    return {name: pl.lit(None, kind).alias(name) for name, kind in _columns(args).items()}


def event_frame(texts: Texts, args: Mapping[str, pl.DataType], absent: Mapping[str, pl.Expr]) -> pl.DataFrame:
    """The frame of events whose columns are those of `absent`."""
    there = set(texts.names())
    columns = [texts.text(name) for name in ("ph", "name", "cat", "id", "bp", "s") if name in there]
    for name in ("pid", "tid"):
        if name in there:
            number = texts.cast(name, _integers)
            columns.append(number)
            if number.count() < texts.count(name):
                columns.append(_text_where_not_a_number(texts.text(name), number))
    columns += [texts.cast(name, read).alias(f"{name}_ns") for name, read in (("ts", _time), ("dur", _length)) if name in there]
    for key, kind in args.items():
        name = f"args.{key}"
        if name in there:
            columns.append(texts.text(name) if kind == pl.String() else texts.cast(name, partial(_as_type, kind=kind)))
    done = {column.name for column in columns}
    return pl.DataFrame(columns).select(name if name in done else null for name, null in absent.items())


def _columns(args: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
    """The columns of a frame of events."""
    return {
        **dict.fromkeys(("ph", "name", "cat", "id", "bp", "s"), pl.String()),
        "pid": pl.Int64(),
        "pid_text": pl.String(),
        "tid": pl.Int64(),
        "tid_text": pl.String(),
        "ts_ns": pl.Int64(),
        "dur_ns": pl.Float64(),
        **{f"args.{key}": kind for key, kind in args.items()},
    }


def _time(text: pl.Series) -> pl.Series:
    time: pl.Series = text.cast(pl.Decimal(38, 3), strict=False).to_physical().cast(pl.Int64, strict=False)
    near = time.is_between(-_LATEST_NS, _LATEST_NS)
    return time if near.all() else time.set(~near.fill_null(True), None)


def _length(text: pl.Series) -> pl.Series:
    # Durations have up to five digits below the nanosecond (docs/formats/outputs.md 16); as an integer of that unit the division
    # is the only rounding. numpy divides; polars would multiply by 1/100000, which is itself rounded.
    parts = text.cast(pl.Decimal(38, 8), strict=False).to_physical().cast(pl.Float64)
    lengths = parts.to_numpy() / 100_000
    if np.any(np.abs(lengths) > _LONGEST_NS):
        lengths = np.where(np.abs(lengths) > _LONGEST_NS, np.nan, lengths)
    return pl.Series(lengths, nan_to_null=True)


def _as_type(text: pl.Series, kind: pl.DataType) -> pl.Series:
    if kind == pl.String():
        return text
    if kind == pl.Boolean():
        words = {"true": True, "false": False, "1": True, "0": False}
        truth: pl.Series = text.replace_strict(words, default=None, return_dtype=pl.Boolean())
        return truth
    value: pl.Series = (_integers(text) if kind.is_integer() else text).cast(kind, strict=False)
    if not kind.is_float():
        return value
    finite = value.is_finite()  # the text `inf` is not a number either
    return value if finite.all() else value.set(~finite.fill_null(True), None)


def _integers(text: pl.Series) -> pl.Series:
    whole: pl.Series = text.cast(pl.Int64, strict=False)
    if whole.null_count() == text.null_count():
        return whole
    # 12.0 is the integer 12; what exceeds 64 bits or is not a number stays null.
    rounded = text.cast(pl.Float64, strict=False).cast(pl.Int64, strict=False)
    return pl.select(pl.coalesce(whole, rounded).alias(text.name)).to_series()


def _text_where_not_a_number(text: pl.Series, number: pl.Series) -> pl.Series:
    return pl.select(pl.when(number.is_null()).then(text).alias(f"{text.name}_text")).to_series()
