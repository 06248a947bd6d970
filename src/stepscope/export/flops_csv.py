# SPDX-License-Identifier: Apache-2.0
"""Which rows operator_flops.csv and step_flops.csv get."""

from __future__ import annotations

from pathlib import Path

from stepscope.analysis.flops import flops_by_operator, flops_by_step
from stepscope.formats.ascend import flops
from stepscope.tables import Tables


def write(tables: Tables, folder: Path) -> list[Path]:
    """Write both files; none when the capture counted no operations, only the first when it has no steps."""
    if not tables.ops["flops"].count():
        return []
    return [
        *flops.write_operators(folder / flops.OPERATOR_FILE, flops_by_operator(tables)),
        *flops.write_steps(folder / flops.STEP_FILE, flops_by_step(tables)),
    ]
