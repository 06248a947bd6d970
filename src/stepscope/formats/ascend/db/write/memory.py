# SPDX-License-Identifier: Apache-2.0
"""Memory tables of the profiler database: rows from tables (docs/formats/outputs.md 8.3, 8.4)."""

from __future__ import annotations

import polars as pl

from stepscope.formats.ascend.db.columns import OP_MEMORY, OP_MEMORY_TOTALS, TOTALS, global_tid, written
from stepscope.formats.ascend.db.schema import MEMORY_STRINGS
from stepscope.formats.ascend.db.string_ids import StringIds
from stepscope.tables import TEXT, Tables


def memory_rows(records: pl.DataFrame, allocations: pl.DataFrame, strings: StringIds) -> dict[str, pl.DataFrame]:
    """MEMORY_RECORD and OP_MEMORY.

    Args:
        records: totals after every event of an allocator on a device, sums of several allocators among them.
        allocations: table of that name.
        strings: texts that the rows name by number.
    """
    return {"MEMORY_RECORD": _records(records, strings), "OP_MEMORY": _blocks(allocations.filter(on_device()), strings)}


def on_device() -> pl.Expr:
    """Whether a row of `memory_events` or `allocations` is about memory of a device."""
    return pl.col("device_type").ne_missing("cpu")


def _records(rows: pl.DataFrame, strings: StringIds) -> pl.DataFrame:
    # Samples of the whole device (APP) are in NPU_MEM only (docs/formats/outputs.md 13).
    rows = rows.filter(pl.col("component").ne_missing("APP"))
    return rows.select(
        strings.of(rows["component"], MEMORY_STRINGS, missing="PTA").alias("component"),
        pl.col("time_ns").alias("timestamp"),
        *(pl.col(column).cast(pl.Int64, strict=False).alias(f"total{name}") for name, column in TOTALS.items()),
        pl.col("stream_ptr").alias("streamPtr"),
        pl.col("device").cast(pl.Int64).alias("deviceId"),
    )


def _blocks(rows: pl.DataFrame, strings: StringIds) -> pl.DataFrame:
    """OP_MEMORY: blocks of the framework by time, then those of the runtime."""
    rows = rows.sort((pl.col("component") == "GE").fill_null(False), "start_ns", maintain_order=True)
    return rows.select(
        strings.of(rows["name"], MEMORY_STRINGS, missing="").alias("name"),
        *written(OP_MEMORY),
        (pl.col("release_ns") - pl.col("start_ns")).alias("duration"),
        (pl.col("active_release_ns") - pl.col("start_ns")).alias("activeDuration"),
        *(pl.col(column).cast(pl.Int64, strict=False).alias(name) for name, column in OP_MEMORY_TOTALS.items()),
        pl.col("device").cast(pl.Int64).alias("deviceId"),
    )


def runtime_memory_rows(tables: Tables, strings: StringIds) -> pl.DataFrame:
    """NPU_OP_MEM: what the runtime allocated and released for its operators."""
    rows = tables["memory_events"].filter(on_device() & pl.col("op_name").is_not_null())
    word = pl.when(pl.col("action") == "malloc").then(pl.lit("allocate")).otherwise(pl.lit("release")).cast(TEXT)
    kind = rows.select(word.alias("type"))["type"]
    return rows.select(
        strings.of(rows["op_name"], 0).alias("operatorName"),
        pl.col("ptr").alias("addr"),
        strings.of(kind, 0).alias("type"),
        pl.col("bytes").abs().alias("size"),
        pl.col("time_ns").alias("timestampNs"),
        global_tid().alias("globalTid"),
        pl.col("total_allocated").alias("totalAllocate"),
        pl.col("total_reserved").alias("totalReserve"),
        strings.of(rows["component"], 0, missing="GE").alias("component"),
        pl.col("device").cast(pl.Int64).alias("deviceId"),
    )
