# SPDX-License-Identifier: Apache-2.0
"""Which kinds of kernels and API calls took the time, and how long each kernel waited (docs/formats/outputs.md 4, 6)."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.analysis.steps import by_launch, step_of
from stepscope.analysis.sub_tasks import without_parents
from stepscope.tables import TEXT, Tables
from stepscope.tables.npu_kinds import API_LEVELS

Ints = npt.NDArray[np.int64]

COMMUNICATION = "COMMUNICATION"
NO_OPERATOR = ("WRITE_BACK", "INVALID")
NO_REPORT = ("HCCL_AI_CPU", COMMUNICATION)
NO_KERNEL = (*NO_OPERATOR, *NO_REPORT)
_RUNNING_NUMBERS = r"_\d+_\d+_\d+$"  # group, index and iteration in the name of a communication operator
# What is listed of a kernel, besides its times.
DETAILS = (
    "name", "op_type", "op_state", "core", "model_id", "task_id", "stream", "block_num", "mix_block_num", "hf32", "context_id",
    "input_shapes", "input_dtypes", "input_formats", "output_shapes", "output_dtypes", "output_formats",
)  # fmt: skip


def kernel_rows(tables: Tables) -> pl.DataFrame:
    """What kernel_details.csv lists: computing kernels and communication operators, by device and start.

    Columns: table (kernels or collectives), row (there), device, start_ns, end_ns, duration_ns, wait_ns, step. `wait_ns` is
    the gap to the row before on the same device, 0 when they overlap. `step` is the step on whose device range it starts, or
    what the source says where no step has such a range; on GPUs the step that launched it.
    """
    columns = [pl.col("row").cast(pl.Int64), pl.col("device", "start_ns", "end_ns", "duration_ns", "step")]
    kernels = tables.kernels.with_row_index("row").filter(_is_row())
    collectives = tables.collectives.with_row_index("row")
    rows = pl.concat(
        [
            kernels.select(pl.lit("kernels").alias("table"), *columns),
            collectives.select(pl.lit("collectives").alias("table"), *columns),
        ]
    ).sort("device", "start_ns", maintain_order=True)
    ranges = tables.steps.select(start_ns="device_start_ns", end_ns="device_end_ns")
    if ranges["start_ns"].count() and not by_launch(tables.device_kind):
        rows = rows.with_columns(step=tables.steps["step"].gather(step_of(rows["start_ns"], ranges)))
    return rows.with_columns(_length(), wait_ns=waits())


def with_details(tables: Tables, listed: pl.DataFrame) -> pl.DataFrame:
    """The listed rows with what their tables say about them; `kernel` is the row of `kernels`."""
    only = tables.facts.device_ids[0] if len(tables.facts.device_ids) == 1 else None
    listed = listed.with_row_index("at").with_columns(pl.col("device").fill_null(pl.lit(only, pl.Int32)))
    of_kernels = listed.filter(pl.col("table") == "kernels")
    of_collectives = listed.filter(pl.col("table") == "collectives")
    kernels = tables.kernels.select(pl.col(DETAILS).gather(of_kernels["row"]))
    kernels = pl.concat([of_kernels.with_columns(kernel=pl.col("row")), kernels], how="horizontal")
    if not of_collectives.height:
        return kernels
    core = pl.lit(COMMUNICATION).cast(TEXT).alias("core")
    known = tables.collectives.select(pl.col("name", "op_type", "model_id", "kernel").gather(of_collectives["row"]))
    # An operator that is a single kernel (NCCL) ran on one stream with one grid; others have none of their own.
    single = tables.kernels.select(pl.col("stream", "block_num").gather(known["kernel"]))
    operators = pl.concat([of_collectives, known.drop("kernel").with_columns(core), single], how="horizontal")
    return pl.concat([kernels, operators], how="diagonal").sort("at")


def waits() -> pl.Expr:
    """Time between the end of the row before on the same device and the start of this one."""
    gap = pl.col("start_ns") - pl.col("start_ns").shift(1) - _length().shift(1)
    return pl.max_horizontal(gap.over("device").fill_null(0.0), pl.lit(0.0)).alias("wait_ns")


def _length() -> pl.Expr:
    return pl.col("duration_ns").fill_null(pl.col("end_ns") - pl.col("start_ns"))


def _core_is_none_of(cores: tuple[str, ...]) -> pl.Expr:
    return ~pl.col("core").is_in(cores).fill_null(False)


def _is_row() -> pl.Expr:
    # Of the kernels that do communication, only those on vector cores are rows of their own (docs/formats/cann.md 7.2).
    on_vector_core = (pl.col("core") == COMMUNICATION) & pl.col("name").cast(pl.String).str.ends_with("AivKernel")
    return (pl.col("kind") == "compute") & (_core_is_none_of(NO_KERNEL) | on_vector_core.fill_null(False))


def op_statistic(tables: Tables) -> pl.DataFrame:
    """Rows of op_statistic.csv, most time first.

    Columns: device, op_type, core, count, total_ns, min_ns, avg_ns, max_ns, ratio. The mean of tasks that all took whole
    nanoseconds is cut to such; `ratio` is the percentage of all computing tasks of the device, also those without a type.
    Tasks that began before the collection are left out. Where no kernel has a type, what the vendor's file says.
    """
    if tables.op_type_times.height and not tables.kernels["op_type"].count():
        return tables.op_type_times
    computing = (pl.col("kind") == "compute") & _core_is_none_of(NO_REPORT)
    begin = tables.facts.session_start_ns
    tasks = tables.kernels.filter(computing if begin is None else computing & (pl.col("start_ns") >= begin))
    return _totals(tasks.with_columns(_length()), "device", "op_type", "core").filter(
        pl.col("op_type").is_not_null() & _core_is_none_of(NO_OPERATOR)
    )


def communication_statistic(tables: Tables) -> pl.DataFrame:
    """Rows of communication_statistic.csv: as `op_statistic`, without core; one row per device and type of operator.

    An operator lasts as long as its tasks on the main plane where those are known.
    """
    main = tables.transfers.filter(pl.col("is_master").fill_null(False)).drop_nulls("collective")
    spans = main.group_by("collective").agg((pl.col("end_ns").max() - pl.col("start_ns").min()).cast(pl.Float64).alias("main_ns"))
    operators = tables.collectives.with_columns(_length(), collective=pl.int_range(pl.len(), dtype=pl.Int64))
    operators = operators.join(spans, on="collective", how="left", maintain_order="left")
    return _totals(operators.with_columns(duration_ns=pl.coalesce("main_ns", "duration_ns")), "device", "op_type")


def _totals(tasks: pl.DataFrame, *by: str) -> pl.DataFrame:
    """Number and times of tasks by group, and what part of their device's time it is; most time first."""
    length = pl.col("duration_ns")
    mean = length.sum() / pl.len()
    return (
        tasks.group_by(*by, maintain_order=True)
        .agg(
            pl.len().cast(pl.Int64).alias("count"),
            length.sum().alias("total_ns"),
            length.min().alias("min_ns"),
            # The reference divides in SQL: whole numbers of nanoseconds give a whole number, cut; any part of one a fraction.
            pl.when((length == length.floor()).all()).then(mean.floor()).otherwise(mean).alias("avg_ns"),
            length.max().alias("max_ns"),
        )
        .with_columns(ratio=(pl.col("total_ns") / pl.col("total_ns").sum().over("device") * 100).fill_nan(0.0))
        .sort("total_ns", descending=True, maintain_order=True)
    )


