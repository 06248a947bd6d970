# SPDX-License-Identifier: Apache-2.0
"""memory_record.csv, operator_memory.csv and npu_module_mem.csv (outputs.md 8)."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from stepscope.analysis.memory.blocks import record_rows
from stepscope.formats.ascend.db.schema import ENUMS, OLD_ENUMS
from stepscope.render.csv_file import NOT_KNOWN, Cells, fraction, moment, quoted, text, whole, write_csv
from stepscope.render.lines import Numbers, Text
from stepscope.render.microseconds import shown_us
from stepscope.render.number_forms import THOUSANDTHS_TAB
from stepscope.tables import TEXT, Tables

KB, MB = 1024.0, 1048576.0
SAMPLED = "NPU MEM"
MODULES = "NPU Module Mem"
# Captures of 2025 have components that the current enumeration no longer names (enums.md 1).
_MODULE_NUMBER = {name: number for number, name in (*ENUMS["ENUM_MODULE"].items(), *OLD_ENUMS["ENUM_MODULE"].items())}
_LIFETIMES = {"release_ns": "lifetime", "active_release_ns": "active lifetime"}


def write_memory_record(tables: Tables, folder: Path) -> list[Path]:
    """Totals after every allocator event, after the samples of the whole device."""
    rows = with_device(record_rows(tables.memory_events))
    if not (rows["component"] == "APP").any():
        rows = pl.concat([app_samples(tables.counters), rows], how="diagonal_relaxed")
    columns = [
        text("Component", "component"),
        moment("Timestamp(us)", rows, "time_ns"),
        fraction("Total Allocated(MB)", rows["total_allocated"] / MB),
        fraction("Total Reserved(MB)", rows["total_reserved"] / MB),
        fraction("Total Active(MB)", rows["total_active"] / MB),
        whole("Stream Ptr", "stream_ptr"),
        text("Device Type", "tag"),
    ]
    return write_csv(folder / "memory_record.csv", rows, columns)


def write_operator_memory(tables: Tables, folder: Path) -> list[Path]:
    """Every block from its allocation to its release: those of the framework, then those of the graph engine."""
    of_ge = (pl.col("component") == "GE").fill_null(False)
    rows = tables.allocations.filter(pl.col("device_type").ne_missing("cpu"))
    rows = with_device(rows if rows.height else tables.allocations).with_columns(of_ge.alias("of_ge"))
    rows = _with_lifetimes(rows.sort("of_ge", maintain_order=True))
    columns: list[Cells] = [
        ("Name", [pl.when("of_ge").then(pl.lit("cann::")), Text("name", quoted)]),
        fraction("Size(KB)", rows["bytes"] / KB),
        moment("Allocation Time(us)", rows, "start_ns"),
        moment("Release Time(us)", rows, "release_ns"),
        moment("Active Release Time(us)", rows, "active_release_ns"),
        _lifetime("Duration(us)", rows, "lifetime"),
        _lifetime("Active Duration(us)", rows, "active lifetime"),
        *_totals(rows, "Allocation", "alloc"),
        *_totals(rows, "Release", "release"),
        whole("Stream Ptr", "stream_ptr"),
        text("Device Type", "tag"),
    ]
    return write_csv(folder / "operator_memory.csv", rows, columns)


def write_module_memory(tables: Tables, folder: Path) -> list[Path]:
    """What each component of the runtime holds on the device, in the order of the components' numbers."""
    rows = with_device(tables.counters.filter(pl.col("source") == MODULES).with_columns(pl.lit("npu").alias("device_type")))
    number = pl.col("name").cast(pl.String).replace_strict(_MODULE_NUMBER, default=1000, return_dtype=pl.Int64)
    rows = rows.with_columns(number.alias("module")).sort("device", "module", "name", "time_ns", maintain_order=True)
    columns = [
        whole("Device_id", "device", NOT_KNOWN),
        text("Component", "name"),
        moment("Timestamp(us)", rows, "time_ns"),
        fraction("Total Reserved(MB)", rows["value"] / KB),
        text("Device", "tag"),
    ]
    return write_csv(folder / "npu_module_mem.csv", rows, columns)


def with_device(rows: pl.DataFrame) -> pl.DataFrame:
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


def app_samples(counters: pl.DataFrame) -> pl.DataFrame:
    """Samples of what the process holds on the device; its two memories summed where the sum itself was not kept."""
    app = counters.filter((pl.col("source") == SAMPLED) & pl.col("name").is_in(["APP/Memory", "APP/HBM", "APP/DDR"]))
    whole_memory = app.filter(pl.col("name") == "APP/Memory")
    kept = whole_memory if whole_memory.height else app
    rows = kept.group_by("device", "time_ns", maintain_order=True).agg((pl.col("value").sum() * KB).alias("total_reserved"))
    named = rows.sort("time_ns", maintain_order=True).with_columns(
        pl.lit("APP").cast(TEXT).alias("component"), pl.lit("npu").cast(TEXT).alias("device_type")
    )
    return with_device(named)


def _with_lifetimes(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns((pl.col(end) - pl.col("start_ns")).alias(name) for end, name in _LIFETIMES.items())


def _lifetime(title: str, rows: pl.DataFrame, name: str) -> Cells:
    """Blocks of the framework as a time with TAB, those of the graph engine as a plain number (outputs.md 8.3)."""
    ours, plain = rows.select(pl.when(~pl.col("of_ge")).then(name).alias("ours"), pl.when("of_ge").then(name).alias("plain"))
    return title, [Numbers(ours, THOUSANDTHS_TAB), shown_us(plain)]


def _totals(rows: pl.DataFrame, word: str, prefix: str) -> list[Cells]:
    kinds = ("Allocated", "Reserved", "Active")
    return [fraction(f"{word} Total {kind}(MB)", rows[f"{prefix}_total_{kind.lower()}"] / MB) for kind in kinds]
