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
    doc="What was lost, is doubtful or needs a word of explanation. No row means that there is nothing to say.",
    columns=(
        Column("source", pl.String(), "File or stage."),
        Column("issue", TEXT, "Name in the register of issues ([issues.md](issues.md))."),
        Column("severity", TEXT, "`loss`: recorded data is missing; `warning`: look twice; `note`: normal."),
        Column("unit", TEXT, "What `count` counts: records, rows, values, files or bytes. Counts of one unit only may be added."),
        Column("count", pl.Int64(), "How many."),
        Column("detail", pl.String(), "Where and why; may be empty."),
    ),
)

FACT_TABLES = (META, QUALITY)
