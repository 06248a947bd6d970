# SPDX-License-Identifier: Apache-2.0
"""op_statistic, api_statistic and communication_statistic: time by kind of work.

See docs/formats/outputs.md 6 and docs/formats/cann.md 7.2.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import polars as pl

from stepscope.formats.ascend.cells import Quality, read_cells
from stepscope.formats.ascend.columns import DEVICE, NS_PER_US, Column, cells, column, without
from stepscope.render.csv_file import NOT_KNOWN, rounded, write_csv
from stepscope.render.lines import Numbers, Part
from stepscope.render.number_forms import PLAIN
from stepscope.tables import ALL_TABLES

OP_FILE, API_FILE = "op_statistic.csv", "api_statistic.csv"
OP_TYPE_TIMES, API_TIMES = ALL_TABLES["op_type_times"], ALL_TABLES["api_times"]
_COUNT = column("count", "count", "Count", needed=True)

# Of communication_statistic, too, which has no core.
OP = (
    DEVICE,
    column("op_type", "text", "OP Type", missing=NOT_KNOWN),
    column("core", "text", "Core Type", missing=NOT_KNOWN),
    _COUNT,
    column("total_ns", "number", "Total Time(us)", unit=NS_PER_US, needed=True),
    *(column(f"{word}_ns", "number", f"{word.capitalize()} Time(us)", unit=NS_PER_US) for word in ("min", "avg", "max")),
    column("ratio", "number", "Ratio(%)"),
)
API = (
    replace(DEVICE, missing="host"),
    column("level", "text", "Level", missing=NOT_KNOWN),
    column("name", "text", "API Name", missing=NOT_KNOWN),
    column("total_ns", "number", "Time(us)", unit=NS_PER_US, needed=True),
    _COUNT,
    *(column(f"{word}_ns", "number", f"{word.capitalize()}(us)", unit=NS_PER_US) for word in ("avg", "min", "max")),
    column("variance_us2", "number", "Variance"),
)


def read_op(paths: Iterable[Path], *, quality: Quality) -> pl.DataFrame:
    """Table `op_type_times`."""
    return OP_TYPE_TIMES.conform(read_cells(paths, OP, quality=quality))


def read_api(paths: Iterable[Path], *, quality: Quality) -> pl.DataFrame:
    """Table `api_times`. Calls are of the host, whatever device the file names."""
    return API_TIMES.conform(read_cells(paths, without(API, DEVICE.key), quality=quality))


def write_op(path: Path, rows: pl.DataFrame, *, of_msprof: bool = False) -> list[Path]:
    """Write op_statistic or communication_statistic; none without rows. Times are whole nanoseconds."""
    columns = OP if "core" in rows.columns else without(OP, "core")
    return _write(path, rows, columns, of_msprof)


def write_api(path: Path, rows: pl.DataFrame, *, of_msprof: bool = False) -> list[Path]:
    """Write api_statistic; none without rows."""
    rows = rows.with_columns(pl.lit(None, pl.Int32).alias("device"))  # calls are of the host
    return _write(path, rows, API, of_msprof)


def _write(path: Path, rows: pl.DataFrame, columns: Iterable[Column], of_msprof: bool) -> list[Path]:
    """With at most three digits after the point; msprof cuts trailing zeros and ends lines with a bare line feed."""
    shown = {item.key: _number(item, rows[item.key], of_msprof) for item in columns if item.kind == "number"}
    return write_csv(path, rows, cells(columns, rows, **shown), "\n" if of_msprof else "\r\n")


def _number(item: Column, values: pl.Series, of_msprof: bool) -> list[Part]:
    thousandths = values if item.unit == NS_PER_US else values * 1000
    if of_msprof:
        # Halves are rounded up: `13.32`, `100`.
        return [Numbers((thousandths.cast(pl.Float64) + 0.5).floor().cast(pl.Int64), PLAIN)]
    return [*rounded(item.title, thousandths)[1]]
