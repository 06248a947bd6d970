# SPDX-License-Identifier: Apache-2.0
"""Floating-point operations that the framework counted, by operator and by step.

They are estimates from the shapes of the inputs, for the operators that torch.profiler counts too: mm, addmm, bmm, baddbmm,
conv2d, mul and add. No counted operator runs inside another one, so sums count nothing twice.
"""

from __future__ import annotations

import polars as pl

from stepscope.analysis.operators import operator_times
from stepscope.analysis.steps import is_step, step_of
from stepscope.tables import Tables


def flops_by_operator(tables: Tables) -> pl.DataFrame:
    """One row per operator name that was counted, most operations first.

    Columns: name, calls, flops, flops_per_s: over the device time that these calls took themselves, or over their host time
    when nothing in the capture ran on a device; null when that time is 0.
    """
    times = operator_times(tables)
    on_device = tables.kernels.height > 0
    counted = pl.concat([tables.ops.select("name", "flops"), times], how="horizontal").filter(~is_step()).drop_nulls("flops")
    summed = (
        counted.group_by("name", maintain_order=True)
        .agg(
            pl.len().cast(pl.Int64).alias("calls"),
            pl.col("flops").sum(),
            pl.col("device_self_ns" if on_device else "host_self_ns").sum().cast(pl.Float64).alias("time_ns"),
        )
        .sort("flops", descending=True, maintain_order=True)
    )
    return summed.select("name", "calls", "flops", _rate())


def flops_by_step(tables: Tables) -> pl.DataFrame:
    """One row per step: step, flops of the operators that began while it ran on the host, duration_ns, flops_per_s.

    The duration is the step's on the host.
    """
    steps = tables.steps.with_row_index("row")
    counted = tables.ops.select("start_ns", "flops").drop_nulls("flops")
    # A step may be marked in several processes; an operator counts for the first that holds it.
    owner = step_of(counted["start_ns"], steps, closed="left")
    summed = counted.with_columns(row=owner.cast(pl.UInt32)).drop_nulls("row").group_by("row").agg(pl.col("flops").sum())
    joined = steps.join(summed, on="row", how="left", maintain_order="left").with_columns(
        pl.col("flops").fill_null(0), time_ns=(pl.col("end_ns") - pl.col("start_ns")).cast(pl.Float64)
    )
    return joined.select("step", "flops", pl.col("time_ns").cast(pl.Int64).alias("duration_ns"), _rate())


def _rate() -> pl.Expr:
    return pl.when(pl.col("time_ns") > 0).then(pl.col("flops") * 1e9 / pl.col("time_ns")).alias("flops_per_s")
