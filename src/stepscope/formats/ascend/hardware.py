# SPDX-License-Identifier: Apache-2.0
"""Csv files about caches, links, network ports and the AI CPU (docs/formats/outputs.md 10)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import polars as pl

from stepscope.formats.ascend.cells import Further, Quality, read_cells
from stepscope.formats.ascend.columns import DEVICE, Column, cells, column, titles
from stepscope.render.csv_file import NOT_KNOWN, write_csv
from stepscope.tables import ALL_TABLES

CACHE_RATES, LINK_SUMMARY = ALL_TABLES["cache_rates"], ALL_TABLES["link_summary"]
COUNTERS, AICPU_TASKS = ALL_TABLES["counters"], ALL_TABLES["aicpu_tasks"]

# l2_cache.csv (kind `l2`) and soc_pmu.csv (kind `tlb`)
_STREAM = column("stream", "count", "Stream Id", "Stream ID", missing=NOT_KNOWN)
_TASK = column("task_id", "count", "Task Id", "Task ID", missing=NOT_KNOWN)
CACHE_FILES = {"l2": "l2_cache.csv", "tlb": "soc_pmu.csv"}
_RATES = {"l2": ("Hit Rate", "Victim Rate"), "tlb": ("TLB Hit Rate", "TLB Miss Rate")}
CACHE = {
    kind: (
        DEVICE,
        _STREAM,
        _TASK,
        column("hit_rate", "number", hit, missing=NOT_KNOWN, digits=6),
        column("other_rate", "number", other, missing=NOT_KNOWN, digits=6),
        column("op_name", "text", "Op Name", missing=NOT_KNOWN),
    )
    for kind, (hit, other) in _RATES.items()
}

# pcie.csv and hccs.csv
LINK_FILES = {"PCIe": "pcie.csv", "HCCS": "hccs.csv"}
_MODE = column("mode", "text", "Mode", needed=True)
_MIN = column("min", "number", "Min", missing=NOT_KNOWN, digits=3)
_MAX = column("max", "number", "Max", missing=NOT_KNOWN, digits=3)
_AVG = column("avg", "number", "Avg", "Average", missing=NOT_KNOWN, digits=3)
LINK = {
    "PCIe": (DEVICE, _MODE, _MIN, _MAX, _AVG),
    "HCCS": (DEVICE, _MODE, _MAX, _MIN, column("avg", "number", "Average", "Avg", missing=NOT_KNOWN, digits=3)),
}
# Words of `Mode` in order, and the series of the timeline (docs/formats/enums.md 6) that stands for each: name and series.
LINK_MODES = {
    "PCIe": {
        "Tx_p_avg(MB/s)": ("PCIe_post", "Tx"),
        "Tx_np_avg(MB/s)": ("PCIe_nonpost", "Tx"),
        "Tx_cpl_avg(MB/s)": ("PCIe_cpl", "Tx"),
        "Tx_latency_avg(us)": ("PCIe_nonpost_latency", "Tx"),
        "Rx_p_avg(MB/s)": ("PCIe_post", "Rx"),
        "Rx_np_avg(MB/s)": ("PCIe_nonpost", "Rx"),
        "Rx_cpl_avg(MB/s)": ("PCIe_cpl", "Rx"),
    },
    "HCCS": {"Tx (MB/s)": ("Tx", "Tx(MB/s)"), "Rx (MB/s)": ("Rx", "Rx(MB/s)")},
}

# nic.csv and roce.csv: for each count of the database the title of the rate made of it, and its series in the timeline.
PORT_FILES = {"NIC": "nic.csv", "RoCE": "roce.csv"}
PORT_BANDWIDTH = "Bandwidth(MB/s)"  # a series of its own under that name
PORT_RATES = {
    "rxBytes": ("Rx Bandwidth efficiency(%)", "Rx Bandwidth Efficiency"),
    "rxPackets": ("rxPacket/s", "Rx Packets"),
    "rxErrors": ("rxError rate(%)", "Rx Error Rate"),
    "rxDropped": ("rxDropped rate(%)", "Rx Dropped Rate"),
    "txBytes": ("Tx Bandwidth efficiency(%)", "Tx Bandwidth Efficiency"),
    "txPackets": ("txPacket/s", "Tx Packets"),
    "txErrors": ("txError rate(%)", "Tx Error Rate"),
    "txDropped": ("txDropped rate(%)", "Tx Dropped Rate"),
}
PORT_TOTALS = tuple(PORT_RATES)  # series of their own under the names of the database, which alone shows them
PORT_SERIES = {PORT_BANDWIDTH: PORT_BANDWIDTH, **dict(PORT_RATES.values())}
_TIME = column("time_ns", "time", "Timestamp(us)", needed=True)
_PORT = column("instance", "count", "funcId", missing=NOT_KNOWN)
PORT = (DEVICE, _TIME, *(column(title, "number", title, missing=NOT_KNOWN) for title in PORT_SERIES), _PORT)


def _microseconds(key: str, title: str, without_unit: float) -> Column:
    others = {f"{title}(ms)": 1000.0, title: without_unit}
    return Column(key, "number", f"{title}(us)", others=others, missing=NOT_KNOWN, digits=3)


# data_preprocess.csv, which msprof calls aicpu. G1 gives milliseconds, except for the copy.
AICPU_FILE = "data_preprocess.csv"
AICPU = (
    DEVICE,
    column("time_ns", "time", "Timestamp(us)", "Timestamp", needed=True),
    column("node", "text", "Node", missing=NOT_KNOWN, needed=True),
    _microseconds("compute_us", "Compute_time", 1000.0),
    _microseconds("memcpy_us", "Memcpy_time", 1.0),
    _microseconds("task_us", "Task_time", 1000.0),
    _microseconds("dispatch_us", "Dispatch_time", 1000.0),
    _microseconds("total_us", "Total_time", 1000.0),
    column("stream", "count", "Stream ID", "Stream Id", missing=NOT_KNOWN),
    column("task_id", "count", "Task ID", "Task Id", missing=NOT_KNOWN),
)


def read_cache(paths: Iterable[Path], kind: str, *, quality: Quality, device: int | None = None) -> pl.DataFrame:
    """Table `cache_rates` from l2_cache csv files (kind `l2`) or soc_pmu csv files (kind `tlb`), in task order."""
    rows = _placed(read_cells(paths, CACHE[kind], quality=quality), device)
    return CACHE_RATES.conform(rows.with_columns(pl.lit(kind).alias("kind")))


def read_links(paths: Iterable[Path], source: str, *, quality: Quality, device: int | None = None) -> pl.DataFrame:
    """Table `link_summary` from pcie or hccs csv files; `source` is PCIe or HCCS."""
    rows = _placed(read_cells(paths, LINK[source], quality=quality), device)
    return LINK_SUMMARY.conform(rows.with_columns(pl.lit(source).alias("source")))


def read_ports(paths: Iterable[Path], source: str, *, quality: Quality, device: int | None = None) -> pl.DataFrame:
    """Table `counters` from nic or roce csv files: one series per column and port; `source` is NIC or RoCE."""
    known = (DEVICE, _TIME, _PORT)
    further = Further(lambda name: bool(name) and name not in titles(known).values())
    rows = _placed(read_cells(paths, known, quality=quality, further=further), device)
    index = ["device", "time_ns", "instance"]
    long = rows.unpivot([name for name in rows.columns if name not in index], index=index, variable_name="series")
    port = pl.concat_str(pl.lit("Port "), pl.col("instance").cast(pl.String).fill_null("0")).alias("name")
    return COUNTERS.conform(long.drop_nulls("value").with_columns(port, pl.lit(source).alias("source")))


def read_aicpu(paths: Iterable[Path], *, quality: Quality, device: int | None = None) -> pl.DataFrame:
    """Table `aicpu_tasks` from data_preprocess.csv or aicpu csv files."""
    return AICPU_TASKS.conform(_placed(read_cells(paths, AICPU, quality=quality), device))


def write_cache(path: Path, rows: pl.DataFrame, kind: str) -> list[Path]:
    """Write l2_cache.csv or soc_pmu.csv from rows of `cache_rates`; none without rows."""
    return write_csv(path, rows, cells(CACHE[kind], rows))


def write_links(path: Path, rows: pl.DataFrame, source: str) -> list[Path]:
    """Write pcie.csv or hccs.csv from rows of `link_summary`; none without rows."""
    return write_csv(path, rows, cells(LINK[source], rows))


def write_ports(path: Path, rows: pl.DataFrame) -> list[Path]:
    """Write nic.csv or roce.csv; none without rows. A column that the rows lack is not known."""
    there = [pl.lit(None, pl.Float64).alias(title) for title in PORT_SERIES if title not in rows.columns]
    rows = rows.with_columns(there)
    return write_csv(path, rows, cells(PORT, rows))


def write_aicpu(path: Path, rows: pl.DataFrame) -> list[Path]:
    """Write data_preprocess.csv from rows of `aicpu_tasks`; none without rows."""
    return write_csv(path, rows, cells(AICPU, rows))


def _placed(rows: pl.DataFrame, device: int | None) -> pl.DataFrame:
    return rows.with_columns(pl.col("device").fill_null(pl.lit(device)).cast(pl.Int32))
