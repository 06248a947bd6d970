# SPDX-License-Identifier: Apache-2.0
"""Rows of op_statistic, api_statistic and communication_statistic, for frameworks and for msprof (docs/formats/outputs.md 6)."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from stepscope.analysis.statistics import api_statistic, communication_statistic, op_statistic
from stepscope.formats.ascend import statistics
from stepscope.tables import Tables


def write_op_statistic(tables: Tables, folder: Path) -> list[Path]:
    """Kernels by operator type and core, most time first; no file without any."""
    return statistics.write_op(folder / statistics.OP_FILE, _whole_ns(op_statistic(tables)))


def write_api_statistic(tables: Tables, folder: Path) -> list[Path]:
    """Host API calls by name and level; no file without any."""
    return statistics.write_api(folder / statistics.API_FILE, api_statistic(tables))


def write_op_statistic_of_msprof(tables: Tables, path: Path) -> list[Path]:
    return statistics.write_op(path, _whole_ns(op_statistic(tables)), of_msprof=True)


def write_api_statistic_of_msprof(tables: Tables, path: Path) -> list[Path]:
    return statistics.write_api(path, api_statistic(tables), of_msprof=True)


def write_communication_statistic_of_msprof(tables: Tables, path: Path) -> list[Path]:
    return statistics.write_op(path, _whole_ns(communication_statistic(tables)), of_msprof=True)


def _whole_ns(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(pl.col("total_ns", "min_ns", "avg_ns", "max_ns").round())
