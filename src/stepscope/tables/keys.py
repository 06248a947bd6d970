# SPDX-License-Identifier: Apache-2.0
"""Keys for readers that know no row numbers: Parquet files and SQL."""

from __future__ import annotations

import polars as pl

from stepscope.tables.union import REFERENCES

KEYED = frozenset(REFERENCES.values())


def with_keys(name: str, frame: pl.DataFrame) -> pl.DataFrame:
    """The table with `id`, its row number, where others refer to it, and `op_id`, `kernel_id`, … for what it refers to.

    `kernels.op_id = ops.id` joins without counting rows; the columns `op`, `kernel`, … hold the same numbers.
    """
    references = [pl.col(column).alias(f"{column}_id") for table, column in REFERENCES if table == name and column in frame.columns]
    frame = frame.with_columns(references)
    if name not in KEYED:
        return frame
    return frame.select(pl.int_range(pl.len(), dtype=pl.Int64).alias("id"), pl.all())
