# SPDX-License-Identifier: Apache-2.0
"""The few rows that hold most of a sum, and what the others hold together."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl


class Largest(NamedTuple):
    rows: pl.DataFrame  # largest first; rows without a positive value are left out
    total: float  # of all rows with a positive value
    other: float  # of those that are not in `rows`


def largest(frame: pl.DataFrame, key: str, count: int, *, label: str = "name") -> Largest:
    """The `count` rows with the largest values in column `key` (0 for all); equal ones by `label`."""
    ranked = frame.filter(pl.col(key) > 0).sort(pl.col(key), pl.col(label).cast(pl.String), descending=[True, False])
    rows = ranked.head(count) if count else ranked
    return Largest(rows, float(ranked[key].sum()), float(ranked[key].slice(rows.height).sum()))
