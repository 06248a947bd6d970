# SPDX-License-Identifier: Apache-2.0
"""step_trace_time.csv: where the time of each step went on each device (outputs.md 7)."""

from __future__ import annotations

from pathlib import Path

from stepscope.analysis.step_time import step_trace_time
from stepscope.render.csv_file import NOT_KNOWN, duration, whole, write_csv
from stepscope.tables import Tables

_VALUES = {
    "computing_ns": "Computing",
    "not_overlapped_ns": "Communication(Not Overlapped)",
    "overlapped_ns": "Overlapped",
    "communication_ns": "Communication",
    "free_ns": "Free",
    "stage_ns": "Stage",
    "bubble_ns": "Bubble",
    "not_overlapped_except_receive_ns": "Communication(Not Overlapped and Exclude Receive)",
    "preparing_ns": "Preparing",
}


def write(tables: Tables, folder: Path, *, with_device: bool = True) -> list[Path]:
    """Write the file; none when nothing ran on a device. MindSpore's has no column for the device."""
    if not (tables.kernels.height or tables.collectives.height):
        return []
    rows = step_trace_time(tables)
    columns = [
        *([whole("Device_id", "device", NOT_KNOWN)] if with_device else []),
        whole("Step", "step"),
        *(duration(title, rows[name], plain_zero=True) for name, title in _VALUES.items()),
    ]
    return write_csv(folder / "step_trace_time.csv", rows, columns)
