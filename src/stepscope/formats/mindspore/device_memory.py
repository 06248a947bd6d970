# SPDX-License-Identifier: Apache-2.0
"""MindSpore's records of device memory and input shapes, written with an accelerator (docs/formats/mindspore.md 7.4, 7.5)."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from stepscope.formats.mindspore.cpu_files import COMPONENT
from stepscope.formats.mindspore.records import MEMORY_USAGE, RECORD_SHAPES, read_layout
from stepscope.tables import ALL_TABLES

_FREE = (1 << 64) - 1  # as size


def memory_events(folder: Path, quality: list[pl.DataFrame]) -> pl.DataFrame:
    """Table `memory_events`; a free has the size of the block that lay at its address."""
    path = folder / "mindspore.memory_usage"
    if not path.is_file() or path.is_symlink():
        return ALL_TABLES["memory_events"].empty()
    raw = read_layout(path, MEMORY_USAGE, quality).sort("time", maintain_order=True)
    is_free = pl.col("size") == _FREE
    size = pl.when(~is_free).then(pl.col("size").cast(pl.Int64, strict=False))
    rows = raw.with_columns(size.alias("given")).with_columns(pl.col("given").forward_fill().over("address").alias("block"))
    return ALL_TABLES["memory_events"].conform(
        rows.select(
            pl.col("pid", "tid").cast(pl.Int64, strict=False),
            pl.col("time").cast(pl.Int64, strict=False).alias("time_ns"),
            pl.lit(COMPONENT).alias("component"),
            pl.lit("npu").alias("device_type"),
            "device",
            pl.when(is_free).then(pl.lit("free")).otherwise(pl.lit("malloc")).alias("action"),
            pl.lit(True).alias("inner"),
            pl.col("address").reinterpret(signed=True).alias("ptr"),
            pl.when(is_free).then(-pl.col("block")).otherwise("given").alias("bytes"),
            pl.col("used").cast(pl.Float64).alias("total_allocated"),
            pl.col("alloc").cast(pl.Float64).alias("total_reserved"),
            (pl.col("used") + pl.col("used_by_event")).cast(pl.Float64).alias("total_active"),
            pl.col("stream_ptr").reinterpret(signed=True),
            pl.col("owner").alias("op_name"),
        ).filter(pl.col("time_ns").is_not_null())
    )


def input_shapes(folder: Path, quality: list[pl.DataFrame]) -> pl.DataFrame:
    """Operators with the shapes of their inputs, in the order recorded: name, shapes, dtypes."""
    path = folder / "mindspore.record_shapes"
    if not path.is_file() or path.is_symlink():
        return pl.DataFrame(schema=dict.fromkeys(("name", "shapes", "dtypes"), pl.String))
    return read_layout(path, RECORD_SHAPES, quality)
