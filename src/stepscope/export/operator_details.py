# SPDX-License-Identifier: Apache-2.0
"""Which rows operator_details.csv gets (docs/formats/outputs.md 5)."""

from __future__ import annotations

from pathlib import Path

from stepscope.analysis import operators
from stepscope.formats.ascend import operator_details
from stepscope.tables import Tables


def write(tables: Tables, folder: Path) -> list[Path]:
    """Write the file; none without operators."""
    if not tables.ops.height:
        return []
    return operator_details.write(folder / operator_details.FILE, operators.operator_details(tables))
