# SPDX-License-Identifier: Apache-2.0
"""The kind of a task that is not an operator, by the name of its type (docs/formats/enums.md 2)."""

from __future__ import annotations

import polars as pl


def task_kind(text: pl.Expr) -> pl.Expr:
    """Column `kind` of `kernels` from the text of a task type; communication tasks are found by `transfers`, not here."""
    word = text.str.to_uppercase()
    return (
        pl.when(word.str.starts_with("MEMCPY")).then(pl.lit("memcpy"))
        .when(word.str.starts_with("MEMSET")).then(pl.lit("memset"))
        .when(word.str.contains("^(EVENT_|NOTIFY)")).then(pl.lit("event"))
        .otherwise(pl.lit("other"))
    )  # fmt: skip
