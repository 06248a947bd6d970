# SPDX-License-Identifier: Apache-2.0
"""What the worker processes of a DataLoader fetched, as our collector leaves it in FRAMEWORK: ranges in table `ops`."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl

from stepscope.formats.collector.plain_lines import read_lines
from stepscope.formats.framework.clock import FrameworkClock
from stepscope.tables import ALL_TABLES, TEXT, Tables, issues, lost

FILES = "x.loader_worker_*.csv"
_PID = re.compile(r"x\.loader_worker_(\d+)\.csv")
_COLUMNS = ("start_raw_ns", "end_raw_ns", "worker", "samples")
_USER_SCOPE = 7


def read(framework: Path, clock: FrameworkClock) -> Tables:
    """One range per batch, each in the process of its worker; a line torn by a kill is counted and left out."""
    parts, torn = [], []
    for path in sorted(framework.glob(FILES)):
        named = _PID.fullmatch(path.name)
        if named is None or path.is_symlink() or not path.is_file():
            continue
        lines = read_lines(path, _COLUMNS)
        whole = lines.select(pl.all().cast(pl.Int64, strict=False)).drop_nulls()
        torn.append(lost(issues.UNREADABLE_LINE, path.name, lines.height - whole.height))
        parts.append(whole.with_columns(pid=pl.lit(int(named[1]), pl.Int64)))
    rows = pl.concat(parts) if parts else pl.DataFrame()
    if not rows.height:
        return Tables().with_quality(*torn)
    worker = pl.format("DataLoader worker {}", "worker")
    rows = rows.select(
        "pid",
        pl.col("pid").alias("tid"),
        clock.to_epoch_ns(rows["start_raw_ns"]).alias("start_ns"),
        clock.to_epoch_ns(rows["end_raw_ns"]).alias("end_ns"),
        pl.format("{}: fetch", worker).cast(TEXT).alias("name"),
        pl.lit(_USER_SCOPE, pl.UInt8).alias("scope"),
        pl.lit(False).alias("is_async"),
        pl.col("pid").alias("end_tid"),
        worker.cast(TEXT).alias("operator"),
        pl.lit("fetch").cast(TEXT).alias("stage"),
        pl.format("samples:{}", "samples").cast(TEXT).alias("info"),
    ).sort("start_ns", "end_ns", descending=[False, True], maintain_order=True)
    stages = rows.select(pl.int_range(pl.len(), dtype=pl.Int64).alias("op"), "operator", "stage", "info")
    ops = ALL_TABLES["ops"].conform(rows.drop("operator", "stage", "info"))
    return Tables({"ops": ops, "data_stages": ALL_TABLES["data_stages"].conform(stages)}).with_quality(*torn)
