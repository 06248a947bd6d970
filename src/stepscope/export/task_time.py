# SPDX-License-Identifier: Apache-2.0
"""Which tasks task_time.csv lists (docs/formats/outputs.md 10, docs/formats/cann.md 7.2)."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from stepscope.analysis.sub_tasks import HOLDERS
from stepscope.export.chip_files import chip_file
from stepscope.formats.ascend import task_time
from stepscope.formats.cann.device.timeline import TYPE_WORDS
from stepscope.tables import Tables

_TYPE_ORDER = {word: number for number, word in reversed(TYPE_WORDS.items())}
_TASK = ["device", "stream", "task_id", "batch_id"]


def write(tables: Tables, folder: Path) -> list[Path]:
    """Write the file; none without rows."""
    return task_time.write(folder / task_time.FILE, shown_tasks(tables.kernels))


def write_of_msprof(tables: Tables, path: Path) -> list[Path]:
    """Write msprof's own file; none without rows."""
    if tables.task_states.height:
        return task_time.write_states(path, state_rows(tables))
    shortest = chip_file(tables.facts).shortest
    kernels = tables.kernels
    if shortest:  # the half of msprof that writes these rounds what the other one cuts off
        kernels = kernels.with_columns(pl.col("duration_ns").round())
    return task_time.write(path, shown_tasks(kernels), line_end="\n", shortest=shortest)


def state_rows(tables: Tables) -> pl.DataFrame:
    """The rows of the 310's file: tasks with the same number together, those that ran longest first (docs/formats/cann.md 6.8)."""
    named = pl.when(pl.col("kind") == "compute").then("name").alias("name")
    tasks = tables.kernels.select("device", "stream", "task_id", "batch_id", "duration_ns", named)
    states = tables.task_states
    rows = tasks[states["kernel"]].hstack(states.drop("kernel"))
    key = ["device", "scheduled_type", "task_id", "stream", "batch_id"]
    lasted = pl.col("duration_ns")
    found = rows.group_by(key, maintain_order=True).agg(
        pl.col("running_ns").sum(),
        pl.len().cast(pl.Int64).alias("count"),
        *(value.alias(name) for name, value in (("avg_ns", lasted.mean()), ("min_ns", lasted.min()), ("max_ns", lasted.max()))),
        pl.col("waiting_ns", "pending_ns").sum(),
        pl.col("name").first(),
    )
    total = found["running_ns"].sum()
    if not total:
        return found.clear()
    found = found.with_columns(share=(pl.col("running_ns") / total * 100_000).round(), ran_ns="running_ns", api=pl.lit(""))
    number = pl.col("share", "running_ns", "avg_ns", "min_ns", "max_ns", "waiting_ns", "ran_ns", "pending_ns")
    kind = pl.col("scheduled_type").cast(pl.String).replace_strict(_TYPE_ORDER, default=len(_TYPE_ORDER))
    in_order = found.sort(kind, "task_id", "stream", "batch_id").sort("share", descending=True, maintain_order=True)
    return in_order.with_columns(number.round().cast(pl.Int64, strict=False))


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
        duration_ns=pl.coalesce(pl.col("duration_ns").floor().cast(pl.Int64, strict=False), pl.col("end_ns") - pl.col("start_ns")),
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
