# SPDX-License-Identifier: Apache-2.0
"""Changes to text columns that cost per distinct text, not per row."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import polars as pl

from stepscope.tables import TEXT


def nulls(name: str, dtype: pl.DataType, count: int) -> pl.Series:
    return pl.repeat(None, count, dtype=dtype, eager=True).alias(name)


def decoded(values: pl.Series) -> pl.Series:
    """Bytes as text; null where they are not UTF-8."""
    try:
        text: pl.Series = values.cast(pl.String)
    except pl.exceptions.ComputeError:  # damage: rare enough to look at every value
        return pl.Series(values.name, [_decoded(value) for value in values], dtype=pl.String)
    return text


def _decoded(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def per_text(column: pl.Series, change: Callable[[pl.Expr], pl.Expr], dtype: pl.DataType = TEXT) -> pl.Series:
    """Apply an expression on strings to every distinct text of a categorical column."""
    distinct = column.unique().drop_nulls()
    if not len(distinct):
        return nulls(column.name, dtype, len(column))
    changed = pl.select(change(pl.lit(distinct.cast(pl.String)))).to_series().cast(dtype)
    codes = distinct.to_physical().to_numpy()
    place = np.zeros(int(codes.max()) + 1, dtype=np.uint32)
    place[codes] = np.arange(codes.size, dtype=np.uint32)
    rows = pl.Series(place[column.to_physical().fill_null(codes[0]).to_numpy()])
    missing = column.is_null()
    result: pl.Series = changed.gather(rows.set(missing, None) if missing.any() else rows).alias(column.name)
    return result


def enumerated(column: pl.Series, names: Mapping[int, str], nothing: tuple[str, ...] = ()) -> pl.Series:
    """Names of enumeration numbers; null for those that are unknown or stand for nothing."""
    known = {number: name for number, name in names.items() if name not in nothing}
    words: pl.Series = column.replace_strict(list(known), pl.Series(list(known.values()), dtype=pl.String), default=None)
    texts: pl.Series = words.cast(TEXT)
    return texts.alias(column.name)
