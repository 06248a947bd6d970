# SPDX-License-Identifier: Apache-2.0
"""operator_flops.csv and step_flops.csv: floating-point operations by operator and by step, and per second."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from stepscope.formats.ascend.columns import NS_PER_US, cells, column
from stepscope.render.csv_file import write_csv

OPERATOR_FILE, STEP_FILE = "operator_flops.csv", "step_flops.csv"
_FLOPS = column("flops", "count", "FLOPs")
_RATE = column("flops_per_s", "number", "FLOPs/s")
OPERATORS = (column("name", "text", "Name"), column("calls", "count", "Calls"), _FLOPS, _RATE)
STEPS = (column("step", "count", "Step"), _FLOPS, column("duration_ns", "number", "Duration(us)", unit=NS_PER_US), _RATE)


def write_operators(path: Path, rows: pl.DataFrame) -> list[Path]:
    """Write operator_flops.csv; none without rows."""
    return write_csv(path, rows, cells(OPERATORS, rows))


def write_steps(path: Path, rows: pl.DataFrame) -> list[Path]:
    """Write step_flops.csv; none without rows."""
    return write_csv(path, rows, cells(STEPS, rows))
