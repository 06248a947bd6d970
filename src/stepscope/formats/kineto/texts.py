# SPDX-License-Identifier: Apache-2.0
"""Lists that Kineto writes as JSON, in the text forms of the tables; each distinct text is rewritten once."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from stepscope.tables import TEXT


def rewrite_categories(column: pl.Series, rewrite: Callable[[pl.Expr], pl.Expr], dtype: pl.DataType = TEXT) -> pl.Series:
    """The column with each of its categories rewritten."""
    distinct = column.unique().drop_nulls().to_frame("old")
    table = distinct.with_columns(new=rewrite(pl.col("old").cast(pl.String)).cast(dtype))
    return column.to_frame("old").join(table, on="old", how="left", maintain_order="left")["new"].alias(column.name)


def shapes_text(text: pl.Expr) -> pl.Expr:
    """`[[2, 3], [], [3, 4]]` becomes `2,3;;3,4`."""
    joined = text.str.replace_all(" ", "", literal=True).str.replace_all("],[", ";", literal=True)
    return joined.str.replace_all(r"[\[\]]", "")


def dtypes_text(text: pl.Expr) -> pl.Expr:
    """`["float", "", "Scalar"]` becomes `float;;Scalar`."""
    return text.str.replace_all(r"\s*,\s*", ";").str.replace_all(r'\s*[\[\]"]\s*', "")


def triple_text(text: pl.Expr) -> pl.Expr:
    """`[2, 1, 1]` becomes `2,1,1`."""
    return text.str.replace_all(r"[\[\] ]", "")


def volume(text: pl.Expr) -> pl.Expr:
    """`[2, 3, 1]` becomes 6; null when a part is not a number."""
    parts = triple_text(text).str.split(",").list.eval(pl.element().cast(pl.Int64, strict=False))
    whole = parts.list.eval(pl.element().is_not_null()).list.all()
    return pl.when(whole).then(parts.list.eval(pl.element().product()).list.first())
