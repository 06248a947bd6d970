# SPDX-License-Identifier: Apache-2.0
"""Tasks that consist of parts: the whole and its parts take the same time, which counts once."""

from __future__ import annotations

import polars as pl

HOLDERS = ("FFTS_PLUS", "KERNEL_MIX_AIC", "KERNEL_MIX_AIV")


def without_parents(tasks: pl.DataFrame) -> pl.DataFrame:
    """Leave out a task whose parts are shown themselves (docs/formats/outputs.md 3.3)."""
    if not tasks["context_id"].count():
        return tasks
    key = ["device", "stream", "batch_id", "task_id"]
    is_part = pl.col("context_id").is_not_null()
    # Where the source does not say how often task numbers had wrapped, only tasks that always have parts are safe to leave out.
    holds_parts = pl.col("host_task_type").is_in(HOLDERS).fill_null(False)
    parts = tasks.filter(is_part).select(key).unique()
    whole = tasks.with_row_index("row").filter(~is_part & (pl.col("batch_id").is_not_null() | holds_parts))
    parents = whole.join(parts, on=key, how="semi", nulls_equal=True)["row"]
    return tasks.filter(~pl.int_range(pl.len(), dtype=pl.UInt32).is_in(parents.implode())) if len(parents) else tasks