def api_statistic(tables: Tables) -> pl.DataFrame:
    """Rows of api_statistic.csv, by name and level.

    Columns: level, name, total_ns, count, avg_ns (rounded), min_ns, max_ns, variance_us2 (of the population, around the
    rounded mean). Where the calls themselves are gone, what the vendor's file says of them.
    """
    if tables.api_times.height and not tables.api_calls.height:
        return tables.api_times
    spent = (pl.col("end_ns") - pl.col("start_ns")).alias("length")
    level = pl.col("level").cast(pl.String)
    # Calls of the operating system have a table of their own (docs/formats/outputs.md 12.2).
    calls = tables.api_calls.filter(pl.col("level").ne_missing(pl.lit("os", dtype=TEXT))).select("level", "name", spent)
    # The vendor's tools count a call without a begin from the counter's zero.
    early = tables.early_calls.select("level", "name", (pl.col("end_ns") - pl.col("zero_ns")).alias("length"))
    calls = (pl.concat([calls, early]) if early.height else calls).drop_nulls("length")
    length = pl.col("length")
    groups = (
        calls.group_by("level", "name")
        .agg(
            length.sum().alias("total_ns"),
            pl.len().cast(pl.Int64).alias("count"),
            length.min().alias("min_ns"),
            length.max().alias("max_ns"),
            length,
        )
        .sort(pl.col("name").cast(pl.String), level.replace_strict(API_LEVELS, default=0, return_dtype=pl.Int64), level)
    )
    mean = _nearest_even_mean if tables.facts.generation in ("G1", "G2") else _half_up_mean
    rows = [_mean_and_variance(lengths.to_numpy(), mean) for lengths in groups["length"]]
    schema = {"avg_ns": pl.Int64, "variance_us2": pl.Float64}
    groups = groups.hstack(pl.DataFrame(rows, schema=schema, orient="row"))
    return groups.select("level", "name", "total_ns", "count", "avg_ns", "min_ns", "max_ns", "variance_us2")


