# SPDX-License-Identifier: Apache-2.0
"""Samples of the host's load that our collector leaves in FRAMEWORK, as table `counters`."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from stepscope.formats.collector.plain_lines import read_lines
from stepscope.formats.framework.clock import FrameworkClock
from stepscope.tables import ALL_TABLES, TEXT, Tables, issues, lost

FILE = "x.host_counters.csv"
_COLUMNS = ("raw_ns", "source", "name", "series", "value")


def read(framework: Path, clock: FrameworkClock) -> Tables:
    """What was sampled; a line torn by a kill is counted and left out."""
    path = framework / FILE
    lines = read_lines(path, _COLUMNS)
    if not lines.height:
        return Tables()
    typed = lines.with_columns(pl.col("raw_ns").cast(pl.Int64, strict=False), pl.col("value").cast(pl.Float64, strict=False))
    whole = typed.drop_nulls()
    frame = whole.select(
        pl.col("source", "name", "series").cast(TEXT), clock.to_epoch_ns(whole["raw_ns"]).alias("time_ns"), "value"
    ).sort("source", "name", "series", "time_ns")
    counters = ALL_TABLES["counters"].conform(frame)
    return Tables({"counters": counters}).with_quality(lost(issues.UNREADABLE_LINE, FILE, typed.height - whole.height))
