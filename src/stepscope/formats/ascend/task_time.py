# SPDX-License-Identifier: Apache-2.0
"""task_time.csv: every task of the device with the function it ran (docs/formats/outputs.md 10, docs/formats/cann.md 7.2)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import polars as pl

from stepscope.formats.ascend.cells import Quality, read_cells
from stepscope.formats.ascend.columns import DEVICE, NS_PER_US, cells, column, without
from stepscope.render.csv_file import NOT_KNOWN, write_csv
from stepscope.render.lines import Numbers
from stepscope.render.number_forms import SHORTEST, THOUSANDTHS
from stepscope.tables import ALL_TABLES, TEXT
from stepscope.tables.npu_kinds import task_kind

KERNELS = ALL_TABLES["kernels"]
FILE = "task_time.csv"

COLUMNS = (
    DEVICE,
    column("name", "text", "kernel_name", missing=NOT_KNOWN),
    column("task_type", "text", "kernel_type", missing=NOT_KNOWN),
    column("stream", "count", "stream_id", missing=NOT_KNOWN),
    column("task_id", "count", "task_id", missing=NOT_KNOWN),
    column("duration_ns", "number", "task_time(us)", unit=NS_PER_US, needed=True),
    column("start_ns", "time", "task_start(us)", needed=True),
    column("end_ns", "time", "task_stop(us)"),
)
# The 310's file has one line per task, and no times of day (docs/formats/cann.md 6.8).
STATE_COLUMNS = (
    DEVICE,
    column("share", "number", "Time(%)"),
    column("running_ns", "number", "Time(us)", unit=NS_PER_US),
    column("count", "count", "Count"),
    column("avg_ns", "number", "Avg(us)", unit=NS_PER_US),
    column("min_ns", "number", "Min(us)", unit=NS_PER_US),
    column("max_ns", "number", "Max(us)", unit=NS_PER_US),
    column("waiting_ns", "number", "Waiting(us)", unit=NS_PER_US),
    column("ran_ns", "number", "Running(us)", unit=NS_PER_US),
    column("pending_ns", "number", "Pending(us)", unit=NS_PER_US),
    column("scheduled_type", "text", "Type"),
    column("api", "text", "API"),
    column("task_id", "count", "Task ID"),
    column("name", "text", "Op Name", missing=NOT_KNOWN),
    column("stream", "count", "Stream ID"),
)
_SAME_TASK = ("stream", "task_id")
_NEAR_NS = 100
# The duration tells the end better: it may have parts of a nanosecond.
_READ = without(COLUMNS, "end_ns")

# docs/formats/enums.md 2: task types of kernels, on the device and as the host queued them.
COMPUTE_TASKS = (
    "AI_CORE", "AI_VECTOR_CORE", "AIV_SQE", "MIX_AIC", "MIX_AIV", "AI_CPU", "DSA_SQE", "DVPP",
    "KERNEL_AICORE", "KERNEL_AIVEC", "KERNEL_MIX_AIC", "KERNEL_MIX_AIV", "KERNEL_AICPU",
)  # fmt: skip


def read(paths: Iterable[Path], *, quality: Quality, device: int | None = None) -> pl.DataFrame:
    """Table `kernels` from task_time csv files: all device tasks, for captures without a timeline."""
    rows = read_cells(paths, _READ, quality=quality)
    kind = pl.col("task_type").cast(pl.String)
    rows = rows.with_columns(
        pl.col("device").fill_null(pl.lit(device)).cast(pl.Int32),
        (pl.col("start_ns") + pl.col("duration_ns").floor().cast(pl.Int64)).alias("end_ns"),
        pl.col("name").fill_null(pl.col("task_type")),
        pl.when(kind.is_in(COMPUTE_TASKS) & pl.col("name").is_not_null())
        .then(pl.lit("compute"))
        .otherwise(task_kind(kind))
        .cast(TEXT)
        .alias("kind"),
    )
    return KERNELS.conform(rows)


def read_functions(paths: Iterable[Path], *, quality: Quality) -> pl.DataFrame:
    """Which function (`ran`) each task ran, by stream, task number and start."""
    rows = read_cells(paths, _READ, quality=quality)
    return rows.filter(pl.col("name").is_not_null()).select(*_SAME_TASK, "start_ns", ran=pl.col("name")).drop_nulls(_SAME_TASK)


def with_functions(tasks: pl.DataFrame, ran: pl.DataFrame) -> pl.DataFrame:
    """Tasks of a timeline with the function that each ran (`kernel_name`), which only `read_functions` tells."""
    if not ran.height or tasks["kernel_name"].count():
        return tasks
    keys = [pl.col(name).cast(pl.Int64) for name in _SAME_TASK]
    # The timeline rounds what the csv cuts off.
    found = (
        tasks.select(*keys, "start_ns", at=pl.int_range(pl.len()))
        .sort("start_ns")
        .join_asof(
            ran.with_columns(keys).sort("start_ns"),
            on="start_ns", by=_SAME_TASK, strategy="nearest", tolerance=_NEAR_NS, check_sortedness=False,
        )
        .sort("at")
    )  # fmt: skip
    functions = found["ran"].cast(pl.String)
    # Sources that do not record functions name the operator, which is no news.
    if not (functions != tasks["name"].cast(pl.String)).any():
        return tasks
    return tasks.with_columns(functions.cast(TEXT).alias("kernel_name"))


def write(path: Path, rows: pl.DataFrame, *, line_end: str = "\r\n", shortest: bool = False) -> list[Path]:
    """Write the file; none without rows.

    Args:
        path: final name.
        rows: a column for each of `COLUMNS`, times in whole nanoseconds.
        line_end: msprof's own file has another one.
        shortest: durations as short as possible, as msprof writes them for some chips.
    """
    lasted = [Numbers(rows["duration_ns"], SHORTEST if shortest else THOUSANDTHS)]
    return write_csv(path, rows, cells(COLUMNS, rows, duration_ns=lasted), line_end)


def write_states(path: Path, rows: pl.DataFrame) -> list[Path]:
    """Write the 310's file of msprof; none without rows.

    They have a column for each of `STATE_COLUMNS`, times and shares in whole thousandths of what the file shows.
    """
    special = {item.key: [Numbers(rows[item.key], SHORTEST)] for item in STATE_COLUMNS if item.kind == "number"}
    return write_csv(path, rows, cells(STATE_COLUMNS, rows, **special), "\n")
