# SPDX-License-Identifier: Apache-2.0
"""operator_flops.csv and step_flops.csv: floating-point operations by operator and by step, and per second."""

from __future__ import annotations

from pathlib import Path

from stepscope.analysis.flops import flops_by_operator, flops_by_step
from stepscope.render.csv_file import duration, fraction, text, whole, write_csv
from stepscope.tables import Tables


def write(tables: Tables, folder: Path) -> list[Path]:
    """Write both files; none when the capture counted no operations, only the first when it has no steps."""
    if not tables.ops["flops"].count():
        return []
    operators, steps = flops_by_operator(tables), flops_by_step(tables)
    by_operator = [
        text("Name", "name"),
        whole("Calls", "calls"),
        whole("FLOPs", "flops"),
        fraction("FLOPs/s", operators["flops_per_s"]),
    ]
    by_step = [
        whole("Step", "step"),
        whole("FLOPs", "flops"),
        duration("Duration(us)", steps["duration_ns"]),
        fraction("FLOPs/s", steps["flops_per_s"]),
    ]
    return [
        *write_csv(folder / "operator_flops.csv", operators, by_operator),
        *write_csv(folder / "step_flops.csv", steps, by_step),
    ]
