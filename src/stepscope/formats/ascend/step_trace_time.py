# SPDX-License-Identifier: Apache-2.0
"""step_trace_time.csv: where the time of each step went on each device (docs/formats/outputs.md 7)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import polars as pl

from stepscope.formats.ascend.cells import Quality, read_cells
from stepscope.formats.ascend.columns import DEVICE, NS_PER_US, cells, column, titles, without
from stepscope.render.csv_file import write_csv
from stepscope.tables import ALL_TABLES

STEP_TIMES, STEPS = ALL_TABLES["step_times"], ALL_TABLES["steps"]
FILE = "step_trace_time.csv"
VALUES = (
    column("computing_ns", "number", "Computing", unit=NS_PER_US, needed=True, plain_zero=True),
    column("not_overlapped_ns", "number", "Communication(Not Overlapped)", unit=NS_PER_US, plain_zero=True),
    column("overlapped_ns", "number", "Overlapped", unit=NS_PER_US, plain_zero=True),
    column("communication_ns", "number", "Communication", unit=NS_PER_US, plain_zero=True),
    column("free_ns", "number", "Free", unit=NS_PER_US, plain_zero=True),
    column("stage_ns", "number", "Stage", unit=NS_PER_US, plain_zero=True),
    column("bubble_ns", "number", "Bubble", unit=NS_PER_US, plain_zero=True),
    column(
        "not_overlapped_except_receive_ns",
        "number",
        "Communication(Not Overlapped and Exclude Receive)",
        unit=NS_PER_US,
        plain_zero=True,
    ),
    column("preparing_ns", "number", "Preparing", unit=NS_PER_US, plain_zero=True),
)
COLUMNS = (DEVICE, column("step", "count", "Step"), *VALUES)
TITLES = titles(COLUMNS)


def read(paths: Iterable[Path], *, quality: Quality) -> pl.DataFrame:
    """Table `step_times`."""
    rows = STEP_TIMES.conform(read_cells(paths, COLUMNS, quality=quality))
    return rows.with_columns(pl.col(*(item.key for item in VALUES)).fill_null(0.0))


def steps_of(kernels: pl.DataFrame, collectives: pl.DataFrame, times: pl.DataFrame) -> pl.DataFrame:
    """Table `steps` where no timeline marks them: from the steps that rows of kernel_details.csv name.

    A step lasts from its first task, and the time it took to prepare that, to the end of its last one or to the next step.

    Args:
        kernels: table `kernels`.
        collectives: table `collectives`.
        times: table `step_times`, or nothing of it.
    """
    columns = ["step", "start_ns", "end_ns"]
    tasks = pl.concat([kernels.select(columns), collectives.select(columns)]).drop_nulls()
    spans = tasks.group_by("step").agg(first=pl.col("start_ns").min(), last=pl.col("end_ns").max()).sort("first", "step")
    prepared = times.drop_nulls("step").group_by("step").agg(pl.col("preparing_ns").max())
    rows = spans.join(prepared, on="step", how="left", maintain_order="left")
    last = pl.min_horizontal("last", pl.col("first").shift(-1) - 1)
    preparing = pl.col("preparing_ns").fill_null(0.0).round().cast(pl.Int64)
    return STEPS.conform(
        rows.with_columns(start_ns=pl.col("first") - preparing, end_ns=last, device_start_ns="first", device_end_ns=last)
    )


def write(path: Path, rows: pl.DataFrame, *, with_device: bool) -> list[Path]:
    """Write the file; none without rows. `rows` has a column for each of `COLUMNS`."""
    return write_csv(path, rows, cells(COLUMNS if with_device else without(COLUMNS, DEVICE.key), rows))
