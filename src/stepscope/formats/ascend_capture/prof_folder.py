# SPDX-License-Identifier: Apache-2.0
"""A PROF_* folder: in which forms its data can be read, and as a capture of its own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.errors import CaptureError
from stepscope.formats import cann
from stepscope.formats.reader import CaptureFiles, Options, Reader
from stepscope.tables import Facts, Tables, issues, lost

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

PROF = re.compile(r"PROF_.+")  # the rest of the name has several forms (docs/formats/cann.md 1)


def forms(prof: Path) -> tuple[str, ...]:
    """`raw` records, the vendor's `parsed` files, or only `part` of the raw records (host calls of a chip not yet readable)."""
    from stepscope.formats.cann.chips import obstacle
    from stepscope.formats.cann.folder import is_raw

    raw = is_raw(prof)
    whole = raw and not obstacle(prof)
    parsed = _has_timeline(prof) or _database(prof) is not None
    candidates = (("raw", whole), ("parsed", parsed), ("part", raw and not whole))
    return tuple(form for form, present in candidates if present)


def form_to_read(prof: Path, source: str) -> str:
    """The form of a PROF folder that is read: the best, or the vendor's parsed files where those were requested."""
    available = forms(prof)
    return "parsed" if source == "parsed" and "parsed" in available else next(iter(available), "")


def stamp(files: CaptureFiles) -> str:
    """When a PROF folder was started, by its name: 14 digits; empty for other captures."""
    from stepscope.formats.cann.folder import stamp_of

    return stamp_of(files.root.name) if files.is_prof else ""


def source_files(prof: Path, options: Options) -> list[Path]:
    if form_to_read(prof, options.source) != "parsed":
        files = [path for part in (prof / "host", *prof.glob("device_*")) for path in (*part.glob("*"), *part.glob("data/*"))]
        return [path for path in files if path.suffix not in (".done", ".complete")]
    database = _database(prof)
    if database and (options.databases_first or not _has_timeline(prof)):
        return [database, *prof.glob("analyze/*.db")]
    old = [*prof.glob("device_*/timeline/*.json"), *prof.glob("device_*/summary/*.csv")]
    return [*prof.glob("mindstudio_profiler_output/*"), *prof.glob("analyze/*.json"), *old]


def reading(prof: Path, form: str, facts: Facts, options: Options, *, alone: bool) -> Callable[[], Tables]:
    """A call that reads the folder in that form."""
    if form != "parsed":
        return lambda: _raw_or_parsed(prof, facts, options, alone=alone)
    database = _database(prof)
    if database and (options.databases_first or not _has_timeline(prof)):
        from stepscope.formats.ascend.db.read import read

        chosen = database
        return lambda: read(chosen, facts)
    from stepscope.formats.ascend import msprof_output

    return lambda: msprof_output.read(prof)


def form_notes(prof: Path, form: str, source: str) -> list[pl.DataFrame]:
    """What a reader of the results must know about the form in which a PROF folder was read."""
    if not form:
        return [lost(issues.MISSING_DEVICE_DATA, str(prof), 1)]
    from stepscope.formats.cann.chips import obstacle
    from stepscope.formats.cann.folder import is_raw

    if form == "parsed" and source == "raw" and is_raw(prof):
        return [lost(issues.PARSED_INSTEAD_OF_RAW, str(prof), 1, obstacle(prof))]
    return []


def _raw_or_parsed(prof: Path, facts: Facts, options: Options, *, alone: bool) -> Tables:
    """Raw records; where they turn out to be useless the vendor's parsed files, or nothing beside other sources."""
    try:
        return cann.read(prof, parallel=options.parallel)
    except CaptureError as problem:
        cause = problem.cause or problem.what
        if "parsed" in forms(prof):
            note = lost(issues.PARSED_INSTEAD_OF_RAW, str(prof), 1, cause)
            return reading(prof, "parsed", facts, options, alone=alone)().with_quality(note)
        if alone:
            raise
        if facts.level == "Level_none":
            return Tables()  # no device data were requested, so none are missing
        return Tables().with_quality(lost(issues.RAW_DEVICE_UNREAD, str(prof), 1, cause))


def _has_timeline(prof: Path) -> bool:
    return any((prof / "mindstudio_profiler_output").glob("*.*")) or any(prof.glob("device_*/timeline/msprof_*.json"))


def _database(prof: Path) -> Path | None:
    return next(iter(sorted(prof.glob("msprof_*.db"))), None)


def _claims(path: Path) -> CaptureFiles | None:
    if not PROF.fullmatch(path.name) or not path.is_dir():
        return None
    return CaptureFiles(root=path, profs=(path,))


def _source_files(files: CaptureFiles, options: Options) -> list[Path]:
    # Settings of a framework's profiler beside the data of the device, where somebody put them there.
    settings = sorted(files.root.glob("profiler_*.json"))
    return [path for path in (*settings, *source_files(files.root, options)) if path.is_file()]


def _choose(files: CaptureFiles, source: str) -> str:
    from stepscope.formats.ascend_capture.capture_folder import choose

    return choose(files, source)


def _read(files: CaptureFiles, options: Options) -> Tables:
    from stepscope.formats.ascend_capture.records import read_capture_records

    return read_capture_records(files, Facts(), options)


READER = Reader(
    name="prof_folder",
    accepts="a PROF_* folder",
    claims=_claims,
    read=_read,
    source_files=_source_files,
    choose=_choose,
    layouts=("<run>/PROF_*/ (raw data)",),
)
