# SPDX-License-Identifier: Apache-2.0
"""A csv file as it stands: every column, text trimmed, numbers where the whole column is numbers."""

from __future__ import annotations

from pathlib import Path

import polars as pl

NONE = ("N/A", "")


def read_csv(path: Path) -> pl.DataFrame | None:
    """All rows as text; None when the file is gone or no csv."""
    try:
        frame = pl.read_csv(path, infer_schema=False, truncate_ragged_lines=True, encoding="utf8-lossy", raise_if_empty=False)
    except (OSError, pl.exceptions.PolarsError):
        return None
    return frame.with_columns(pl.all().str.strip_chars())


def with_numbers(frame: pl.DataFrame) -> pl.DataFrame:
    """Columns of whole numbers and of numbers as such; `N/A` and nothing are null there."""
    made = []
    for name in frame.columns:
        value = pl.col(name).replace(list(NONE), [None] * len(NONE))
        known = frame.select(value.is_not_null().sum()).item()
        if not known:
            continue
        for dtype in (pl.Int64, pl.Float64):
            if frame.select(value.cast(dtype, strict=False).is_not_null().sum()).item() == known:
                made.append(value.cast(dtype, strict=False).alias(name))
                break
    return frame.with_columns(made)
