# SPDX-License-Identifier: Apache-2.0
"""Memory over time from csv files: allocator totals, allocations, and what the device itself sampled."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import polars as pl

from stepscope.formats.ascend.cells import Quality, read_cells
from stepscope.formats.ascend.columns import Column, column
from stepscope.tables import ALL_TABLES, TEXT, lost

EVENTS, ALLOCATIONS, COUNTERS = ALL_TABLES["memory_events"], ALL_TABLES["allocations"], ALL_TABLES["counters"]

KB, MB = 1024.0, 1048576.0  # enums.md 7
NPU_MEM = "NPU MEM"
MODULE_MEM = "NPU Module Mem"


def _bytes(to: str, title: str) -> Column:
    """A size: torch_npu writes MB, msprof KB (enums.md 9)."""
    return Column(to, "number", f"{title}(MB)", MB, others={f"{title}(KB)": KB})


_TAG = column("tag", "text", "Device Type", "Device", "Device_id")

# outputs.md 8.4
_RECORD_CELLS = (
    column("component", "text", "Component", needed=True),
    column("time_ns", "time", "Timestamp(us)", needed=True),
    _bytes("total_allocated", "Total Allocated"),
    _bytes("total_reserved", "Total Reserved"),
    _bytes("total_active", "Total Active"),
    column("stream_ptr", "count", "Stream Ptr"),
    _TAG,
)

# outputs.md 8.3
_ALLOCATION_CELLS = (
    column("name", "text", "Name"),
    column("bytes", "number", "Size(KB)", unit=KB, needed=True),
    column("start_ns", "time", "Allocation Time(us)", needed=True),
    column("release_ns", "time", "Release Time(us)"),
    column("active_release_ns", "time", "Active Release Time(us)"),
    column("duration", "time", "Duration(us)"),
    _bytes("alloc_total_allocated", "Allocation Total Allocated"),
    _bytes("alloc_total_reserved", "Allocation Total Reserved"),
    _bytes("alloc_total_active", "Allocation Total Active"),
    _bytes("release_total_allocated", "Release Total Allocated"),
    _bytes("release_total_reserved", "Release Total Reserved"),
    _bytes("release_total_active", "Release Total Active"),
    column("stream_ptr", "count", "Stream Ptr"),
    _TAG,
)

_SAMPLE_CELLS = (
    column("tag", "text", "Device_id"),
    column("event", "text", "event", needed=True),
    column("DDR", "number", "ddr(KB)"),
    column("HBM", "number", "hbm(KB)"),
    column("Memory", "number", "memory(KB)"),
    column("time_ns", "time", "timestamp(us)", "Timestamp(us)", needed=True),
)

# outputs.md 8.5
_MODULE_CELLS = (
    column("name", "text", "Component", needed=True),
    column("time_ns", "time", "Timestamp(us)", needed=True),
    Column("value", "number", "Total Reserved(MB)", KB, others={"Total Reserved(KB)": 1.0}, needed=True),
    _TAG,
)


def read_records(paths: Iterable[Path], *, quality: Quality, device: int | None = None) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Tables `memory_events` and `counters` from memory_record csv files.

    Rows `PTA+GE` are sums of others and left out; rows `APP` are samples of the device, thus counters.
    """
    rows = _placed(read_cells(paths, _RECORD_CELLS, quality=quality), device)
    component = pl.col("component").cast(pl.String)
    samples = rows.filter(component == "APP").select(
        pl.lit(NPU_MEM).alias("source"),
        pl.lit("APP/Memory").alias("name"),
        pl.lit("KB").alias("series"),
        "device",
        "time_ns",
        (pl.col("total_reserved") / KB).alias("value"),
    )
    events = rows.filter(~component.is_in(["APP", "PTA+GE"]))
    return EVENTS.conform(events), COUNTERS.conform(samples)


def read_allocations(paths: Iterable[Path], *, quality: Quality, device: int | None = None) -> pl.DataFrame:
    """Table `allocations` from operator_memory csv files of torch_npu or msprof."""
    paths = list(paths)
    rows = _placed(read_cells(paths, _ALLOCATION_CELLS, quality=quality), device)
    # outputs.md 8.3: a release whose allocation was before the capture has a negative size.
    real = rows.filter(pl.col("bytes") >= 0)
    quality.append(lost(_called(paths), "releases without allocation", rows.height - real.height))
    name = pl.col("name").cast(pl.String)
    # Only files of msprof lack the framework's columns, and all their rows are of GE.
    of_framework = real["alloc_total_active"].is_not_null().any() or real["stream_ptr"].is_not_null().any()
    of_ge = name.str.starts_with("cann::").fill_null(False) | pl.lit(not of_framework)
    return ALLOCATIONS.conform(
        real.with_columns(
            pl.when(of_ge).then(pl.lit("GE")).otherwise(pl.lit("PTA")).alias("component"),
            name.str.strip_prefix("cann::").cast(TEXT).alias("name"),
            pl.col("bytes").round().cast(pl.Int64),
            # outputs.md 8.3: msprof gives the duration in place of the release.
            pl.coalesce("release_ns", pl.when(of_ge).then(pl.col("start_ns") + pl.col("duration"))).alias("release_ns"),
        )
    )


def read_samples(paths: Iterable[Path], *, quality: Quality, device: int | None = None) -> pl.DataFrame:
    """Table `counters`, source `NPU MEM`, from npu_mem csv files (enums.md 6 and 9)."""
    rows = _placed(read_cells(paths, _SAMPLE_CELLS, quality=quality), device)
    long = rows.unpivot(["DDR", "HBM", "Memory"], index=["device", "event", "time_ns"], variable_name="what").drop_nulls("value")
    event = pl.col("event").cast(pl.String).str.to_lowercase()
    who = event.replace({"app": "APP", "device": "Device"})
    return COUNTERS.conform(
        long.with_columns(
            pl.lit(NPU_MEM).alias("source"), pl.concat_str(who, pl.lit("/"), "what").alias("name"), pl.lit("KB").alias("series")
        )
    )


def read_modules(paths: Iterable[Path], *, quality: Quality, device: int | None = None) -> pl.DataFrame:
    """Table `counters`, source `NPU Module Mem`, from npu_module_mem csv files; -1 means that only releases were seen."""
    rows = _placed(read_cells(paths, _MODULE_CELLS, quality=quality), device)
    return COUNTERS.conform(rows.with_columns(pl.lit(MODULE_MEM).alias("source"), pl.lit("Total Reserved(KB)").alias("series")))


def _placed(rows: pl.DataFrame, device: int | None) -> pl.DataFrame:
    """Device and its type from a tag (enums.md 7): `NPU:{id}`, `CPU`, or a plain number."""
    tag = pl.col("tag").cast(pl.String)
    on_host = tag.str.to_uppercase().str.starts_with("CPU").fill_null(False)
    number = tag.str.extract(r"(\d+)$").cast(pl.Int32, strict=False).fill_null(pl.lit(device, dtype=pl.Int32))
    return rows.with_columns(
        pl.when(~on_host).then(number).alias("device"),
        pl.when(on_host).then(pl.lit("cpu")).otherwise(pl.lit("npu")).cast(TEXT).alias("device_type"),
    )


def _called(paths: list[Path]) -> str:
    return paths[0].name if paths else ""
