# SPDX-License-Identifier: Apache-2.0
"""Rings of `stepscope.watch` as captures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.formats.chrome.files import head
from stepscope.formats.reader import CaptureFiles, Options, Reader
from stepscope.formats.ring.layout import MAGIC, SUFFIX

if TYPE_CHECKING:
    from stepscope.tables import Tables


def _claims(path: Path) -> CaptureFiles | None:
    found = path.suffix == SUFFIX and path.is_file() and head(path, len(MAGIC)) == MAGIC
    return CaptureFiles(path, file=path) if found else None


def _read(files: CaptureFiles, options: Options) -> Tables:
    from stepscope.formats.ring.read import read

    options.progress(f"reading {files.root.name}")
    return read(files.root)


READER = Reader(
    name="ring",
    accepts="a ring of stepscope.watch (.ring)",
    claims=_claims,
    read=_read,
    listed=lambda path: path.suffix == SUFFIX,
    layouts=(f"<folder>/*{SUFFIX} (stepscope.watch)",),
)
