# SPDX-License-Identifier: Apache-2.0
"""kernel_details.csv: every kernel and communication operator with its shapes and counters (outputs.md 4)."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from stepscope.analysis.statistics import kernel_rows, waits
from stepscope.export.counter_cells import counter_cells
from stepscope.render.csv_file import NOT_KNOWN, Cells, duration, moment, shapes, text, whole, whole_ns, write_csv
from stepscope.tables import TEXT, Tables

NONE32 = "4294967295"
COMMUNICATION = "COMMUNICATION"

_TENSORS = {
    "input_shapes": "Input Shapes",
    "input_dtypes": "Input Data Types",
    "input_formats": "Input Formats",
    "output_shapes": "Output Shapes",
    "output_dtypes": "Output Data Types",
    "output_formats": "Output Formats",
}
_OF_KERNEL = (
    "name", "op_type", "op_state", "core", "model_id", "task_id", "stream", "block_num", "mix_block_num", "hf32", "context_id",
    *_TENSORS,
)  # fmt: skip


def write(tables: Tables, folder: Path) -> list[Path]:
    """Write the file; none without rows."""
    listed = kernel_rows(tables)
    if not listed.height:
        return []
    rows = with_details(tables, listed)
    has_steps = tables.steps["device_start_ns"].count() > 0
    columns = [whole("Step Id", "step")] if has_steps else []
    columns.append(whole("Device_id", "device", NOT_KNOWN))
    return write_csv(folder / "kernel_details.csv", rows, [*columns, *cells(tables, rows, tables.facts.level)])


def cells(tables: Tables, rows: pl.DataFrame, level: str) -> list[Cells]:
    """The columns after step and device; fewer at level 0, or where no type is known."""
    is_short = level == "Level0" if level else not rows["op_type"].count()
    return _short(rows, with_type=not level) if is_short else [*full_cells(_times(rows)), *counter_cells(tables, rows)]


def with_details(tables: Tables, listed: pl.DataFrame) -> pl.DataFrame:
    """The listed rows with what their tables say about them; `kernel` is the row of `kernels`."""
    only = tables.facts.device_ids[0] if len(tables.facts.device_ids) == 1 else None
    listed = listed.with_row_index("at").with_columns(pl.col("device").fill_null(pl.lit(only, pl.Int32)))
    of_kernels = listed.filter(pl.col("table") == "kernels")
    of_collectives = listed.filter(pl.col("table") == "collectives")
    kernels = tables.kernels.select(pl.col(_OF_KERNEL).gather(of_kernels["row"]))
    kernels = pl.concat([of_kernels.with_columns(kernel=pl.col("row")), kernels], how="horizontal")
    if not of_collectives.height:
        return kernels
    core = pl.lit(COMMUNICATION).cast(TEXT).alias("core")
    operators = tables.collectives.select(pl.col("name", "op_type", "model_id").gather(of_collectives["row"])).with_columns(core)
    operators = pl.concat([of_collectives, operators], how="horizontal")
    return pl.concat([kernels, operators], how="diagonal").sort("at")


def _short(rows: pl.DataFrame, *, with_type: bool) -> list[Cells]:
    """Level 0 knows no types; that of a communication operator, which its name tells, is left out with the others."""
    columns = [
        text("Name", "name", NOT_KNOWN),
        text("Type", "op_type", NOT_KNOWN) if with_type else ("Type", [NOT_KNOWN]),
        text("Accelerator Core", "core", NOT_KNOWN),
        *_times(rows),
        whole("Block Num", "block_num", "0"),
    ]
    return columns + (_tensors() if rows["input_shapes"].count() else [])


def full_cells(times: list[Cells], name: str = "Name", kind: str = "Type", core: str = "Accelerator Core") -> list[Cells]:
    """All columns between device and counters; msprof's own file has other titles for three of them."""
    return [
        whole("Model ID", "model_id", NONE32),
        whole("Task ID", "task_id", NOT_KNOWN),
        whole("Stream ID", "stream", NOT_KNOWN),
        text(name, "name", NOT_KNOWN),
        text(kind, "op_type", NOT_KNOWN),
        text("OP State", "op_state", NOT_KNOWN),
        text(core, "core", NOT_KNOWN),
        *times,
        whole("Block Num", "block_num", "0"),
        whole("Mix Block Num", "mix_block_num", NOT_KNOWN),
        text("HF32 Eligible", "hf32", NOT_KNOWN),
        *_tensors(),
        whole("Context ID", "context_id", NOT_KNOWN),
    ]


def _times(rows: pl.DataFrame) -> list[Cells]:
    # Kernels are rounded to the nanosecond, communication operators cut; the wait is what is left between the shown values.
    shown = pl.when(pl.col("table") == "kernels").then(whole_ns(rows["duration_ns"])).otherwise(pl.col("duration_ns").floor())
    times = rows.select("device", "start_ns", "end_ns", shown.alias("duration_ns")).with_columns(waits())
    return [
        moment("Start Time(us)", rows, "start_ns"),
        duration("Duration(us)", times["duration_ns"]),
        duration("Wait Time(us)", times["wait_ns"], plain_zero=True),
    ]


def _tensors() -> list[Cells]:
    return [
        shapes(title, column) if column.endswith("shapes") else text(title, column, NOT_KNOWN) for column, title in _TENSORS.items()
    ]
