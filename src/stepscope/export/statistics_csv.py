# SPDX-License-Identifier: Apache-2.0
"""op_statistic.csv and api_statistic.csv: which kinds of kernels and calls took the time (outputs.md 6)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl

from stepscope.analysis import statistics
from stepscope.render.csv_file import NOT_KNOWN, Cells, rounded, text, whole, write_csv
from stepscope.tables import Tables

Shown = Callable[[str, pl.Series], Cells]  # how numbers look of which these are the thousandths


def write_op_statistic(tables: Tables, folder: Path) -> list[Path]:
    """Kernels by operator type and core, most time first; no file without any."""
    rows = statistics.op_statistic(tables)
    return write_csv(folder / "op_statistic.csv", rows, op_columns(rows, rounded))


def write_api_statistic(tables: Tables, folder: Path) -> list[Path]:
    """Host API calls by name and level; no file without any."""
    rows = statistics.api_statistic(tables)
    return write_csv(folder / "api_statistic.csv", rows, api_columns(rows, rounded))


def op_columns(rows: pl.DataFrame, shown: Shown) -> list[Cells]:
    """The columns of `op_statistic`; of `communication_statistic`, which has no core, too."""
    return [
        whole("Device_id", "device", NOT_KNOWN),
        text("OP Type", "op_type", NOT_KNOWN),
        *([text("Core Type", "core", NOT_KNOWN)] if "core" in rows.columns else []),
        whole("Count", "count"),
        *(shown(f"{word} Time(us)", rows[f"{word.lower()}_ns"].round()) for word in ("Total", "Min", "Avg", "Max")),
        shown("Ratio(%)", rows["ratio"] * 1000),
    ]


def api_columns(rows: pl.DataFrame, shown: Shown) -> list[Cells]:
    return [
        ("Device_id", ["host"]),
        text("Level", "level", NOT_KNOWN),
        text("API Name", "name", NOT_KNOWN),
        shown("Time(us)", rows["total_ns"]),
        whole("Count", "count"),
        *(shown(f"{word}(us)", rows[f"{word.lower()}_ns"]) for word in ("Avg", "Min", "Max")),
        shown("Variance", rows["variance_us2"] * 1000),
    ]
