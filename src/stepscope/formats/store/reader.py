# SPDX-License-Identifier: Apache-2.0
"""A folder of tables with their manifest as a capture: nothing is read but the store itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.formats.reader import CaptureFiles, Options, Reader

if TYPE_CHECKING:
    from stepscope.tables import Tables

_STORE = ".stepscope"  # tables/store.py
_MANIFEST = "manifest.json"
_RANK = re.compile(r"rank_(\d{1,9})")


def _folder(root: Path) -> Path:
    """The tables lie in the folder itself, or below it where they are all that is left of a capture."""
    inside = root / _STORE
    return inside if not (root / _MANIFEST).is_file() and not inside.is_symlink() else root


def _claims(path: Path) -> CaptureFiles | None:
    if path.is_symlink() or not (_folder(path) / _MANIFEST).is_file():
        return None
    from stepscope.tables.store import is_store  # loaded for folders with a manifest only

    return CaptureFiles(path) if is_store(_folder(path)) else None


def _source_files(files: CaptureFiles, options: Options) -> list[Path]:
    del options
    folder = _folder(files.root)
    return [path for path in sorted(folder.iterdir()) if path.suffix == ".arrow" or path.name == _MANIFEST]


def _read(files: CaptureFiles, options: Options) -> Tables:
    from stepscope.tables.store import open_store

    options.progress("opening the store")
    return open_store(_folder(files.root))


def _names(files: CaptureFiles) -> tuple[str, str]:
    rank = _RANK.fullmatch(files.root.name)
    return (rank[1] if rank else files.root.name), "1"


def _stored(files: CaptureFiles) -> Path:
    return _folder(files.root)


READER = Reader(
    name="store",
    accepts="a folder with tables of stepscope and their manifest.json",
    claims=_claims,
    read=_read,
    source_files=_source_files,
    form="store",
    names=_names,
    stored=_stored,
    layouts=("<run>/rank_<n>/manifest.json and *.arrow (of stepscope slice, merge or pack --redact)",),
)
