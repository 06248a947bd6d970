# SPDX-License-Identifier: Apache-2.0
"""operator_details.csv and operator_flops.csv: what each operator took on host and device (outputs.md 5)."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from stepscope.analysis import operators
from stepscope.export.csv_file import Cells, duration, fraction, quoted, text, whole, write_csv
from stepscope.export.json_text import several_lines
from stepscope.export.lines import Text
from stepscope.tables import Tables

_TIMES = {
    "host_self_ns": "Host Self Duration(us)",
    "host_total_ns": "Host Total Duration(us)",
    "device_self_ns": "Device Self Duration(us)",
    "device_total_ns": "Device Total Duration(us)",
    "aicore_self_ns": "Device Self Duration With AICore(us)",
    "aicore_total_ns": "Device Total Duration With AICore(us)",
}
_ON_HOST = ("host_self_ns", "host_total_ns")


def write(tables: Tables, folder: Path) -> list[Path]:
    """Write both files; operator_flops.csv only when the capture counted floating-point operations."""
    if not tables.ops.height:
        return []
    rows = operators.operator_details(tables)
    columns: list[Cells] = [
        text("Name", "name"),
        ("Input Shapes", [Text("shapes", _listed)]),
        ("Call Stack", [Text("stack", _listed)]),
        *(duration(title, rows[name], plain_zero=name not in _ON_HOST) for name, title in _TIMES.items()),
    ]
    written = write_csv(folder / "operator_details.csv", rows, columns)
    return written + (_write_flops(tables, rows, folder) if tables.ops["flops"].count() else [])


def _listed(value: str) -> str:
    return quoted(several_lines(value))


def _write_flops(tables: Tables, rows: pl.DataFrame, folder: Path) -> list[Path]:
    """Operations by operator name, and per second of the device time that these calls took themselves."""
    counted = rows.with_columns(flops=tables.ops["flops"].gather(rows["op"])).drop_nulls("flops")
    summed = (
        counted.group_by("name", maintain_order=True)
        .agg(pl.len().cast(pl.Int64).alias("calls"), pl.col("flops", "device_self_ns").sum())
        .sort("flops", descending=True, maintain_order=True)
    )
    seconds = summed["device_self_ns"].to_numpy() / 1e9
    rate = summed.select(pl.when(pl.col("device_self_ns") > 0).then(pl.col("flops") / pl.Series(seconds))).to_series()
    columns = [text("Name", "name"), whole("Calls", "calls"), whole("FLOPs", "flops"), fraction("FLOPs/s", rate)]
    return write_csv(folder / "operator_flops.csv", summed, columns)
