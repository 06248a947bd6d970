# SPDX-License-Identifier: Apache-2.0
"""Raw `PROF_*` folders, read without the vendor's toolkit (cann-raw.md)."""

from __future__ import annotations

from pathlib import Path

from stepscope.errors import CaptureError
from stepscope.tables import Tables

__all__ = ["read"]


def read(prof: Path) -> Tables:
    raise CaptureError("raw records are not read yet", where=str(prof), fix="parse the folder with the vendor's msprof first")
