# SPDX-License-Identifier: Apache-2.0
"""op_summary of msprof: every operator that ran, with its shapes and counters (cann-raw.md 7.2)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from stepscope.analysis.statistics import kernel_rows
from stepscope.export.counter_cells import counter_cells
from stepscope.export.kernel_details import full_cells, with_details
from stepscope.export.msprof.csv_cells import write as write_rows
from stepscope.render.csv_file import NOT_KNOWN, Cells, lasting, moment, whole
from stepscope.render.lines import Label, Numbers
from stepscope.render.number_forms import THOUSANDTHS
from stepscope.tables import TEXT, Tables

_FIXED = ("cube_utilization(%)",)


def write(tables: Tables, path: Path) -> list[Path]:
    """Write the file; none without rows."""
    # msprof sorts by the device's number as text: 0, 1, 10, 2.
    listed = kernel_rows(tables).sort(pl.col("device").cast(pl.String), "start_ns", maintain_order=True)
    if not listed.height:
        return []
    rows = with_details(tables, listed)
    if tables.facts.level == "Level0":  # names of collectives are known there, types are not
        rows = rows.with_columns(op_type=pl.lit(None, TEXT))
    # No blocks are counted as 0, but a communication operator has no second core to count them on.
    of_kernel = pl.col("kernel").is_not_null() if "kernel" in rows.columns else pl.lit(False)
    rows = rows.with_columns(
        waited(rows), mix_block_num=pl.when(of_kernel).then(pl.col("mix_block_num").fill_null(0)).otherwise("mix_block_num")
    )
    titles = {"name": "Op Name", "kind": "OP Type", "core": "Task Type"}
    columns = [whole("Device_id", "device", NOT_KNOWN), *full_cells(_times(rows), **titles)]
    return write_rows(path, rows, [*columns, *counter_cells(tables, rows, _FIXED)])


def _times(rows: pl.DataFrame) -> list[Cells]:
    return [
        moment("Task Start Time(us)", rows, "start_ns"),
        lasting("Task Duration(us)", rows["end_ns"] - rows["start_ns"]),
        # The first row, which waits for none, is `0`; the others have six digits.
        ("Task Wait Time(us)", [Numbers(rows["waited_ns"], THOUSANDTHS, "0"), Label("waited_ns", "000")]),
    ]


def waited(rows: pl.DataFrame) -> pl.Series:
    """Time since the row before had ended; null in the first row.

    msprof subtracts floats of microseconds since the epoch, which are a quarter of a microsecond apart (cann-raw.md 2).
    """
    start = rows["start_ns"].to_numpy()
    start_us = start // 1000 + start % 1000 / 1000.0
    lasted_us = (rows["end_ns"].to_numpy() - start) / 1000.0
    gap = np.rint(np.maximum(np.diff(start_us) - lasted_us[:-1], 0.0) * 1000.0).astype(np.int64)
    return pl.Series("waited_ns", np.concatenate([[0], gap])).set(pl.int_range(rows.height, eager=True) == 0, None)
