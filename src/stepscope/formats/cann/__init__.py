# SPDX-License-Identifier: Apache-2.0
"""Raw `PROF_*` folders, read without the vendor's toolkit (docs/formats/cann.md)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepscope.tables import Tables

__all__ = ["read"]


def read(prof: Path, *, parallel: bool = True) -> Tables:
    """All tables of a raw folder; see `stepscope.formats.cann.tables.read`."""
    # Loaded when a folder is read: to see what a folder holds takes four of the forty modules here.
    from stepscope.formats.cann import tables

    return tables.read(prof, parallel=parallel)
