# SPDX-License-Identifier: Apache-2.0
"""Kernels with their counters from kernel_details.csv or op_summary_*.csv, and their place in a timeline."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from stepscope.formats.ascend.cells import Cell, Further, Quality, cell, read_cells
from stepscope.formats.ascend.matching import match
from stepscope.formats.ascend.metric_names import is_metric, to_canonical
from stepscope.tables import ALL_TABLES, TEXT
from stepscope.tables.task_kinds import task_kind

KERNELS, METRICS, COLLECTIVES = ALL_TABLES["kernels"], ALL_TABLES["kernel_metrics"], ALL_TABLES["collectives"]

# outputs.md 4: names in kernel_details.csv and in op_summary, G3 before older ones.
_KERNEL_CELLS = (
    cell("device", "count", "Device_id"),
    cell("model_id", "count", "Model ID"),
    cell("task_id", "count", "Task ID"),
    cell("stream", "count", "Stream ID"),
    cell("name", "text", "Op Name", "Name", needed=True),
    cell("op_type", "text", "OP Type", "Type"),
    cell("op_state", "text", "OP State"),
    cell("core", "text", "Accelerator Core", "Task Type"),
    cell("start_ns", "time", "Task Start Time(us)", "Start Time(us)", needed=True),
    Cell("duration_ns", "number", {"Task Duration(us)": 1000.0, "Duration(us)": 1000.0}, needed=True),
    cell("block_num", "count", "Block Num", "Block Dim"),
    cell("mix_block_num", "count", "Mix Block Num", "Mix Block Dim"),
    cell("hf32", "text", "HF32 Eligible"),
    cell("input_shapes", "shapes", "Input Shapes"),
    cell("input_dtypes", "text", "Input Data Types"),
    cell("input_formats", "text", "Input Formats"),
    cell("output_shapes", "shapes", "Output Shapes"),
    cell("output_dtypes", "text", "Output Data Types"),
    cell("output_formats", "text", "Output Formats"),
    cell("context_id", "count", "Context ID"),
)
_METRIC_COLUMNS = Further(is_metric, to_canonical)

_TASK_CELLS = (
    cell("device", "count", "Device_id"),
    cell("name", "text", "kernel_name"),
    cell("task_type", "text", "kernel_type"),
    cell("stream", "count", "stream_id"),
    cell("task_id", "count", "task_id"),
    Cell("duration_ns", "number", {"task_time(us)": 1000.0}, needed=True),
    cell("start_ns", "time", "task_start(us)", needed=True),
)

# enums.md 2: task types of kernels, on the device and as the host queued them.
_COMPUTE_TASKS = (
    "AI_CORE", "AI_VECTOR_CORE", "AIV_SQE", "MIX_AIC", "MIX_AIV", "AI_CPU", "DSA_SQE", "DVPP",
    "KERNEL_AICORE", "KERNEL_AIVEC", "KERNEL_MIX_AIC", "KERNEL_MIX_AIV", "KERNEL_AICPU",
)  # fmt: skip

# What the csv knows better than the timeline, and what it only fills in.
_FROM_CSV = (
    "op_type", "core", "op_state", "hf32", "block_num", "mix_block_num", "input_shapes", "input_dtypes", "input_formats",
    "output_shapes", "output_dtypes", "output_formats",
)  # fmt: skip
_FILLED_IN = ("device", "stream", "task_id", "context_id", "model_id", "duration_ns")


@dataclass(frozen=True)
class KernelRows:
    """The rows of a kernel csv: compute kernels, their counters (row by row the same) and communication operators."""

    compute: pl.DataFrame
    metrics: pl.DataFrame
    collectives: pl.DataFrame

    def on(self, device: int | None) -> KernelRows:
        """The same rows, on this device where the file names none."""
        named = pl.col("device").fill_null(pl.lit(device, pl.Int32))
        return replace(self, compute=self.compute.with_columns(named), collectives=self.collectives.with_columns(named))


def read_kernels(paths: Iterable[Path], *, quality: Quality) -> KernelRows:
    """Rows of kernel_details.csv or of all slices of op_summary."""
    rows = read_cells(paths, _KERNEL_CELLS, quality=quality, further=_METRIC_COLUMNS)
    end = pl.col("start_ns") + pl.col("duration_ns").floor().cast(pl.Int64)
    rows = rows.with_columns(pl.col("device").cast(pl.Int32), end.alias("end_ns"))
    # outputs.md 16: HCCL became COMMUNICATION. A kernel that carries out a collective has that core too, but is a task.
    of_comm = pl.col("core").is_in(["HCCL", "COMMUNICATION"]).fill_null(False)
    is_task = pl.col("name").cat.ends_with("AivKernel") | pl.col("name").cat.ends_with("AicpuKernel")
    kind = pl.when(of_comm).then(pl.lit("communication")).otherwise(pl.lit("compute")).cast(TEXT).alias("kind")
    rows = rows.with_columns(kind, (of_comm & ~is_task).alias("collective"))
    compute = rows.filter(~pl.col("collective"))
    named = [name for name in KERNELS.schema if name in compute.columns]
    metrics = [name for name in compute.columns if name not in KERNELS.schema and name != "collective"]
    comm = rows.filter(pl.col("collective"))
    comm = comm.select(name for name in COLLECTIVES.schema if name in comm.columns)
    return KernelRows(compute.select(named), compute.select(metrics), comm)


def read_tasks(paths: Iterable[Path], *, quality: Quality, device: int | None = None) -> pl.DataFrame:
    """Table `kernels` from task_time csv files: all device tasks, for captures without a timeline."""
    rows = read_cells(paths, _TASK_CELLS, quality=quality)
    kind = pl.col("task_type").cast(pl.String)
    rows = rows.with_columns(
        pl.col("device").fill_null(pl.lit(device)).cast(pl.Int32),
        (pl.col("start_ns") + pl.col("duration_ns").floor().cast(pl.Int64)).alias("end_ns"),
        pl.col("name").fill_null(pl.col("task_type")),
        pl.when(kind.is_in(_COMPUTE_TASKS) & pl.col("name").is_not_null())
        .then(pl.lit("compute"))
        .otherwise(task_kind(kind))
        .cast(TEXT)
        .alias("kind"),
    )
    return KERNELS.conform(rows)


def join_compute(timeline: pl.DataFrame, rows: KernelRows) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Tables `kernels` and `kernel_metrics`: the tasks of the timeline with what the csv says about them.

    A csv row and a task are the same when start, name, device and, where several qualify, stream and task number
    agree. Rows without a task become kernels of their own; tasks without a row stay as they are.
    """
    place = match(timeline, rows.compute)
    known = rows.compute.select(pl.all().gather(place))
    tasks = timeline.with_columns(
        *[pl.coalesce(known[name], pl.col(name)).alias(name) for name in _FROM_CSV],
        *[pl.coalesce(pl.col(name), known[name]).alias(name) for name in _FILLED_IN],
        pl.coalesce(known["kind"], pl.col("kind")).alias("kind"),
        place.alias("row"),
    )
    left = _unmatched(rows.compute, place, timeline)
    kernels = KERNELS.sort(pl.concat([tasks, left], how="diagonal")) if left.height else KERNELS.sort(tasks)
    return KERNELS.conform(kernels), _metrics(kernels["row"], rows.metrics)


