# SPDX-License-Identifier: Apache-2.0
"""kernel_details.csv, and op_summary of msprof: every kernel and collective with shapes and metrics (docs/formats/outputs.md 4)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from stepscope.formats import NONE32
from stepscope.formats.ascend.cells import Further, Quality, read_cells
from stepscope.formats.ascend.columns import DEVICE, NS_PER_US, Column, cells, column, in_msprof, select, titles, without
from stepscope.formats.ascend.metric_names import THREE_DIGITS, counter_cells, is_metric, to_canonical
from stepscope.render.csv_file import NOT_KNOWN, write_csv
from stepscope.render.number_forms import SHORTEST, THOUSANDTHS
from stepscope.render.parts import Label, Numbers, Part
from stepscope.tables import ALL_TABLES, TEXT

KERNELS, COLLECTIVES = ALL_TABLES["kernels"], ALL_TABLES["collectives"]
FILE = "kernel_details.csv"
COMMUNICATION = ("COMMUNICATION", "HCCL")  # core of communication operators; the second one in G1 (docs/formats/outputs.md 16)

TENSORS = (
    column("input_shapes", "shapes", "Input Shapes", missing=NOT_KNOWN),
    column("input_dtypes", "text", "Input Data Types", missing=NOT_KNOWN),
    column("input_formats", "text", "Input Formats", missing=NOT_KNOWN),
    column("output_shapes", "shapes", "Output Shapes", missing=NOT_KNOWN),
    column("output_dtypes", "text", "Output Data Types", missing=NOT_KNOWN),
    column("output_formats", "text", "Output Formats", missing=NOT_KNOWN),
)
# In the order of the file; after them come the counters of `metric_names`.
COLUMNS = (
    column("step", "count", "Step Id", "Step ID"),  # the second title is MindSpore's
    DEVICE,
    column("model_id", "count", "Model ID", missing=str(NONE32)),
    column("task_id", "count", "Task ID", missing=NOT_KNOWN),
    column("stream", "count", "Stream ID", missing=NOT_KNOWN),
    column("name", "text", "Name", msprof="Op Name", missing=NOT_KNOWN, needed=True),
    column("op_type", "text", "Type", msprof="OP Type", missing=NOT_KNOWN),
    column("op_state", "text", "OP State", missing=NOT_KNOWN),
    column("core", "text", "Accelerator Core", msprof="Task Type", missing=NOT_KNOWN),
    column("start_ns", "time", "Start Time(us)", msprof="Task Start Time(us)", needed=True),
    column("duration_ns", "number", "Duration(us)", msprof="Task Duration(us)", unit=NS_PER_US, needed=True),
    column("wait_ns", "number", "Wait Time(us)", msprof="Task Wait Time(us)", unit=NS_PER_US, plain_zero=True),
    column("block_num", "count", "Block Num", "Block Dim", missing="0"),  # the second title until G2
    column("mix_block_num", "count", "Mix Block Num", "Mix Block Dim", missing=NOT_KNOWN),
    column("hf32", "text", "HF32 Eligible", missing=NOT_KNOWN),
    *TENSORS,
    column("context_id", "count", "Context ID", missing=NOT_KNOWN),
)
TITLES = titles(COLUMNS)

# Waits are found again from spans; the step is kept of rows that no timeline has: the others fall into its steps.
_READ = without(COLUMNS, "wait_ns")
_SHORT = select(COLUMNS, ("name", "op_type", "core", "start_ns", "duration_ns", "wait_ns", "block_num"))
_METRIC_COLUMNS = Further(is_metric, to_canonical)


@dataclass(frozen=True)
class ChipFile:
    """What differs in the files of chips other than A2 (docs/formats/cann.md 6.10)."""

    without: tuple[str, ...] = ()  # columns that the chip's files do not have
    own_counters: bool = False  # its counters are not those of an A2
    shortest: bool = False  # msprof writes numbers as short as possible, not with three digits


A2_FILE = ChipFile()


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


def read(paths: Iterable[Path], *, quality: Quality) -> KernelRows:
    """Rows of kernel_details.csv or of all slices of op_summary."""
    rows = read_cells(paths, _READ, quality=quality, further=_METRIC_COLUMNS)
    end = pl.col("start_ns") + pl.col("duration_ns").floor().cast(pl.Int64)
    rows = rows.with_columns(pl.col("device").cast(pl.Int32), end.alias("end_ns"))
    # A kernel that carries out a collective has that core too, but is a task.
    of_comm = pl.col("core").is_in(COMMUNICATION).fill_null(False)
    is_task = pl.col("name").cast(pl.String).str.contains("(AivKernel|AicpuKernel)$")
    kind = pl.when(of_comm).then(pl.lit("communication")).otherwise(pl.lit("compute")).cast(TEXT).alias("kind")
    rows = rows.with_columns(kind, (of_comm & ~is_task).alias("collective"))
    compute = rows.filter(~pl.col("collective"))
    named = [name for name in KERNELS.schema if name in compute.columns]
    metrics = [name for name in compute.columns if name not in KERNELS.schema and name != "collective"]
    comm = rows.filter(pl.col("collective"))
    comm = comm.select(name for name in COLLECTIVES.schema if name in comm.columns)
    return KernelRows(compute.select(named), compute.select(metrics), comm)


def generation(titles: Iterable[str]) -> str:
    """G1, G2 or G3 by the titles of a file; empty when they do not tell."""
    there = set(titles)
    latest, older = next(item for item in COLUMNS if item.key == "block_num").names
    if latest in there:
        return "G3"
    if older in there:
        return "G2" if DEVICE.title in there else "G1"
    return ""


def write(
    path: Path,
    rows: pl.DataFrame,
    metrics: pl.DataFrame,
    *,
    aic_metrics: str,
    level: str,
    with_steps: bool,
    mindspore: bool = False,
    chip: ChipFile = A2_FILE,
) -> list[Path]:
    """Write the file; none without rows.

    Args:
        path: final name.
        rows: by device and start, with a column for each of `COLUMNS`, and `kernel`: the row of `kernels`, null for what is none.
        metrics: table `kernel_metrics`.
        aic_metrics: which counters were chosen.
        level: as the capture says it. Level 0, or rows of which no type is known, have fewer columns.
        with_steps: the first column is the step.
        mindspore: MindSpore's file has another title for the step and does not name the device.
        chip: what the chip's file has otherwise.
    """
    short = is_short(rows, level)
    columns = file_columns(rows, short=short, with_steps=with_steps, mindspore=mindspore, chip=chip)
    if short:
        # Level 0 knows no types; that of a communication operator, which its name tells, is left out with the others.
        return write_csv(path, rows, cells(columns, rows, op_type=[NOT_KNOWN]))
    return write_csv(path, rows, [*cells(columns, rows), *counter_cells(metrics, rows, aic_metrics, as_recorded=chip.own_counters)])


def is_short(rows: pl.DataFrame, level: str) -> bool:
    """Whether the file has fewer columns and no counters: at level 0, or where no type is known."""
    return level == "Level0" if level else not rows["op_type"].count()


def file_columns(
    rows: pl.DataFrame, *, short: bool, with_steps: bool, mindspore: bool = False, generation: str = "", chip: ChipFile = A2_FILE
) -> tuple[Column, ...]:
    """The columns before the counters, as a file of these rows has them.

    Args:
        rows: as in `write`.
        short: as `is_short` says.
        with_steps: as in `write`.
        mindspore: as in `write`.
        generation: G1 and G2 have other titles for the blocks, G1 does not name the device.
        chip: as in `write`.
    """
    first = select(COLUMNS, [*(["step"] if with_steps else []), *([] if mindspore or generation == "G1" else ["device"])])
    if mindspore:
        first = tuple(map(_older, first))
    others = without(COLUMNS, "step", "device", *chip.without)
    if short:
        others = (*_SHORT, *TENSORS) if rows["input_shapes"].count() else _SHORT
    if generation in ("G1", "G2"):
        others = tuple(_older(item) if item.key in ("block_num", "mix_block_num") else item for item in others)
    return (*first, *others)


def _older(item: Column) -> Column:
    return replace(item, title=next(iter(item.others)))


def write_op_summary(
    path: Path, rows: pl.DataFrame, metrics: pl.DataFrame, *, aic_metrics: str, chip: ChipFile = A2_FILE
) -> list[Path]:
    """Write msprof's own file (docs/formats/cann.md 7.2); none without rows. Times of `rows` are whole nanoseconds."""
    special: dict[str, list[Part]] = {
        "duration_ns": [Numbers(rows["duration_ns"], THOUSANDTHS)],
        # The first row, which waits for none, is `0`; the others have six digits.
        "wait_ns": [Numbers(rows["wait_ns"], THOUSANDTHS, "0"), Label("wait_ns", "000")],
    }
    if chip.shortest:
        special = {"duration_ns": [Numbers(rows["duration_ns"], SHORTEST)], "wait_ns": [Numbers(rows["wait_ns"], SHORTEST, "0")]}
    columns = cells(in_msprof(without(COLUMNS, "step", *chip.without)), rows, **special)
    fixed, plain_zero = ((), THREE_DIGITS) if chip.shortest else (THREE_DIGITS, ())
    counted = counter_cells(metrics, rows, aic_metrics, fixed, plain_zero, as_recorded=chip.own_counters)
    return write_csv(path, rows, [*columns, *counted], line_end="\n")
