# SPDX-License-Identifier: Apache-2.0
"""Memory records of a database: allocator events and blocks (docs/formats/outputs.md 8.3, 8.4)."""

from __future__ import annotations

import polars as pl

from stepscope.formats.ascend.db.columns import OP_MEMORY, OP_MEMORY_TOTALS, TOTALS, pid_tid, read
from stepscope.formats.ascend.db.database import Database
from stepscope.formats.ascend.db.schema import OLD_MEMORY_WORDS
from stepscope.tables import ALL_TABLES, TEXT


def read_memory(db: Database) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Tables memory_events and allocations."""
    runtime = _runtime_events(db)
    records = _records(db)
    # The runtime's records are in both tables, but only one tells who allocated what.
    own = ["PTA+GE", "GE"] if runtime.height else ["PTA+GE"]
    records = records.filter(~pl.col("component").is_in(own).fill_null(False))
    events = ALL_TABLES["memory_events"].conform(pl.concat([records, runtime], how="diagonal"))
    blocks = _blocks(db)
    if runtime.height and not blocks.filter(pl.col("component") == "GE").height:
        blocks = pl.concat([blocks, _runtime_blocks(runtime)], how="diagonal")
    return events, ALL_TABLES["allocations"].conform(blocks)


def _records(db: Database) -> pl.DataFrame:
    return db.frame("MEMORY_RECORD", required=("timestamp",)).select(
        pl.col("timestamp").alias("time_ns"),
        "component",
        _npu(),
        pl.col("deviceId").cast(pl.Int32).alias("device"),
        *(pl.col(f"total{old}").cast(pl.Float64).alias(new) for old, new in TOTALS.items()),
        pl.col("streamPtr").alias("stream_ptr"),
    )


def _runtime_events(db: Database) -> pl.DataFrame:
    rows = db.frame("NPU_OP_MEM", required=("timestampNs",))
    kind = rows["type"]
    if rows.height and db.has("ENUM_MEMORY"):
        numbers = db.frame("NPU_OP_MEM", required=("timestampNs",), raw=("type",))["type"]
        kind = numbers.replace_strict(OLD_MEMORY_WORDS, default=None, return_dtype=pl.String).cast(TEXT)
    released = kind == "release"
    action = pl.when(released).then(pl.lit("free")).when(kind == "allocate").then(pl.lit("malloc"))
    return rows.select(
        *pid_tid(),
        pl.col("timestampNs").alias("time_ns"),
        "component",
        _npu(),
        pl.col("deviceId").cast(pl.Int32).alias("device"),
        action.cast(TEXT).alias("action"),
        pl.col("addr").alias("ptr"),
        pl.when(released).then(-pl.col("size").abs()).otherwise(pl.col("size")).alias("bytes"),
        pl.col("totalAllocate").alias("total_allocated"),
        pl.col("totalReserve").alias("total_reserved"),
        pl.col("operatorName").alias("op_name"),
    ).sort("time_ns", maintain_order=True)


def _blocks(db: Database) -> pl.DataFrame:
    rows = db.frame("OP_MEMORY", required=("allocationTime",))
    # Only the framework's allocator knows of streams and active memory (docs/formats/outputs.md 8.3).
    of_framework = pl.col("streamPtr").is_not_null() | pl.col("allocationTotalActive").is_not_null()
    return rows.select(
        "name",
        pl.when(of_framework).then(pl.lit("PTA")).otherwise(pl.lit("GE")).cast(TEXT).alias("component"),
        _npu(),
        pl.col("deviceId").cast(pl.Int32).alias("device"),
        *read(OP_MEMORY),
        *(pl.col(name).cast(pl.Float64).alias(column) for name, column in OP_MEMORY_TOTALS.items()),
    )


def _runtime_blocks(events: pl.DataFrame) -> pl.DataFrame:
    """Pair by (operator, address, device): an allocation is closed by the next release (docs/formats/outputs.md 8.3)."""
    key = ["op_name", "ptr", "device"]
    ordered = events.filter(pl.col("action").is_not_null())
    following = [
        pl.col(name).shift(-1).over(key).alias(f"next_{name}")
        for name in ("action", "time_ns", "total_allocated", "total_reserved")
    ]
    allocated = ordered.with_columns(following).filter(pl.col("action") == "malloc")
    closed = pl.col("next_action") == "free"
    return allocated.select(
        "pid",
        "tid",
        pl.col("op_name").alias("name"),
        "component",
        "device_type",
        "device",
        "ptr",
        "bytes",
        pl.col("time_ns").alias("start_ns"),
        pl.when(closed).then("next_time_ns").alias("release_ns"),
        pl.col("total_allocated").alias("alloc_total_allocated"),
        pl.col("total_reserved").alias("alloc_total_reserved"),
        pl.when(closed).then("next_total_allocated").alias("release_total_allocated"),
        pl.when(closed).then("next_total_reserved").alias("release_total_reserved"),
    )


def _npu() -> pl.Expr:
    return pl.lit("npu").cast(TEXT).alias("device_type")
