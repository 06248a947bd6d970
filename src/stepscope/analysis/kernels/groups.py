# SPDX-License-Identifier: Apache-2.0
"""Kernels put together by name, type, shapes or properties, and what each group took.

All functions take rows with a column `duration_us`: those of kernel_details.csv (NPU), or `timed_kernels` (GPU, CPU).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from stepscope.analysis.kernels.tensor_cores import uses
from stepscope.analysis.steps import steps_of_tasks
from stepscope.tables import Tables

MOST_BINS = 40
# What two GPU kernels of one name may differ in.
PROPERTIES = ("operator", "grid", "block", "registers", "shared_memory")


def kernel_groups(rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """One row per group, most time first.

    Columns: those of `by`; calls; total, max, avg, min in us; core (the different ones, as they appear); block (the different
    numbers of blocks); p50 and p95 in us; share of all rows and cumulated share in percent.

    Args:
        rows: duration_us, core, block_num and the columns of `by`.
        by: columns that make a group.
    """
    total = float(rows["duration_us"].sum())
    duration = pl.col("duration_us")
    cells = [
        pl.len().cast(pl.Int64).alias("calls"), duration.sum().alias("total"), duration.max().alias("max"),
        duration.mean().alias("avg"), duration.min().alias("min"),
        pl.col("core").unique(maintain_order=True).cast(pl.String).str.join(", ").alias("core"),
        pl.col("block_num").drop_nulls().unique().cast(pl.String).sort().str.join(", ").alias("block"),
        duration.median().alias("p50"), duration.quantile(0.95, "linear").alias("p95"),
    ]  # fmt: skip
    keyed = rows.select("duration_us", "core", "block_num", *(pl.col(key) for key in by if key not in ("core", "block_num")))
    frame = keyed.group_by(by, maintain_order=True).agg(cells).sort("total", descending=True, maintain_order=True)
    return frame.with_columns(share=100 * pl.col("total") / total if total else pl.lit(0.0)).with_columns(
        cumulated=pl.col("share").cum_sum()
    )


def time_by(rows: pl.DataFrame, key: str) -> pl.DataFrame:
    """One row per different value of a column: name (as text), calls, value (sum of duration_us); in no order."""
    return rows.group_by(pl.col(key).cast(pl.String).alias("name")).agg(
        pl.len().cast(pl.Int64).alias("calls"), value=pl.col("duration_us").sum()
    )


def operators_of(rows: pl.DataFrame, tables: Tables) -> pl.Series:
    """Name of the operator that launched each row; null where none is known.

    Args:
        rows: `table` (kernels or collectives) and `row` (position there).
        tables: linked tables.
    """
    op = pl.Series("op", [None] * rows.height, dtype=pl.Int64)
    for name in ("kernels", "collectives"):
        own = (rows["table"] == name).arg_true()
        op = op.scatter(own, tables[name]["op"].gather(rows["row"].gather(own)))
    names: pl.Series = tables.ops["name"].gather(op).cast(pl.String)
    return names


def histogram(durations: pl.Series) -> tuple[list[float], list[int]]:
    """Edges and counts of at most `MOST_BINS` bins of equal width."""
    values = durations.to_numpy()
    counts, edges = np.histogram(values, bins=min(MOST_BINS, max(1, len(np.unique(values)))))
    return edges.tolist(), counts.tolist()


def timed_kernels(tables: Tables) -> pl.DataFrame:
    """Table `kernels` without copies and waiting, with row, duration_us, tensor (on tensor cores), operator and step."""
    length = pl.col("duration_ns").fill_null(pl.col("end_ns") - pl.col("start_ns")) / 1000.0
    frame = tables.kernels.with_row_index("row").with_columns(duration_us=length, tensor=uses(tables.kernels["name"]))
    frame = frame.filter(pl.col("kind").is_in(["compute", "communication"]))
    op = tables.ops["name"].gather(frame["op"]).alias("operator")
    return frame.with_columns(op, step=steps_of_tasks(tables, frame))


def gpu_kernel_groups(rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """One row per group, most time first.

    Columns: those of `by`; tensor (whether any ran on tensor cores); calls; total, mean, max, min in us; blocks_per_sm and
    occupancy, means weighted by duration.
    """
    length = pl.col("duration_us")
    cells = [
        pl.col("tensor").any(), pl.len().cast(pl.Int64).alias("calls"), length.sum().alias("total"), length.mean().alias("mean"),
        length.max().alias("max"), length.min().alias("min"), _weighted("blocks_per_sm"), _weighted("occupancy"),
    ]  # fmt: skip
    return rows.group_by(by, maintain_order=True).agg(cells).sort("total", descending=True, maintain_order=True)


def _weighted(name: str) -> pl.Expr:
    """Mean over the kernels that say it, weighted by their duration."""
    whole = pl.col("duration_us").filter(pl.col(name).is_not_null()).sum()
    return pl.when(whole > 0).then((pl.col(name) * pl.col("duration_us")).sum() / whole).alias(name)
