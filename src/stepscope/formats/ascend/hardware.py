# SPDX-License-Identifier: Apache-2.0
"""Caches, links, network ports and AI CPU from csv files (outputs.md 10)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import polars as pl

from stepscope.formats.ascend.cells import Further, Quality, read_cells
from stepscope.formats.ascend.columns import Column, column
from stepscope.tables import ALL_TABLES

CACHE_RATES, LINK_SUMMARY = ALL_TABLES["cache_rates"], ALL_TABLES["link_summary"]
COUNTERS, AICPU_TASKS = ALL_TABLES["counters"], ALL_TABLES["aicpu_tasks"]

_DEVICE = column("device", "count", "Device_id")
_TASK = (column("stream", "count", "Stream Id", "Stream ID"), column("task_id", "count", "Task Id", "Task ID"))

_CACHE_CELLS = {
    "l2": (column("hit_rate", "number", "Hit Rate"), column("other_rate", "number", "Victim Rate")),
    "tlb": (column("hit_rate", "number", "TLB Hit Rate"), column("other_rate", "number", "TLB Miss Rate")),
}
_LINK_CELLS = (
    _DEVICE,
    column("mode", "text", "Mode", needed=True),
    column("min", "number", "Min"),
    column("max", "number", "Max"),
    column("avg", "number", "Avg", "Average"),
)
_PORT_CELLS = (_DEVICE, column("time_ns", "time", "Timestamp(us)", needed=True), column("instance", "count", "funcId"))


def _microseconds(to: str, title: str, without_unit: float) -> Column:
    return Column(to, "number", f"{title}(us)", others={f"{title}(ms)": 1000.0, title: without_unit})


# G1 gives milliseconds, except for the copy.
_AICPU_CELLS = (
    _DEVICE,
    column("time_ns", "time", "Timestamp(us)", "Timestamp", needed=True),
    column("node", "text", "Node", needed=True),
    _microseconds("compute_us", "Compute_time", 1000.0),
    _microseconds("memcpy_us", "Memcpy_time", 1.0),
    _microseconds("task_us", "Task_time", 1000.0),
    _microseconds("dispatch_us", "Dispatch_time", 1000.0),
    _microseconds("total_us", "Total_time", 1000.0),
    column("stream", "count", "Stream ID", "Stream Id"),
    column("task_id", "count", "Task ID", "Task Id"),
)


def read_cache(paths: Iterable[Path], kind: str, *, quality: Quality, device: int | None = None) -> pl.DataFrame:
    """Table `cache_rates` from l2_cache csv files (kind `l2`) or soc_pmu csv files (kind `tlb`), in task order."""
    cells = (_DEVICE, *_TASK, *_CACHE_CELLS[kind], column("op_name", "text", "Op Name"))
    rows = _placed(read_cells(paths, cells, quality=quality), device)
    return CACHE_RATES.conform(rows.with_columns(pl.lit(kind).alias("kind")))


def read_links(paths: Iterable[Path], source: str, *, quality: Quality, device: int | None = None) -> pl.DataFrame:
    """Table `link_summary` from pcie or hccs csv files; `source` is PCIe or HCCS."""
    rows = _placed(read_cells(paths, _LINK_CELLS, quality=quality), device)
    return LINK_SUMMARY.conform(rows.with_columns(pl.lit(source).alias("source")))


def read_ports(paths: Iterable[Path], source: str, *, quality: Quality, device: int | None = None) -> pl.DataFrame:
    """Table `counters` from nic or roce csv files: one series per column and port; `source` is NIC or RoCE."""
    known = {name for item in _PORT_CELLS for name in item.names}
    further = Further(lambda name: bool(name) and name not in known)
    rows = _placed(read_cells(paths, _PORT_CELLS, quality=quality, further=further), device)
    index = ["device", "time_ns", "instance"]
    long = rows.unpivot([name for name in rows.columns if name not in index], index=index, variable_name="series")
    port = pl.concat_str(pl.lit("Port "), pl.col("instance").cast(pl.String).fill_null("0")).alias("name")
    return COUNTERS.conform(long.drop_nulls("value").with_columns(port, pl.lit(source).alias("source")))


def read_aicpu(paths: Iterable[Path], *, quality: Quality, device: int | None = None) -> pl.DataFrame:
    """Table `aicpu_tasks` from data_preprocess.csv or aicpu csv files."""
    return AICPU_TASKS.conform(_placed(read_cells(paths, _AICPU_CELLS, quality=quality), device))


def _placed(rows: pl.DataFrame, device: int | None) -> pl.DataFrame:
    return rows.with_columns(pl.col("device").fill_null(pl.lit(device)).cast(pl.Int32))
