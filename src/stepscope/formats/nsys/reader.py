# SPDX-License-Identifier: Apache-2.0
"""Exports of Nsight Systems as captures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.errors import CaptureError
from stepscope.formats.reader import CaptureFiles, Options, Reader
from stepscope.formats.sqlite.names import SUFFIXES, table_names

if TYPE_CHECKING:
    from stepscope.tables import Tables

_EXPORTS = (".sqlite", ".sqlite3")
_OWN = re.compile(r"CUPTI_|NVTX_|TARGET_INFO_|StringIds$")  # tables of every export
_REPORTS = (".nsys-rep", ".qdrep")  # the tool's own format, which only the tool reads


def _claims(path: Path) -> CaptureFiles | None:
    if path.suffix in SUFFIXES and path.is_file():
        return CaptureFiles(path, file=path) if _is_export(path) else None
    exported = any(path.with_suffix(suffix).is_file() for suffix in _EXPORTS) if path.suffix in _REPORTS else True
    return CaptureFiles(path, file=path) if not exported and path.is_file() else None


def _is_export(path: Path) -> bool:
    names = table_names(path)
    # A file that is damaged is known by its name only.
    return any(map(_OWN.match, names)) if names else path.suffix in _EXPORTS


def _read(files: CaptureFiles, options: Options) -> Tables:
    if files.root.suffix in _REPORTS:
        raise CaptureError(
            "a report of Nsight Systems must be exported before it can be read",
            where=str(files.root),
            cause=f"{files.root.suffix} is read by NVIDIA's nsys only",
            fix=f"nsys export --type sqlite {files.root}, then give {files.root.with_suffix('.sqlite').name}",
        )
    from stepscope.formats.nsys.read import read

    options.progress(f"reading {files.root.name}")
    return read(files.root)


READER = Reader(
    name="nsys",
    accepts="a .sqlite export of Nsight Systems",
    claims=_claims,
    read=_read,
    form="db",
    listed=lambda path: path.suffix in _EXPORTS,
    layouts=("<run>/<worker>.sqlite (nsys export --type sqlite)",),
)
