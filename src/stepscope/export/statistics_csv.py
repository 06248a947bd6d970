# SPDX-License-Identifier: Apache-2.0
"""op_statistic.csv and api_statistic.csv: which kinds of kernels and calls took the time (outputs.md 6)."""

from __future__ import annotations

from pathlib import Path

from stepscope.analysis import statistics
from stepscope.export.csv_file import NOT_KNOWN, fraction, rounded, text, whole, write_csv
from stepscope.tables import Tables


def write_op_statistic(tables: Tables, folder: Path) -> list[Path]:
    """Kernels by operator type and core, most time first; no file without any."""
    rows = statistics.op_statistic(tables)
    columns = [
        whole("Device_id", "device", NOT_KNOWN),
        text("OP Type", "op_type", NOT_KNOWN),
        text("Core Type", "core", NOT_KNOWN),
        whole("Count", "count"),
        rounded("Total Time(us)", rows["total_ns"]),
        rounded("Min Time(us)", rows["min_ns"]),
        rounded("Avg Time(us)", rows["avg_ns"]),
        rounded("Max Time(us)", rows["max_ns"]),
        fraction("Ratio(%)", rows["ratio"].round(3)),
    ]
    return write_csv(folder / "op_statistic.csv", rows, columns)


def write_api_statistic(tables: Tables, folder: Path) -> list[Path]:
    """Host API calls by name and level; no file without any."""
    rows = statistics.api_statistic(tables)
    columns = [
        ("Device_id", ["host"]),
        text("Level", "level", NOT_KNOWN),
        text("API Name", "name", NOT_KNOWN),
        rounded("Time(us)", rows["total_ns"]),
        whole("Count", "count"),
        rounded("Avg(us)", rows["avg_ns"]),
        rounded("Min(us)", rows["min_ns"]),
        rounded("Max(us)", rows["max_ns"]),
        fraction("Variance", rows["variance_us2"].round(3)),
    ]
    return write_csv(folder / "api_statistic.csv", rows, columns)