def _mean_and_variance(lengths_ns: Ints, mean: Callable[[Ints], int]) -> tuple[int, float]:
    avg_ns = mean(lengths_ns)
    return avg_ns, float(np.mean(((lengths_ns - avg_ns) / 1000.0) ** 2))


def _nearest_even_mean(lengths_ns: Ints) -> int:
    """Halves go where the microsecond value stands in binary, as in older tools; rounding whole numbers cannot do that."""
    return round(round(int(lengths_ns.sum()) / 1000 / len(lengths_ns), 3) * 1000)


def _half_up_mean(lengths_ns: Ints) -> int:
    """As tools of 2026 round: 0.5625 is 0.563 (docs/formats/cann.md 7.2)."""
    # One after the other as the reference adds them: means that lie between two nanoseconds go where its error leads.
    total_us = float(np.cumsum(lengths_ns / 1000.0)[-1])
    return math.floor(total_us / len(lengths_ns) * 1000 + 0.5)


def is_work(collectives: pl.DataFrame) -> pl.Expr:
    """Whether a task is work of its own: it computes, copies, or is all there is of a communication operator."""
    single = collectives["kernel"].drop_nulls()
    row = pl.int_range(pl.len(), dtype=pl.Int64)
    communicates = (pl.col("kind") == "communication") & (row.is_in(single.implode()) if collectives.height else pl.lit(True))
    return pl.col("kind").is_in(["compute", "memcpy", "memset"]).fill_null(False) | communicates.fill_null(False)


def kernel_summary(tables: Tables, *, all_tasks: bool = False) -> pl.DataFrame:
    """One row per kernel, copy or communication operator type, most time first.

    Columns: name, kind, core, calls, total_ns, min_ns, avg_ns, max_ns, share (of all rows). Communication operators are
    taken by type, because their names carry running numbers; those that are a single kernel only as that kernel. A task
    whose parts are there is left out. Where the kernels are gone, what the vendor's file says of each operator type.

    Args:
        tables: linked tables.
        all_tasks: also what a stream does besides work: waits, notifications, and the link-level tasks of a communication
            operator, whose time the operator's own row counts already.
    """
    if tables.op_type_times.height and not (tables.kernels.height or tables.collectives.height):
        return _types_of_vendor(tables.op_type_times)
    kernels = without_parents(tables.kernels.with_columns(shown=pl.lit(True) if all_tasks else is_work(tables.collectives)))
    kernels = kernels.filter("shown").select("name", "kind", "core", _length().alias("length"))
    if all_tasks:
        event, no_core = pl.lit("event", TEXT).alias("kind"), pl.lit(None, TEXT).alias("core")
        kernels = pl.concat([kernels, tables.waits.select("name", event, no_core, _length().alias("length"))])
    operators = tables.collectives.filter(pl.col("kernel").is_null())
    kind, core = (pl.lit(text).cast(pl.Categorical()).alias(name) for name, text in (("kind", "communication"), ("core", None)))
    unnumbered = pl.col("name").cast(pl.String).str.replace(_RUNNING_NUMBERS, "").cast(TEXT)
    operators = operators.select(pl.coalesce("op_type", unnumbered).alias("name"), kind, core, _length().alias("length"))
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


def _types_of_vendor(types: pl.DataFrame) -> pl.DataFrame:
    total = pl.col("total_ns")
    return types.select(
        pl.col("op_type").alias("name"),
        pl.lit("compute", TEXT).alias("kind"),
        "core",
        pl.col("count").alias("calls"),
        "total_ns",
        "min_ns",
        "avg_ns",
        "max_ns",
        share=(total / total.sum()).fill_nan(0.0),
    ).sort("total_ns", pl.col("name").cast(pl.String), descending=[True, False])
