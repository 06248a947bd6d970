# SPDX-License-Identifier: Apache-2.0
"""Which rows kernel_details.csv and msprof's op_summary get, with times as those files show them (docs/formats/outputs.md 4)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from stepscope.analysis.statistics import kernel_rows, waits, with_details
from stepscope.export.chip_files import chip_file
from stepscope.formats.ascend import kernel_details
from stepscope.render.csv_file import whole_ns
from stepscope.tables import TEXT, Facts, Tables


def write(tables: Tables, folder: Path) -> list[Path]:
    """Write kernel_details.csv; none without rows."""
    return _write(tables, folder, level=tables.facts.level)


def write_of_mindspore(tables: Tables, folder: Path) -> list[Path]:
    """Write MindSpore's kernel_details.csv; none without rows."""
    # Levels are about the device: what is known of kernels on the processor is always shown.
    level = "" if tables.facts.device_kind == "cpu" else tables.facts.level
    return _write(tables, folder, level=level, mindspore=True)


def _write(tables: Tables, folder: Path, *, level: str, mindspore: bool = False) -> list[Path]:
    rows = shown_rows(tables)
    if not rows.height:
        return []
    return kernel_details.write(
        folder / kernel_details.FILE,
        rows,
        tables.kernel_metrics,
        aic_metrics=tables.facts.aic_metrics,
        level=level,
        with_steps=has_steps(tables, rows),
        mindspore=mindspore,
        chip=chip_file(tables.facts),
    )


def shown_rows(tables: Tables) -> pl.DataFrame:
    """The rows of kernel_details.csv with times as it shows them.

    Columns: those of `analysis.statistics.with_details`. Kernels are rounded to the nanosecond, communication operators cut;
    the wait is what is left between the shown values.
    """
    listed = kernel_rows(tables)
    rows = with_details(tables, listed)
    shown = pl.when(pl.col("table") == "kernels").then(whole_ns(rows["duration_ns"])).otherwise(pl.col("duration_ns").floor())
    return rows.with_columns(shown.alias("duration_ns")).with_columns(waits())


def has_steps(tables: Tables, rows: pl.DataFrame) -> bool:
    """Whether the file says which step a row belongs to."""
    return tables.steps["device_start_ns"].count() > 0 or rows["step"].count() > 0


def write_op_summary(tables: Tables, path: Path) -> list[Path]:
    """Write op_summary; none without rows."""
    chip = chip_file(tables.facts)
    # msprof sorts by the device's number as text: 0, 1, 10, 2.
    listed = kernel_rows(tables).sort(pl.col("device").cast(pl.String), "start_ns", maintain_order=True)
    if not listed.height:
        return []
    rows = with_details(tables, listed)
    if tables.facts.level == "Level0":  # names of collectives are known there, types are not
        rows = rows.with_columns(op_type=pl.lit(None, TEXT))
    spans = pl.col("end_ns") - pl.col("start_ns")
    # No blocks are counted as 0, but a communication operator has no second core to count them on.
    of_kernel = pl.col("kernel").is_not_null() if "kernel" in rows.columns else pl.lit(False)
    rows = rows.with_columns(
        exact_wait(rows, tables.facts) if chip.shortest else waited(rows),
        # The half of msprof that writes shortest numbers rounds a duration, the other one cuts both ends.
        duration_ns=pl.coalesce(pl.col("duration_ns").round().cast(pl.Int64, strict=False), spans) if chip.shortest else spans,
        mix_block_num=pl.when(of_kernel).then(pl.col("mix_block_num").fill_null(0)).otherwise("mix_block_num"),
    )
    return kernel_details.write_op_summary(path, rows, tables.kernel_metrics, aic_metrics=tables.facts.aic_metrics, chip=chip)


def exact_wait(rows: pl.DataFrame, facts: Facts) -> pl.Series:
    """Time since the row before had ended, rounded to nanoseconds; null in the first row.

    The older half of msprof subtracts times with their parts of a nanosecond. Ours are cut, so the difference is taken to whole
    ticks of the device's counter, which is what was recorded.
    """
    gap = (rows["start_ns"] - rows["end_ns"].shift(1)).clip(0).to_numpy().astype(np.float64)
    rate = {number: found.get("counter_mhz") for number, found in facts.device_properties.items()}
    tick = 1000 / np.array([rate.get(str(device)) or np.nan for device in rows["device"].to_list()], np.float64)
    exact = np.rint(gap / tick) * tick
    wait = np.rint(np.where(np.abs(exact - gap) <= 1, exact, gap))  # false where a tick is not known
    shown: pl.Series = pl.Series("wait_ns", wait).fill_nan(None).cast(pl.Int64)
    return shown


def waited(rows: pl.DataFrame) -> pl.Series:
    """Time since the row before had ended; null in the first row.

    msprof subtracts floats of microseconds since the epoch, which are a quarter of a microsecond apart (docs/formats/cann.md 2).
    """
    start = rows["start_ns"].to_numpy()
    start_us = start // 1000 + start % 1000 / 1000.0
    lasted_us = (rows["end_ns"].to_numpy() - start) / 1000.0
    gap = np.rint(np.maximum(np.diff(start_us) - lasted_us[:-1], 0.0) * 1000.0).astype(np.int64)
    return pl.Series("wait_ns", np.concatenate([[0], gap])).set(pl.int_range(rows.height, eager=True) == 0, None)
