# SPDX-License-Identifier: Apache-2.0
"""Operators whose floating-point operations are known: how many per byte, and how many per second."""

from __future__ import annotations

import math
import re

import polars as pl

from stepscope.analysis.operators import operator_times
from stepscope.tables import Tables

WIDTHS = {
    "float": 4, "float32": 4, "float16": 2, "half": 2, "bfloat16": 2, "bf16": 2, "double": 8, "float64": 8, "int8": 1, "uint8": 1,
    "char": 1, "byte": 1, "unsigned char": 1, "bool": 1, "int16": 2, "short": 2, "int32": 4, "int": 4, "int64": 8, "long": 8,
    "long int": 8, "signed char": 1, "hifloat8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip


def tensor_bytes(shapes: str | None, dtypes: str | None) -> int:
    """Bytes of tensors whose shapes and types are known, such as `2,3;4` and `float;int64`; others count nothing."""
    total = 0
    for shape, dtype in zip((shapes or "").strip('"').split(";"), (dtypes or "").split(";"), strict=False):
        sizes = re.findall(r"\d+", shape)
        word = dtype.strip().lower().removeprefix("dt_").removeprefix("c10::")
        total += math.prod(map(int, sizes)) * WIDTHS.get(word, 0) if sizes else 0
    return total


def roofline(tables: Tables) -> pl.DataFrame:
    """One row per operator and type that was counted, most time first.

    Columns: name, dtype, calls, flops, bytes (null when no shape is known), inputs_only (outputs are not among the bytes),
    time_ns (on the device; on the host where nothing ran on a device).
    """
    ops = tables.ops
    on_device = tables.kernels.height > 0
    time = operator_times(tables)["device_self_ns" if on_device else "host_self_ns"]
    rows = ops.select(
        op=pl.int_range(pl.len(), dtype=pl.Int64), name=pl.col("name").cast(pl.String), flops="flops",
        time_ns=time.cast(pl.Float64),
        dtypes=pl.col("dtypes").cast(pl.String), shapes=pl.col("shapes").cast(pl.String),
    ).filter((pl.col("flops") > 0) & (pl.col("time_ns") > 0))  # fmt: skip
    moved = _bytes_of_kernels(tables)
    rows = rows.join(moved, on="op", how="left", maintain_order="left")
    inputs = {key: tensor_bytes(*key) for key in rows.select("shapes", "dtypes").unique().iter_rows()}
    own = pl.Series([inputs[key] or None for key in rows.select("shapes", "dtypes").iter_rows()], dtype=pl.Int64)
    rows = rows.with_columns(
        inputs_only=pl.col("moved").is_null(),
        bytes=pl.coalesce(pl.col("moved"), own),
        dtype=pl.col("dtypes").str.split(";").list.first().str.to_lowercase().str.strip_prefix("c10::"),
    )
    return (
        rows.group_by("name", "dtype")
        .agg(
            pl.len().cast(pl.Int64).alias("calls"),
            pl.col("flops").sum(),
            pl.when(pl.col("bytes").null_count() == 0).then(pl.col("bytes").sum()),
            pl.col("inputs_only").any(),
            pl.col("time_ns").sum(),
        )
        .sort("time_ns", "name", "dtype", descending=[True, False, False])
    )


def _bytes_of_kernels(tables: Tables) -> pl.DataFrame:
    """Bytes in and out of the kernels of each operator, where all of them have shapes: op, moved."""
    sides = ("input_shapes", "input_dtypes", "output_shapes", "output_dtypes")
    kernels = tables.kernels.drop_nulls("op").select(pl.col("op").cast(pl.Int64), *(pl.col(name).cast(pl.String) for name in sides))
    known = {
        key: tensor_bytes(*key[:2]) + tensor_bytes(*key[2:]) if key[2] else 0 for key in kernels.select(sides).unique().iter_rows()
    }
    sizes = pl.Series("moved", [known[key] or None for key in kernels.select(sides).iter_rows()], dtype=pl.Int64)
    rows = kernels.select("op").with_columns(sizes)
    return rows.group_by("op").agg(pl.when(pl.col("moved").null_count() == 0).then(pl.col("moved").sum()))
