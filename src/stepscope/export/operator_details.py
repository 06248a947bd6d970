# SPDX-License-Identifier: Apache-2.0
"""operator_details.csv: what each operator took on host and device (outputs.md 5)."""

from __future__ import annotations

from pathlib import Path

from stepscope.analysis import operators
from stepscope.render.csv_file import Cells, duration, quoted, text, write_csv
from stepscope.render.json_text import several_lines
from stepscope.render.lines import Text
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
    """Write the file; none without operators."""
    if not tables.ops.height:
        return []
    rows = operators.operator_details(tables)
    columns: list[Cells] = [
        text("Name", "name"),
        ("Input Shapes", [Text("shapes", _listed)]),
        ("Call Stack", [Text("stack", _listed)]),
        *(duration(title, rows[name], plain_zero=name not in _ON_HOST) for name, title in _TIMES.items()),
    ]
    return write_csv(folder / "operator_details.csv", rows, columns)


def _listed(value: str) -> str:
    return quoted(several_lines(value))
