# SPDX-License-Identifier: Apache-2.0
"""The database of msprof (docs/formats/outputs.md 12.2, docs/formats/cann.md 7)."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from stepscope.export.ascend_db import write_msprof_db
from stepscope.tables import TEXT, Tables

HELD = ("api_calls", "kernels", "collectives", "marks", "counters", "memory_events")


def write(tables: Tables, path: Path) -> list[Path]:
    """Write the database; none when the capture has nothing to put into it."""
    if not any(tables[name].height for name in HELD):
        return []
    # An operator of which nothing is known has no blocks and an empty text of attributes.
    computes = pl.col("kind") == "compute"
    blocks = [pl.when(computes).then(pl.col(name).fill_null(0)).otherwise(name) for name in ("block_num", "mix_block_num")]
    kernels = tables.kernels.with_columns(*blocks, pl.col("attrs").fill_null(pl.lit("", TEXT)))
    facts = tables.facts
    # A host that has no number of its own is number 0.
    write_msprof_db(tables.replace(kernels=kernels, meta=facts.replace(host_uid=facts.host_uid or "0").table()), path)
    return [path]
