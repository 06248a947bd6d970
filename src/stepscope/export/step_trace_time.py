# SPDX-License-Identifier: Apache-2.0
"""Which rows step_trace_time.csv gets (docs/formats/outputs.md 7)."""

from __future__ import annotations

from pathlib import Path

from stepscope.analysis.step_time import step_trace_time as rows_of_steps
from stepscope.formats.ascend import step_trace_time
from stepscope.tables import Tables


def write(tables: Tables, folder: Path, *, with_device: bool = True) -> list[Path]:
    """Write the file; none when nothing ran on a device. MindSpore's has no column for the device."""
    if not (tables.kernels.height or tables.collectives.height):
        return []
    return step_trace_time.write(folder / step_trace_time.FILE, rows_of_steps(tables), with_device=with_device)
