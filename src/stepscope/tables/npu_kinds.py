# SPDX-License-Identifier: Apache-2.0
"""Kinds of tasks and layers of calls of an NPU, by the names and numbers that files have (docs/formats/enums.md 2)."""

from __future__ import annotations

import polars as pl

# The layers of calls on a host, by the numbers that order them.
API_LEVELS = {
    "runtime": 5000,
    "communication": 5500,
    "node": 10000,
    "model": 15000,
    "acl": 20000,
    "op": 50001,
    "queue": 50002,
    "trace": 50003,
    "mstx": 50004,
}


def task_kind(text: pl.Expr) -> pl.Expr:
    """Column `kind` of `kernels` from the text of a task type; communication tasks are found by `transfers`, not here."""
    word = text.str.to_uppercase()
    return (
        pl.when(word.str.starts_with("MEMCPY")).then(pl.lit("memcpy"))
        .when(word.str.starts_with("MEMSET")).then(pl.lit("memset"))
        .when(word.str.contains("^(EVENT_|NOTIFY)")).then(pl.lit("event"))
        .otherwise(pl.lit("other"))
    )  # fmt: skip
