# SPDX-License-Identifier: Apache-2.0
"""Writes the report: whole or not at all."""

from __future__ import annotations

from pathlib import Path

from stepscope.errors import CaptureError
from stepscope.render.atomic import replacing


def write(text: str, path: Path) -> int:
    """The size of the file.

    Raises:
        CaptureError: it cannot be written there.
    """
    if path.is_dir():
        raise CaptureError("the report is a file", where=str(path), cause="this is a folder", fix=f"--out {path / 'report.html'}")
    if not path.parent.is_dir():
        raise CaptureError("no such folder", where=str(path.parent), fix=f"mkdir -p {path.parent}")
    data = text.encode("utf-8", "replace")
    with replacing(path) as file:
        file.write(data)
    return len(data)
