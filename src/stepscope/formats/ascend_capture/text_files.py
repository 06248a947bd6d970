# SPDX-License-Identifier: Apache-2.0
"""Parsed text files without the capture folder they came from: one csv or communication file, or a folder of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.formats.ascend_capture import csv_files
from stepscope.formats.reader import CaptureFiles, Options, Reader

if TYPE_CHECKING:
    from stepscope.tables import Tables

_OUR_RESULTS = ("_stepscope", "stepscope_output")  # what an analysis wrote beside a trace, and into a PROF folder
_LINKS = "communication_matrix.json"
_COMMUNICATION = ("communication.json", _LINKS)
_TIMELINE = re.compile(r"(?:trace_view|msprof_(?:slice_)?\d.*)\.json(?:\.gz)?")


def _claims(path: Path) -> CaptureFiles | None:
    if path.is_file():
        return CaptureFiles(path, file=path) if path.name in _COMMUNICATION or csv_files.kind_of(path) else None
    if path.name.endswith(_OUR_RESULTS):
        return None
    names = _names(path)
    # Files that were renamed are captures of their own: which of them belong together is not known.
    known = any(csv_files.is_of_framework(name) or csv_files.is_of_msprof(name) or name in _COMMUNICATION for name in names)
    return CaptureFiles(path, output=path) if known else None


def _names(folder: Path) -> set[str]:
    try:
        return {path.name for path in folder.iterdir() if path.is_file()}
    except OSError:
        return set()


def _source_files(files: CaptureFiles, options: Options) -> list[Path]:
    del options
    if files.file:
        return [files.file]
    paths = [path for path in sorted(files.root.iterdir()) if path.is_file()]
    return [path for path in paths if path.suffix == ".csv" or path.name in _COMMUNICATION or _TIMELINE.fullmatch(path.name)]


def _read(files: CaptureFiles, options: Options) -> Tables:
    from stepscope.formats.ascend import msprof_output, text
    from stepscope.tables import Facts

    options.progress(f"reading {files.root}")
    if not files.file:
        names = _names(files.root)
        # With both kinds of names the folder is one of a framework in which msprof's files lie, too.
        of_msprof = any(map(csv_files.is_of_msprof, names)) and not any(map(csv_files.is_of_framework, names))
        return msprof_output.read_folder(files.root) if of_msprof else text.read(files.root, Facts())
    if files.file.name in _COMMUNICATION:
        return text.read_communication(files.file, of_links=files.file.name == _LINKS)
    return text.read_csv(files.file, csv_files.kind_of(files.file) or "")


READER = Reader(
    name="ascend_text",
    accepts="a csv file of ASCEND_PROFILER_OUTPUT or mindstudio_profiler_output",
    claims=_claims,
    read=_read,
    source_files=_source_files,
    form="text",
)