def guess_compute(timeline: pl.DataFrame) -> pl.DataFrame:
    """The tasks of a timeline that has no kernel csv: those on a core, under a name of their own, are compute."""
    kind = pl.col("task_type").cast(pl.String)
    named = pl.col("name").cast(pl.String) != kind
    computing = (pl.col("kind") == "other") & kind.is_in(_COMPUTE_TASKS) & named
    return timeline.with_columns(
        pl.when(computing.fill_null(False)).then(pl.lit("compute", TEXT)).otherwise(pl.col("kind")).alias("kind")
    )


def join_collectives(timeline: pl.DataFrame, transfers: pl.DataFrame, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Tables `collectives` and `transfers`: operators of the timeline, with those that only the csv has added."""
    place = match(timeline, rows)
    known = rows.select(pl.all().gather(place))
    filled = ("op_type", "stream", "model_id", "device", "duration_ns")
    operators = timeline.with_columns(
        *[pl.coalesce(pl.col(name), known[name]).alias(name) for name in filled],
        pl.int_range(pl.len(), dtype=pl.Int64).alias("old"),
    )
    left = _unmatched(rows, place, timeline).drop("row")
    both = COLLECTIVES.sort(pl.concat([operators, left], how="diagonal"))
    moved = both.select("old", pl.int_range(pl.len(), dtype=pl.Int64).alias("collective")).drop_nulls("old").sort("old")
    renumbered = transfers.with_columns(moved["collective"].gather(transfers["collective"]).alias("collective"))
    return COLLECTIVES.conform(both), renumbered


def _unmatched(rows: pl.DataFrame, place: pl.Series, timeline: pl.DataFrame) -> pl.DataFrame:
    """Rows of a csv that tell of no event, with their number; they are on the device that the timeline names."""
    unused = np.ones(rows.height, bool)
    unused[place.drop_nulls().to_numpy()] = False
    return rows.with_row_index("row").filter(unused).with_columns(pl.col("device").fill_null(pl.lit(_only(timeline["device"]))))


def _metrics(row: pl.Series, values: pl.DataFrame) -> pl.DataFrame:
    """Counters by final row of `kernels`; tasks without any (DSA, AI CPU) have no row (outputs.md 4)."""
    if not values.width:
        return METRICS.empty()
    counted = values.select(pl.any_horizontal(pl.all().is_not_null())).to_series()
    where = row.to_frame("row").with_row_index("kernel").filter(counted.gather(row).fill_null(False))
    return METRICS.conform(values.select(pl.all().gather(where["row"])).with_columns(where["kernel"].cast(pl.Int64)))


def _only(devices: pl.Series) -> int | None:
    """The device, when the events name exactly one."""
    named = devices.drop_nulls().unique()
    return int(named[0]) if named.len() == 1 else None
