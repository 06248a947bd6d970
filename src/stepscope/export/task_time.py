# SPDX-License-Identifier: Apache-2.0
"""Which tasks task_time.csv lists (docs/formats/outputs.md 10, docs/formats/cann.md 7.2)."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from stepscope.analysis.sub_tasks import HOLDERS
from stepscope.formats.ascend import task_time
from stepscope.tables import Tables

_TASK = ["device", "stream", "task_id", "batch_id"]


def write(tables: Tables, folder: Path) -> list[Path]:
    """Write the file; none without rows."""
    return task_time.write(folder / task_time.FILE, shown_tasks(tables.kernels))


def write_of_msprof(tables: Tables, path: Path) -> list[Path]:
    """Write msprof's own file; none without rows."""
    return task_time.write(path, shown_tasks(tables.kernels), line_end="\n")


def shown_tasks(kernels: pl.DataFrame) -> pl.DataFrame:
    """The tasks by start, with the function each ran as its name and what the host queued as its type."""
    rows = _listed(kernels).sort("start_ns", "device", maintain_order=True)
    # Sources that do not record functions name the operator; a task that is none has no name then.
    named = pl.when(pl.col("kind").is_in(["compute", "communication"])).then("name")
    # The device type that the timeline shows of copies is not what the host queued.
    queued = pl.when(pl.col("kind") == "memcpy").then("host_task_type")
    # On a chip with one kind of core the file shows what the host queued, not the core it wished for (docs/formats/cann.md 6.2).
    one_core = (pl.col("core") == "AI_VECTOR_CORE") & (pl.col("task_type") == "AI_CORE")
    return rows.with_columns(
        name=pl.col("kernel_name") if rows["kernel_name"].count() else named,
        task_type=pl.coalesce(pl.when(one_core).then("host_task_type"), "core", queued, "task_type", "host_task_type"),
        duration_ns=pl.coalesce(pl.col("duration_ns").floor().cast(pl.Int64), pl.col("end_ns") - pl.col("start_ns")),
    )


def _listed(kernels: pl.DataFrame) -> pl.DataFrame:
    """All tasks; of one with parts only part 0, where that stands before the others."""
    part = pl.col("context_id")
    if not kernels["context_id"].count():
        return kernels
    at = pl.int_range(pl.len(), dtype=pl.Int64)
    held = (
        kernels.with_columns(at=at)
        .group_by(_TASK)
        .agg(pl.col("at").filter(part == 0).min().alias("first"), pl.col("at").filter(part > 0).min().alias("other"))
    )
    led = held.filter(pl.col("first").is_not_null() & (pl.col("other").is_null() | (pl.col("first") < pl.col("other"))))
    marked = kernels.join(led.select(*_TASK, led=True), on=_TASK, how="left", nulls_equal=True, maintain_order="left")
    # Where the source does not say how often task numbers had wrapped, another task may have the number.
    unsure = pl.col("batch_id").is_null() & ~pl.col("host_task_type").is_in(HOLDERS).fill_null(False)
    return marked.filter(pl.col("led").is_null() | (part == 0) | (part.is_null() & unsure)).drop("led")
