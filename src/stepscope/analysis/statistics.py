# SPDX-License-Identifier: Apache-2.0
"""Which kinds of kernels and API calls took the time, and how long each kernel waited (outputs.md 4, 6)."""

from __future__ import annotations

import polars as pl

from stepscope.analysis.steps import step_of
from stepscope.tables import TEXT, Tables

NO_OPERATOR = ("WRITE_BACK", "INVALID")
NO_KERNEL = ("WRITE_BACK", "INVALID", "HCCL_AI_CPU", "COMMUNICATION")


def kernel_rows(tables: Tables) -> pl.DataFrame:
    """What kernel_details.csv lists: computing kernels and communication operators, by device and start.

    Columns: table (kernels or collectives), row (there), device, start_ns, end_ns, duration_ns, wait_ns, step. `wait_ns` is
    the gap to the row before on the same device, 0 when they overlap. `step` is the step on whose device range it starts.
    """
    columns = [pl.col("row").cast(pl.Int64), pl.col("device", "start_ns", "end_ns", "duration_ns")]
    kernels = tables.kernels.with_row_index("row").filter((pl.col("kind") == "compute") & _core_is_none_of(NO_KERNEL))
    collectives = tables.collectives.with_row_index("row")
    rows = pl.concat(
        [
            kernels.select(pl.lit("kernels").alias("table"), *columns),
            collectives.select(pl.lit("collectives").alias("table"), *columns),
        ]
    ).sort("device", "start_ns", maintain_order=True)
    ranges = tables.steps.select(start_ns="device_start_ns", end_ns="device_end_ns")
    steps = tables.steps["step"].gather(step_of(rows["start_ns"], ranges))
    return rows.with_columns(_length(), wait_ns=waits(), step=steps)


def waits() -> pl.Expr:
    """Time between the end of the row before on the same device and the start of this one."""
    gap = pl.col("start_ns") - pl.col("start_ns").shift(1) - _length().shift(1)
    return pl.max_horizontal(gap.over("device").fill_null(0.0), pl.lit(0.0)).alias("wait_ns")


def _length() -> pl.Expr:
    return pl.col("duration_ns").fill_null(pl.col("end_ns") - pl.col("start_ns"))


def _core_is_none_of(cores: tuple[str, ...]) -> pl.Expr:
    return ~pl.col("core").is_in(cores).fill_null(False)


def op_statistic(tables: Tables) -> pl.DataFrame:
    """Rows of op_statistic.csv, most time first.

    Columns: device, op_type, core, count, total_ns, min_ns, avg_ns, max_ns, ratio. The mean is cut to whole ns, `ratio` is
    the percentage of all rows. Tasks that began before the collection are left out.
    """
    known = pl.col("op_type").is_not_null() & _core_is_none_of(NO_OPERATOR) & (pl.col("kind") == "compute")
    begin = tables.facts.session_start_ns
    tasks = tables.kernels.filter(known if begin is None else known & (pl.col("start_ns") >= begin)).with_columns(_length())
    length = pl.col("duration_ns")
    return (
        tasks.group_by("device", "op_type", "core", maintain_order=True)
        .agg(
            pl.len().cast(pl.Int64).alias("count"),
            length.sum().alias("total_ns"),
            length.min().alias("min_ns"),
            (length.sum() / pl.len()).floor().alias("avg_ns"),
            length.max().alias("max_ns"),
        )
        .with_columns(ratio=pl.col("total_ns") / pl.col("total_ns").sum() * 100)
        .sort("total_ns", descending=True, maintain_order=True)
    )


def api_statistic(tables: Tables) -> pl.DataFrame:
    """Rows of api_statistic.csv, by name and level.

    Columns: level, name, total_ns, count, avg_ns (rounded), min_ns, max_ns, variance_us2 (of the population, around the
    rounded mean).
    """
    spent = (pl.col("end_ns") - pl.col("start_ns")).alias("length")
    length = pl.col("length")
    groups = (
        # Calls of the operating system have a table of their own (outputs.md 12.2).
        tables.api_calls.filter(pl.col("level").ne_missing(pl.lit("os", dtype=TEXT)))
        .select("level", "name", spent)
        .group_by("level", "name")
        .agg(
            length.sum().alias("total_ns"),
            pl.len().cast(pl.Int64).alias("count"),
            length.min().alias("min_ns"),
            length.max().alias("max_ns"),
            length.mean().alias("mean"),
            length.var(ddof=0).alias("variance"),
        )
        .sort(pl.col("name").cast(pl.String), pl.col("level").cast(pl.String))
    )
    # Halves go where the microsecond value stands in binary, as in the reference; rounding whole numbers cannot do that.
    means = [round(round(total / 1000 / count, 3) * 1000) for total, count in groups.select("total_ns", "count").iter_rows()]
    groups = groups.with_columns(avg_ns=pl.Series(means, dtype=pl.Int64))
    # Squares around another point than the mean are larger by the square of the distance.
    variance = (pl.col("variance") + (pl.col("mean") - pl.col("avg_ns")) ** 2) / 1e6
    return groups.select("level", "name", "total_ns", "count", "avg_ns", "min_ns", "max_ns", variance.alias("variance_us2"))


def kernel_summary(tables: Tables) -> pl.DataFrame:
    """One row per kernel or communication operator type, most time first.

    Columns: name, kind, core, calls, total_ns, min_ns, avg_ns, max_ns, share (of all rows). Communication operators are
    taken by type, because their names carry running numbers; those that are a single kernel only as that kernel.
    """
    kernels = tables.kernels.select("name", "kind", "core", _length().alias("length"))
    operators = tables.collectives.filter(pl.col("kernel").is_null())
    kind, core = (pl.lit(text).cast(pl.Categorical()).alias(name) for name, text in (("kind", "communication"), ("core", None)))
    operators = operators.select(pl.coalesce("op_type", "name").alias("name"), kind, core, _length().alias("length"))
    length = pl.col("length")
    return (
        pl.concat([kernels, operators])
        .group_by("name", "kind", "core")
        .agg(
            pl.len().cast(pl.Int64).alias("calls"),
            length.sum().alias("total_ns"),
            length.min().alias("min_ns"),
            length.mean().alias("avg_ns"),
            length.max().alias("max_ns"),
        )
        .with_columns(share=(pl.col("total_ns") / pl.col("total_ns").sum()).fill_nan(0.0))
        .sort("total_ns", pl.col("name").cast(pl.String), descending=[True, False])
    )
