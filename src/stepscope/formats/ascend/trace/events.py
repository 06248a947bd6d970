# SPDX-License-Identifier: Apache-2.0
"""Expressions that all row kinds share: spans, sentinels and texts of trace events."""

from __future__ import annotations

import polars as pl

from stepscope.formats import NONE32
from stepscope.tables import TEXT


def arg(key: str) -> pl.Expr:
    return pl.col(f"args.{key}")


def span() -> tuple[pl.Expr, pl.Expr]:
    """Start and end; parts of a nanosecond are cut off (docs/formats/outputs.md 2.5)."""
    length = pl.col("dur_ns").fill_null(0.0).floor().cast(pl.Int64)
    return pl.col("ts_ns").alias("start_ns"), (pl.col("ts_ns") + length).alias("end_ns")


def number(key: str) -> pl.Expr:
    """An integer argument, null when it holds the sign for "none"."""
    value = arg(key)
    return pl.when((value != NONE32) & (value != -1)).then(value)


def text(key: str) -> pl.Expr:
    """A text argument, null when it says that there is none."""
    value = arg(key)
    return pl.when(value != "N/A").then(value).cast(TEXT)


def category(column: str) -> pl.Expr:
    return pl.col(column).cast(TEXT)


def rewritten(frame: pl.DataFrame, column: str, change: pl.Expr) -> pl.DataFrame:
    """Replace a categorical column by `change` (an expression on `pl.element`-like column "text"), once per distinct value."""
    distinct = frame.lazy().select(pl.col(column).unique()).drop_nulls()
    new = distinct.with_columns(pl.col(column).cast(pl.String).alias("text")).select(column, change.cast(TEXT).alias("new text"))
    return (
        frame.lazy()
        .join(new, on=column, how="left", maintain_order="left")
        .with_columns(pl.col("new text").alias(column))
        .drop("new text")
        .collect(engine="in-memory")
    )
