# SPDX-License-Identifier: Apache-2.0
"""Tables about the capture itself: its settings, and what was lost while reading it."""

from __future__ import annotations

import polars as pl

from stepscope.tables.schema import TEXT, Column, Table

META = Table(
    name="meta",
    doc="Facts about the capture: settings, versions, environment. One row per key, values as JSON.",
    columns=(
        Column("key", pl.String(), "Key; dots separate levels."),
        Column("value", pl.String(), "Value as JSON."),
    ),
)

QUALITY = Table(
    name="quality",
    doc="What was dropped, unmatched, clipped or not understood. No row means nothing was.",
    columns=(
        Column("source", pl.String(), "File or stage."),
        Column("issue", TEXT, "What happened, a few words."),
        Column("count", pl.Int64(), "How many records (or bytes, where the detail says so)."),
        Column("detail", pl.String(), "Where and why."),
    ),
)

FACT_TABLES = (META, QUALITY)
