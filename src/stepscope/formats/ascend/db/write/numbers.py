# SPDX-License-Identifier: Apache-2.0
"""Numbers that no row has yet."""

from __future__ import annotations

import polars as pl


def after(column: pl.Series) -> int:
    """The first number above all of a column of whole numbers; 0 when it has none."""
    values = column.drop_nulls().to_numpy()
    return int(values.max()) + 1 if values.size else 0
