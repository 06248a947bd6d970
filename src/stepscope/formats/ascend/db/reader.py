# SPDX-License-Identifier: Apache-2.0
"""A database of an Ascend profiler, by itself."""

from __future__ import annotations

import re
from pathlib import Path

from stepscope.formats.reader import CaptureFiles, Options, Reader
from stepscope.formats.sqlite.names import SUFFIXES
from stepscope.tables import Facts, Tables

_NAME = re.compile(r"(?:ascend_(?:pytorch|mindspore)_profiler|msprof)(?:_(?P<rank>\d+))?.*\.db")


def _claims(path: Path) -> CaptureFiles | None:
    # analysis.db is read together with the database beside it.
    return CaptureFiles(path, file=path) if path.suffix in SUFFIXES and path.name != "analysis.db" and path.is_file() else None


def _names(files: CaptureFiles) -> tuple[str, str]:
    match = _NAME.fullmatch(files.root.name)
    return (match["rank"] if match and match["rank"] else files.root.stem), "1"


def _read(files: CaptureFiles, options: Options) -> Tables:
    from stepscope.formats.ascend.db.read import read

    options.progress(f"reading {files.root.name}")
    return read(files.root, Facts(source="ascend_db"))


READER = Reader(
    name="ascend_database",
    accepts="a profiler .db",
    claims=_claims,
    read=_read,
    form="db",
    listed=lambda path: bool(_NAME.fullmatch(path.name)),
    names=_names,
    layouts=("<run>/ascend_pytorch_profiler_<rank>.db, msprof_*.db",),
)
