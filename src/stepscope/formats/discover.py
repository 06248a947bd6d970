# SPDX-License-Identifier: Apache-2.0
"""Which captures lie at or below a path."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from stepscope.errors import CaptureError
from stepscope.formats import registry
from stepscope.formats.pack import is_pack, unpacked
from stepscope.formats.reader import CaptureFiles

# Files that only MindInsight read.
_MINDINSIGHT = re.compile(
    r"(aicore_intermediate|framework_raw|output_op_compute_time|output_timeline_data|step_trace_raw|min_cycle_counter|"
    r"minddata_pipeline_raw|device_queue_profiling|aicpu_intermediate)_\d+"
)
_RANK = re.compile(r"rank_\d{1,9}")
_LEVELS = 3  # of folders: summaries, one run, its profiler
_MOST_FOLDERS = 1000  # of a level; somebody may give a whole disk


def find(path: Path) -> list[CaptureFiles]:
    """Every capture at `path` itself, else directly below it, else in the folders below it, by name.

    Raises:
        CaptureError: the path does not exist, cannot be read, or holds no capture.
    """
    path = Path(os.path.expanduser(path))
    if not path.exists():
        raise CaptureError(
            "no such file or folder", where=str(path), fix="check the path; a capture folder ends in _ascend_pt or _ascend_ms"
        )
    if not os.access(path, os.R_OK | (os.X_OK if path.is_dir() else 0)):
        raise CaptureError("cannot be read", where=str(path), cause="no permission", fix=f"chmod u+rX {path}")
    if is_pack(path):
        path = unpacked(path)
    alias = path if path.is_symlink() else None
    path = path.resolve() if alias else path
    found = registry.claim(path)
    if found:
        return [replace(found, alias=alias)]
    if _is_mindinsight_run(path):
        return find(path / "profiler")
    if _is_mindinsight_result(path):
        raise _result_of_mindinsight(path)
    children = (_claimed(path) or _deeper(path)) if path.is_dir() else []
    # Databases and traces beside PROF folders are other forms of the same.
    if any(item.is_prof for item in children):
        children = [item for item in children if item.file is None]
    if children:
        return children
    raise CaptureError(
        "no capture here",
        where=str(path),
        cause=_cause(path),
        fix=f"give a folder of captures, or {_accepted_inputs()}",
    )


def _claimed(folder: Path) -> list[CaptureFiles]:
    return [item for item in map(registry.claim, _listing(folder)) if item]


def _deeper(path: Path) -> list[CaptureFiles]:
    """Captures in folders of folders: ranks of MindSpore's runtime, runs for MindInsight, experiments of anybody.

    The first level that has some counts. Files are taken by the names that profilers give them: a folder may hold any JSON.

    Raises:
        CaptureError: only results of MindInsight are there.
    """
    folders, results = [path], None
    for _ in range(_LEVELS):
        inside = [entry for folder in folders for entry in _listing(folder)]
        folders = [entry for entry in inside if entry.is_dir() and not entry.is_symlink()][:_MOST_FOLDERS]
        results = results or next(filter(_is_mindinsight_result, folders), None)
        found = [item for folder in folders for item in _claimed(folder) if _is_listed(item) or _RANK.fullmatch(folder.name)]
        if found:
            return found
    if results:
        raise _result_of_mindinsight(results)
    return []


def _is_listed(item: CaptureFiles) -> bool:
    return item.file is None or registry.reader_of(item).listed(item.file)


def _result_of_mindinsight(path: Path) -> CaptureError:
    return CaptureError(
        "results of MindInsight (MindSpore 2020 to 2023) cannot be read",
        where=str(path),
        cause="stepscope reads the records of a run (PROF_*), not the tables that MindSpore made of them for MindInsight",
        fix="open them with MindInsight, or give the PROF_* folders that lay beside them when they were recorded",
    )


def _is_mindinsight_run(path: Path) -> bool:
    """A run as MindSpore laid it out for MindInsight: its records are in the folder `profiler`."""
    inside = [entry.name for entry in _listing(path / "profiler")] if path.is_dir() else []
    return any(name.startswith("PROF_") or _MINDINSIGHT.match(name) for name in inside)


def _is_mindinsight_result(path: Path) -> bool:
    """Tables that MindSpore made for MindInsight, without the records they came from."""
    names = [entry.name for entry in _listing(path)] if path.is_dir() else []
    return any(map(_MINDINSIGHT.match, names)) and not any(name.startswith("PROF_") for name in names)


def _accepted_inputs() -> str:
    *most, last = (*(reader.accepts for reader in registry.READERS), "a .tar.zst of stepscope pack")
    return f"{', '.join(most)} or {last}"


def _listing(path: Path) -> Iterable[Path]:
    try:
        return sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
    except OSError:
        return ()


def _cause(path: Path) -> str:
    if path.is_file():
        return f"no reader knows {path.name}, neither by its name nor by its content"
    names = [child.name for child in _listing(path)]
    if not names:
        return "the folder is empty"
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return f"it holds {shown}; none of them is a capture"
