# SPDX-License-Identifier: Apache-2.0
"""Csv files about memory: totals of allocators, blocks of operators, samples of the device itself (docs/formats/outputs.md 8)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import polars as pl

from stepscope.formats.ascend.cells import Quality, read_cells
from stepscope.formats.ascend.columns import DEVICE, Column, cells, column, without
from stepscope.render.csv_file import quoted, write_csv
from stepscope.render.lines import Numbers, Part, Text
from stepscope.render.microseconds import shown_us
from stepscope.render.number_forms import THOUSANDTHS_TAB
from stepscope.tables import ALL_TABLES, TEXT, issues, lost

EVENTS, ALLOCATIONS, COUNTERS = ALL_TABLES["memory_events"], ALL_TABLES["allocations"], ALL_TABLES["counters"]

KB, MB = 1024.0, 1048576.0  # docs/formats/enums.md 7
NPU_MEM = "NPU MEM"
MODULE_MEM = "NPU Module Mem"
MODULE_SERIES = "Total Reserved(KB)"


def _size(key: str, title: str) -> Column:
    """A size: torch_npu writes MB, msprof KB (docs/formats/enums.md 9)."""
    return Column(key, "number", f"{title}(MB)", MB, others={f"{title}(KB)": KB})


_TOTALS = ("allocated", "reserved", "active")
_TAG = column("tag", "text", "Device Type", "Device", DEVICE.title)
_TIME = column("time_ns", "time", "Timestamp(us)", needed=True)
_STREAM = column("stream_ptr", "count", "Stream Ptr")

# memory_record.csv (docs/formats/outputs.md 8.4)
RECORD_FILE = "memory_record.csv"
RECORD = (
    column("component", "text", "Component", needed=True),
    _TIME,
    *(_size(f"total_{word}", f"Total {word.capitalize()}") for word in _TOTALS),
    _STREAM,
    _TAG,
)

# operator_memory.csv (docs/formats/outputs.md 8.3)
ALLOCATION_FILE = "operator_memory.csv"
ALLOCATION = (
    column("name", "text", "Name"),
    column("bytes", "number", "Size(KB)", unit=KB, needed=True),
    column("start_ns", "time", "Allocation Time(us)", needed=True),
    column("release_ns", "time", "Release Time(us)"),
    column("active_release_ns", "time", "Active Release Time(us)"),
    column("duration", "time", "Duration(us)"),
    column("active_duration", "time", "Active Duration(us)"),
    *(_size(f"alloc_total_{word}", f"Allocation Total {word.capitalize()}") for word in _TOTALS),
    *(_size(f"release_total_{word}", f"Release Total {word.capitalize()}") for word in _TOTALS),
    _STREAM,
    _TAG,
)
_GE_PREFIX = "cann::"  # of operators of the graph engine

# npu_mem, which only msprof writes (docs/formats/enums.md 6 and 9)
_SAMPLE = (
    column("tag", "text", DEVICE.title),
    column("event", "text", "event", needed=True),
    column("DDR", "number", "ddr(KB)"),
    column("HBM", "number", "hbm(KB)"),
    column("Memory", "number", "memory(KB)"),
    column("time_ns", "time", "timestamp(us)", _TIME.title, needed=True),
)

# npu_module_mem.csv (docs/formats/outputs.md 8.5)
MODULE_FILE = "npu_module_mem.csv"
MODULE = (
    DEVICE,
    column("name", "text", "Component", needed=True),
    _TIME,
    Column("value", "number", "Total Reserved(MB)", KB, others={MODULE_SERIES: 1.0}, needed=True),
    column("tag", "text", "Device", _TAG.title, DEVICE.title),
)


def read_records(paths: Iterable[Path], *, quality: Quality, device: int | None = None) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Tables `memory_events` and `counters` from memory_record csv files.

    Rows `PTA+GE` are sums of others and left out; rows `APP` are samples of the device, thus counters.
    """
    rows = _placed(read_cells(paths, RECORD, quality=quality), device)
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
    rows = _placed(read_cells(paths, without(ALLOCATION, "active_duration"), quality=quality), device)
    # docs/formats/outputs.md 8.3: a release whose allocation was before the capture has a negative size.
    real = rows.filter(pl.col("bytes") >= 0)
    quality.append(lost(issues.ALLOCATED_BEFORE_RECORDING, _called(paths), rows.height - real.height))
    name = pl.col("name").cast(pl.String)
    # Only files of msprof lack the framework's columns, and all their rows are of GE.
    of_framework = real["alloc_total_active"].is_not_null().any() or real["stream_ptr"].is_not_null().any()
    of_ge = name.str.starts_with(_GE_PREFIX).fill_null(False) | pl.lit(not of_framework)
    return ALLOCATIONS.conform(
        real.with_columns(
            pl.when(of_ge).then(pl.lit("GE")).otherwise(pl.lit("PTA")).alias("component"),
            name.str.strip_prefix(_GE_PREFIX).cast(TEXT).alias("name"),
            pl.col("bytes").round().cast(pl.Int64),
            # docs/formats/outputs.md 8.3: msprof gives the duration in place of the release.
            pl.coalesce("release_ns", pl.when(of_ge).then(pl.col("start_ns") + pl.col("duration"))).alias("release_ns"),
        )
    )


