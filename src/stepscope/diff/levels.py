# SPDX-License-Identifier: Apache-2.0
"""What can be compared: the times of a capture by name of operator, kernel, collective, module or step."""

from __future__ import annotations

import polars as pl

from stepscope.analysis.kernels.groups import time_by, timed_kernels
from stepscope.analysis.name_tree import METRICS
from stepscope.analysis.operators import operator_calls, operator_groups
from stepscope.analysis.step_parts import step_parts
from stepscope.analysis.step_time import step_times
from stepscope.analysis.views import module_view
from stepscope.export.kernel_details import shown_rows
from stepscope.tables import Tables

LEVELS = ("operator", "kernel", "communication", "module", "step")


def metrics(level: str) -> tuple[str, ...]:
    """Which times a level has; the first is the usual one."""
    return METRICS if level in ("operator", "module") else ("duration",)


def times(tables: Tables, level: str, metric: str, whole: tuple[int, int] | None = None) -> pl.DataFrame:
    """One row per name: name, calls, value in us.

    Args:
        tables: linked tables.
        level: one of `LEVELS`.
        metric: one of `metrics(level)`.
        whole: the span that stands in for a step when a capture without an NPU has none.
    """
    match level:
        case "operator":
            return operators(tables, metric)
        case "module":
            return modules(tables, metric)
        case "kernel":
            return kernels(tables)
        case "communication":
            return collectives(tables)
        case "step":
            return steps(tables, whole)
        case _:
            raise ValueError(f"{level!r} is not one of {', '.join(LEVELS)}")


def operators(tables: Tables, metric: str) -> pl.DataFrame:
    """Totals leave out calls inside a call of the same name."""
    return operator_groups(operator_calls(tables), ["name"]).select(_text("name"), "calls", value=pl.col(f"{metric}_ns") / 1000.0)


def kernels(tables: Tables) -> pl.DataFrame:
    """Durations as the Kernel view sums them."""
    if tables.device_kind == "npu":
        rows = shown_rows(tables).select("name", duration_us=pl.col("duration_ns") / 1000.0)
    else:
        rows = timed_kernels(tables).select("name", "duration_us")
    return time_by(rows, "name")


def collectives(tables: Tables) -> pl.DataFrame:
    length = pl.col("duration_ns").fill_null(pl.col("end_ns") - pl.col("start_ns")).sum() / 1000.0
    return tables.collectives.group_by(_text("op_type").fill_null("?").alias("name")).agg(
        pl.len().cast(pl.Int64).alias("calls"), value=length
    )


def modules(tables: Tables, metric: str) -> pl.DataFrame:
    return module_view(tables).select(name="path", calls="calls", value=pl.col(f"{metric}_ns") / 1000.0)


def steps(tables: Tables, whole: tuple[int, int] | None = None) -> pl.DataFrame:
    """Steps by their place: those of two captures have different numbers, and the first is compared with the first."""
    if tables.device_kind == "npu":
        rows = step_times(tables).select(value=pl.sum_horizontal("computing_ns", "not_overlapped_ns", "free_ns") / 1000.0)
    else:
        rows = step_parts(tables, whole).select(value=pl.col("total") / 1000.0)
    return rows.select(
        pl.format("step {}", pl.int_range(1, pl.len() + 1)).alias("name"), pl.lit(1, pl.Int64).alias("calls"), "value"
    )


def _text(name: str) -> pl.Expr:
    return pl.col(name).cast(pl.String)
