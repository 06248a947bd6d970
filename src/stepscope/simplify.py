# SPDX-License-Identifier: Apache-2.0
"""Remove what an analysis no longer needs (data_simplification), never the only copy of anything."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from stepscope.formats.ascend import msprof_output
from stepscope.formats.ascend_capture import prof_folder
from stepscope.formats.reader import CaptureFiles

_LOG = re.compile(r"msprof_analysis_\d+\.log")


def simplify(files: CaptureFiles, *, everything: bool, from_raw: bool) -> list[Path]:
    """Remove intermediate files below every PROF folder and return the removed paths.

    Intermediate SQLite folders always go. The vendor's summaries, timelines and logs go with `everything`, and so do
    the vendor's parsed output and its databases where the analysis was made from raw records (`from_raw`) and they can be read
    again; elsewhere the analysis itself was made from them (docs/formats/profiler-api.md 21).
    """
    removed = []
    for prof in files.profs:
        for path in _intermediate(prof, everything, from_raw):
            if path.is_symlink() or not path.exists():
                continue
            try:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            except FileNotFoundError:
                continue  # another analysis of the same capture removes it
            removed.append(path)
    return removed


def _intermediate(prof: Path, everything: bool, from_raw: bool) -> Iterator[Path]:
    parts = [part for part in (prof / "host", *sorted(prof.glob("device_*"))) if part.is_dir() and not part.is_symlink()]
    for part in parts:
        yield part / "sqlite"
        if everything:
            yield from (part / "summary", part / "timeline")
    if everything:
        yield prof / msprof_output.LOG
        if from_raw and "raw" in prof_folder.forms(prof):
            yield from (prof / msprof_output.ANALYZE, prof / msprof_output.OUTPUT, *prof.glob("msprof_*.db"))
        yield from (path for path in prof.glob("msprof_analysis_*.log") if _LOG.fullmatch(path.name))
