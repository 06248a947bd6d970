# SPDX-License-Identifier: Apache-2.0
"""op_statistic, api_statistic and communication_statistic of msprof: which kinds of work took the time (cann-raw.md 7.2)."""

from __future__ import annotations

from pathlib import Path

from stepscope.analysis import statistics
from stepscope.export.msprof.csv_cells import plain, write
from stepscope.export.statistics_csv import api_columns, op_columns
from stepscope.tables import Tables


def write_op_statistic(tables: Tables, path: Path) -> list[Path]:
    rows = statistics.op_statistic(tables)
    return write(path, rows, op_columns(rows, plain))


def write_api_statistic(tables: Tables, path: Path) -> list[Path]:
    rows = statistics.api_statistic(tables)
    return write(path, rows, api_columns(rows, plain))


def write_communication_statistic(tables: Tables, path: Path) -> list[Path]:
    rows = statistics.communication_statistic(tables)
    return write(path, rows, op_columns(rows, plain))
