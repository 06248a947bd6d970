# SPDX-License-Identifier: Apache-2.0
"""Any table as Parquet, for notebooks and other tools."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import polars as pl

from stepscope.render.atomic import make_output_folder, replacing
from stepscope.tables import Tables
from stepscope.tables.union import with_keys


def write_parquet(tables: Tables, folder: Path, names: Iterable[str] | None = None) -> list[Path]:
    """Write one file per table that has rows, or per table named; texts as plain strings, with keys."""
    make_output_folder(folder)
    written = []
    for name in tables.filled() if names is None else names:
        path = folder / f"{name}.parquet"
        with replacing(path) as handle:
            with_keys(name, tables[name]).with_columns(pl.col(pl.Categorical).cast(pl.String)).write_parquet(handle)
        written.append(path)
    return written
