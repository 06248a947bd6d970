# SPDX-License-Identifier: Apache-2.0
"""Which rows memory_record.csv, operator_memory.csv and npu_module_mem.csv get (docs/formats/outputs.md 8)."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from stepscope.analysis.memory.blocks import record_rows
from stepscope.formats.ascend import memory
from stepscope.formats.ascend.db.schema import ENUMS, OLD_ENUMS
from stepscope.formats.ascend.memory import KB, with_tag
from stepscope.tables import TEXT, Tables

# Captures of 2025 have components that the current enumeration no longer names (docs/formats/enums.md 1).
_MODULE_NUMBER = {name: number for number, name in (*ENUMS["ENUM_MODULE"].items(), *OLD_ENUMS["ENUM_MODULE"].items())}
# MindSpore's allocator under the name of PyTorch's, whose totals are summed with those of the graph engine; and back.
_AS_PYTORCH, _AS_MINDSPORE = {"MindSpore": "PTA"}, {"PTA": "MindSpore", "PTA+GE": "MindSpore+GE"}


def write_memory_record(tables: Tables, folder: Path) -> list[Path]:
    """Totals after every allocator event, after the samples of the whole device."""
    rows = with_tag(record_rows(tables.memory_events))
    return memory.write_records(folder / memory.RECORD_FILE, _with_samples(rows, tables.counters))


def write_memory_record_of_mindspore(tables: Tables, folder: Path) -> list[Path]:
    """As `write_memory_record`, with the names that MindSpore has for its allocators."""
    renamed = tables.memory_events.with_columns(_words("component", _AS_PYTORCH))
    rows = with_tag(record_rows(renamed)).with_columns(_words("component", _AS_MINDSPORE))
    return memory.write_records(folder / memory.RECORD_FILE, _with_samples(rows, tables.counters), with_stream=False)


def write_operator_memory(tables: Tables, folder: Path) -> list[Path]:
    """Every block from its allocation to its release: those of the framework, then those of the graph engine."""
    rows = tables.allocations.filter(pl.col("device_type").ne_missing("cpu"))
    rows = with_tag(rows if rows.height else tables.allocations)
    rows = rows.sort((pl.col("component") == "GE").fill_null(False), maintain_order=True)
    return memory.write_allocations(folder / memory.ALLOCATION_FILE, rows)


def write_module_memory(tables: Tables, folder: Path) -> list[Path]:
    """What each component of the runtime holds on the device, in the order of the components' numbers."""
    samples = tables.counters.filter(pl.col("source") == memory.MODULE_MEM)
    rows = with_tag(samples.with_columns(pl.lit("npu").alias("device_type")))
    number = pl.col("name").cast(pl.String).replace_strict(_MODULE_NUMBER, default=1000, return_dtype=pl.Int64)
    rows = rows.with_columns(number.alias("module")).sort("device", "module", "name", "time_ns", maintain_order=True)
    return memory.write_modules(folder / memory.MODULE_FILE, rows)


def _with_samples(rows: pl.DataFrame, counters: pl.DataFrame) -> pl.DataFrame:
    if (rows["component"] == "APP").any():
        return rows
    return pl.concat([app_samples(counters), rows], how="diagonal_relaxed")


def _words(column: str, words: dict[str, str]) -> pl.Expr:
    return pl.col(column).cast(pl.String).replace(words).cast(TEXT)


def app_samples(counters: pl.DataFrame) -> pl.DataFrame:
    """Samples of what the process holds on the device; its two memories summed where the sum itself was not kept."""
    app = counters.filter((pl.col("source") == memory.NPU_MEM) & pl.col("name").is_in(["APP/Memory", "APP/HBM", "APP/DDR"]))
    whole_memory = app.filter(pl.col("name") == "APP/Memory")
    kept = whole_memory if whole_memory.height else app
    rows = kept.group_by("device", "time_ns", maintain_order=True).agg((pl.col("value").sum() * KB).alias("total_reserved"))
    named = rows.sort("time_ns", maintain_order=True).with_columns(
        pl.lit("APP").cast(TEXT).alias("component"), pl.lit("npu").cast(TEXT).alias("device_type")
    )
    return with_tag(named)