def read_samples(paths: Iterable[Path], *, quality: Quality, device: int | None = None) -> pl.DataFrame:
    """Table `counters`, source `NPU MEM`, from npu_mem csv files (docs/formats/enums.md 6 and 9)."""
    rows = _placed(read_cells(paths, _SAMPLE, quality=quality), device)
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
    rows = _placed(read_cells(paths, without(MODULE, "device"), quality=quality), device)
    return COUNTERS.conform(rows.with_columns(pl.lit(MODULE_MEM).alias("source"), pl.lit(MODULE_SERIES).alias("series")))


def write_records(path: Path, rows: pl.DataFrame, *, with_stream: bool = True) -> list[Path]:
    """Write memory_record.csv; none without rows. MindSpore's does not name the stream."""
    columns = RECORD if with_stream else without(RECORD, _STREAM.key)
    return write_csv(path, rows, cells(columns, rows))


def write_allocations(path: Path, rows: pl.DataFrame) -> list[Path]:
    """Write operator_memory.csv from rows of `allocations` with `tag`; none without rows."""
    rows = rows.with_columns((pl.col("component") == "GE").fill_null(False).alias("of_ge"))
    special: dict[str, list[Part]] = {
        "name": [pl.when("of_ge").then(pl.lit(_GE_PREFIX)), Text("name", quoted)],
        "duration": _lifetime(rows, "release_ns"),
        "active_duration": _lifetime(rows, "active_release_ns"),
    }
    return write_csv(path, rows, cells(ALLOCATION, rows, **special))


def _lifetime(rows: pl.DataFrame, end: str) -> list[Part]:
    """Blocks of the framework as a time with TAB, those of the graph engine as a plain number (docs/formats/outputs.md 8.3)."""
    lasted = pl.col(end) - pl.col("start_ns")
    ours, plain = rows.select(pl.when(~pl.col("of_ge")).then(lasted).alias("ours"), pl.when("of_ge").then(lasted).alias("plain"))
    return [Numbers(ours, THOUSANDTHS_TAB), shown_us(plain)]


def write_modules(path: Path, rows: pl.DataFrame) -> list[Path]:
    """Write npu_module_mem.csv from rows of `counters` with `tag`; none without rows."""
    return write_csv(path, rows, cells(MODULE, rows))


def with_tag(rows: pl.DataFrame) -> pl.DataFrame:
    """Add the tag of the device: `NPU:0`, `GPU:0` or `CPU`."""
    word = pl.col("device_type").cast(pl.String).replace_strict({"cuda": "GPU:", "cpu": "CPU"}, default="NPU:")
    number = (
        pl.when(pl.col("device_type").ne_missing("cpu")).then(pl.col("device").fill_null(0).cast(pl.String)).otherwise(pl.lit(""))
    )
    kinds = rows.select("device_type", "device").unique()
    tags = kinds.with_columns((word.fill_null("NPU:") + number).cast(TEXT).alias("tag"))
    if tags.height == 1:
        return rows.with_columns(tags["tag"].new_from_index(0, rows.height))
    return rows.join(tags, on=["device_type", "device"], how="left", nulls_equal=True, maintain_order="left")


def _placed(rows: pl.DataFrame, device: int | None) -> pl.DataFrame:
    """Device and its type from a tag, the reverse of `with_tag` (docs/formats/enums.md 7): `NPU:{id}`, `CPU`, or a plain number."""
    tag = pl.col("tag").cast(pl.String)
    on_host = tag.str.to_uppercase().str.starts_with("CPU").fill_null(False)
    number = tag.str.extract(r"(\d+)$").cast(pl.Int32, strict=False).fill_null(pl.lit(device, dtype=pl.Int32))
    return rows.with_columns(
        pl.when(~on_host).then(number).alias("device"),
        pl.when(on_host).then(pl.lit("cpu")).otherwise(pl.lit("npu")).cast(TEXT).alias("device_type"),
    )


def _called(paths: list[Path]) -> str:
    return paths[0].name if paths else ""
