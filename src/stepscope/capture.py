# SPDX-License-Identifier: Apache-2.0
"""Open a capture: choose its sources, read them, link the tables and keep them in the store.

Readers are imported when their format is met: all of them together take longer than reading a small capture.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from stepscope.analysis.link.capture import link
from stepscope.errors import CaptureError
from stepscope.formats import cann, mindspore
from stepscope.formats.ascend.profiler_info import read_facts
from stepscope.formats.cann.chips import obstacle
from stepscope.formats.cann.folder import is_raw
from stepscope.formats.discover import CaptureFiles, find, is_ascend_timeline, prof_database, prof_forms, prof_timeline
from stepscope.tables import Facts, Tables, lost
from stepscope.tables.store import fingerprint, read_store, store_folder, write_store
from stepscope.tables.union import union

RECORDS = ("raw", "parsed")  # sources with the framework's own records
SOURCES = ("auto", "raw", "parsed", "text", "db")
Progress = Callable[[str], None]
_RAW_LOST = "raw device records not read"
_INSTEAD = "the vendor's parsed files were read instead"


def quiet(stage: str) -> None:
    """Progress that nobody watches."""
    del stage


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause garbage collection: parsing creates few cycles, and scanning them is slow."""
    searching = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if searching:
            gc.enable()


class Capture:
    """One capture whose tables are polars frames: `capture.ops`, `capture.kernels`, …

    The tables are read when first asked for, then kept in a store beside the capture (or in the user's cache
    when that folder is read-only) and opened from there the next time.
    """

    def __init__(self, files: CaptureFiles, *, source: str = "auto", databases_first: bool = False):
        self.path = files.root
        self.files = files
        self.source = _choose(files, source)
        self.databases_first = databases_first

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> pl.DataFrame: ...

    else:

        def __getattr__(self, name):
            return getattr(self.tables, name)

    def __repr__(self) -> str:
        return f"Capture({str(self.path)!r}, source={self.source!r})"

    @cached_property
    def tables(self) -> Tables:
        return self.load()

    @property
    def facts(self) -> Facts:
        return self.tables.facts

    def source_files(self) -> list[Path]:
        """The files the tables are read from."""
        return _source_files(self.files, self.source, self.databases_first)

    def load(self, progress: Progress = quiet, *, keep: bool = True, parallel: bool = True) -> Tables:
        """The linked tables, from the store when it is fresh, else read from the sources (and stored, with `keep`)."""
        sources = fingerprint(self.source_files(), self.path)
        folder = store_folder(self.path)
        stored = read_store(folder, sources)
        if stored is not None:
            progress("opening the store")
            return stored
        with gc_paused():
            tables = link_tables(
                _read(self.files, self.source, self.databases_first, progress, parallel), progress, parallel=parallel
            )
            if keep:
                progress("writing the store")
                tables = _kept(folder, tables, sources)
        return tables


def open_capture(path: str | Path, *, source: str = "auto") -> Capture:
    """Open the one capture at `path`.

    Args:
        path: a capture folder, a PROF_* folder, a trace file, a database, or a folder with exactly one of them.
        source: `raw` records of framework and device, records of the framework with the vendor's `parsed` device data,
            the `text` or `db` files of an earlier analysis, or `auto` for the best that is there.
    """
    found = find(Path(path))
    if len(found) > 1:
        names = ", ".join(files.root.name for files in found[:4]) + (" …" if len(found) > 4 else "")
        raise CaptureError(
            f"{len(found)} captures here, one expected", where=str(path), cause=names, fix="name one of them, or use open_all"
        )
    return Capture(found[0], source=source)


def open_all(path: str | Path, *, source: str = "auto") -> list[Capture]:
    """Every capture at or directly below `path`."""
    return [Capture(files, source=source) for files in find(Path(path))]


def link_tables(tables: Tables, progress: Progress = quiet, *, parallel: bool = True) -> Tables:
    progress("linking operators and kernels")
    return link(tables, parallel=parallel)


def _choose(files: CaptureFiles, source: str) -> str:
    if source not in SOURCES:
        raise CaptureError(f"unknown source {source!r}", where=str(files.root), fix=f"use one of {', '.join(SOURCES)}")
    if files.trace or files.database:
        return "trace" if files.trace else "db"
    forms = files.forms
    there = {
        "raw": bool(files.framework or any(forms.values())),
        "parsed": any("parsed" in form for form in forms.values()),
        "text": files.has_text,
        "db": bool(files.databases),
    }
    if source != "auto":
        if not there[source]:
            names = [name for name, present in there.items() if present]
            raise CaptureError(
                f"no {source} data", where=str(files.root), fix=f"use --source {names[0]}" if names else "capture again"
            )
        return source
    if there["raw"] and all(form and form[0] != "part" for form in forms.values()):
        return "raw"
    for name in ("text", "db", "raw"):
        if there[name]:
            return name
    raise CaptureError(
        "nothing readable in this capture",
        where=str(files.root),
        cause="the folder has the right name but no data",
        fix="capture again",
    )


def _source_files(files: CaptureFiles, source: str, databases_first: bool) -> list[Path]:
    single = files.trace or files.database
    if single:
        return [single]
    chosen = sorted(files.root.glob("profiler_*.json"))
    if source in RECORDS:
        chosen += sorted(files.framework.glob("*")) if files.framework else []
        for prof in files.profs:
            chosen += _prof_files(prof, _form(prof, source), databases_first)
    elif source == "text" and files.output:
        chosen += [path for path in files.output.iterdir() if path.suffix in (".json", ".csv")]
    elif files.output:
        chosen += sorted(files.output.glob("*.db"))
    return [path for path in chosen if path.is_file()]


def _form(prof: Path, source: str) -> str:
    """The form of a PROF folder that is read: the best, or the vendor's parsed files where those were asked for."""
    forms = prof_forms(prof)
    return "parsed" if source == "parsed" and "parsed" in forms else next(iter(forms), "")


def _prof_files(prof: Path, form: str, databases_first: bool) -> list[Path]:
    if form != "parsed":
        files = [path for part in (prof / "host", *prof.glob("device_*")) for path in (*part.glob("*"), *part.glob("data/*"))]
        return [path for path in files if path.suffix not in (".done", ".complete")]
    database = prof_database(prof)
    if database and (databases_first or not prof_timeline(prof)):
        return [database, *prof.glob("analyze/*.db")]
    old = [*prof.glob("device_*/timeline/*.json"), *prof.glob("device_*/summary/*.csv")]
    return [*prof.glob("mindstudio_profiler_output/*"), *prof.glob("analyze/*.json"), *old]


def _read(files: CaptureFiles, source: str, databases_first: bool, progress: Progress, parallel: bool) -> Tables:
    notes = [lost(str(link), "symbolic link not followed", 1, "captures are read without following links") for link in files.linked]
    if files.alias:
        notes.append(lost(str(files.alias), "path is a symbolic link", 1, f"read from {files.root}"))
    if files.trace:
        progress(f"reading {files.trace.name}")
        return _read_trace(files.trace).with_quality(*notes)
    if files.database:
        progress(f"reading {files.database.name}")
        return _read_database(files.database, Facts(source="ascend_db")).with_quality(*notes)
    facts, lost_info = (Facts(), None) if files.is_prof else read_facts(files.root, raw=source in RECORDS)
    if files.framework and mindspore.is_mindspore(files.framework):
        facts = facts.replace(framework="mindspore", device_kind=facts.device_kind or ("npu" if files.profs else "cpu"))
    notes += [lost_info] if lost_info is not None else []
    if source in RECORDS:
        return _read_records(files, source, facts, databases_first, progress, parallel).with_quality(*notes)
    progress(f"reading {files.output}")
    assert files.output is not None
    if source == "text":
        from stepscope.formats.ascend import text as ascend_text

        return ascend_text.read(files.output, facts).with_quality(*notes)
    if len(files.databases) > 1:
        notes.append(
            lost(str(files.output), "further databases not read", len(files.databases) - 1, files.databases[0].name + " was read")
        )
    return _read_database(files.databases[0], facts).with_quality(*notes)


def _read_trace(path: Path) -> Tables:
    if mindspore.is_runtime_trace(path):
        return mindspore.read_runtime_trace(path)
    if is_ascend_timeline(path):
        from stepscope.formats.ascend import text as ascend_text

        return ascend_text.read_trace(path)
    from stepscope.formats import kineto

    return kineto.read(path)


def _read_database(path: Path, facts: Facts) -> Tables:
    from stepscope.formats.ascend import db as ascend_db

    return ascend_db.read(path, facts)


def _read_records(
    files: CaptureFiles, source: str, facts: Facts, databases_first: bool, progress: Progress, parallel: bool
) -> Tables:
    """FRAMEWORK and PROF side by side: the first is mostly Python's time, the second mostly the columnar engine's."""
    forms = {prof: _form(prof, source) for prof in files.profs}
    device = "raw PROF" if "raw" in forms.values() else "PROF" if any(forms.values()) else ""
    said = " and ".join(part for part in ("FRAMEWORK" if files.framework else "", device) if part)
    progress(f"reading {said}")
    reads: list[Callable[[], Tables]] = []
    if files.framework:
        # Beside a PROF folder two cores are busy already.
        split = parallel and not any(forms.values())
        reads.append(_framework_reader(files.framework, files.profs[0] if files.profs else None, facts, split))
    alone = not files.framework
    reads += [_prof_reader(prof, form, facts, databases_first, alone) for prof, form in forms.items() if form]
    with ThreadPoolExecutor(2 if parallel else 1) as pool:
        parts = list(pool.map(lambda read: read(), reads))
    notes = [note for prof, form in forms.items() for note in _about_form(prof, form, source)]
    if files.framework and any(part.marks.height for part in parts[1:]):
        parts[0] = parts[0].replace(
            marks=parts[0].marks.clear()
        )  # the device's files have the same ones, with their part on the device
    # What the device's own files say (session, host) goes before what the framework noted beside them.
    tables = union([*_renumber_connections(parts), Tables({"meta": facts.table()})])
    known = tables.facts
    asked = {"level": facts.level or known.level, "aic_metrics": facts.aic_metrics or known.aic_metrics}
    tables = tables.replace(meta=known.replace(source=said, **asked).table())
    return with_recorded_device(tables).with_quality(*notes)


def _framework_reader(folder: Path, prof: Path | None, facts: Facts, parallel: bool) -> Callable[[], Tables]:
    if facts.framework == "mindspore":
        window = facts.session_start_ns, facts.session_end_ns
        return lambda: mindspore.read(folder, prof, facts.profiler_info, window)
    from stepscope.formats.collector import read as collected
    from stepscope.formats.framework.clock import read_clock

    clock = read_clock(folder.parent, prof, facts.profiler_info)
    return lambda: collected.read(folder, clock, parallel=parallel)


def _renumber_connections(parts: list[Tables]) -> list[Tables]:
    """Every PROF folder counts its launches from one; in those after the first they go on where the last one ended."""
    apart, used = [], 0
    for part in parts:
        numbered = {name: part[name] for name in ("api_calls", "kernels", "collectives") if part[name].height}
        numbers = [frame.select(pl.col("connection_id").max().fill_null(0)).item() for frame in numbered.values()]
        highest = max(numbers, default=0)
        if used and highest:
            part = part.replace(**{name: frame.with_columns(pl.col("connection_id") + used) for name, frame in numbered.items()})
        used += highest
        apart.append(part)
    return apart


def _about_form(prof: Path, form: str, source: str) -> list[pl.DataFrame]:
    """What a reader of the results must know about the form in which a PROF folder was read."""
    if not form:
        return [lost(str(prof), "device data missing", 1, "the folder holds neither raw records nor parsed files")]
    if form == "parsed" and source == "raw" and is_raw(prof):
        return [lost(str(prof), _RAW_LOST, 1, f"{obstacle(prof)}; {_INSTEAD}")]
    return []


def with_recorded_device(tables: Tables) -> Tables:
    """The framework numbers devices inside its process; where one device was recorded, that one is meant (outputs.md 8.3)."""
    devices = tables.facts.device_ids
    if len(devices) != 1 or not tables.memory_events.height:
        return tables
    number = pl.when(pl.col("device_type") == "npu").then(pl.lit(devices[0], pl.Int32)).otherwise("device").alias("device")
    return tables.replace(memory_events=tables.memory_events.with_columns(number))


def _prof_reader(prof: Path, form: str, facts: Facts, databases_first: bool, alone: bool) -> Callable[[], Tables]:
    if form != "parsed":
        return lambda: _raw_or_parsed(prof, facts, databases_first, alone)
    database = prof_database(prof)
    if database and (databases_first or not prof_timeline(prof)):
        chosen = database
        return lambda: _read_database(chosen, facts)
    from stepscope.formats.ascend import msprof_output

    return lambda: msprof_output.read(prof)


def _raw_or_parsed(prof: Path, facts: Facts, databases_first: bool, alone: bool) -> Tables:
    """Raw records; where they turn out to be useless the vendor's parsed files, or nothing beside other sources."""
    try:
        return cann.read(prof)
    except CaptureError as problem:
        cause = problem.cause or problem.what
        if "parsed" in prof_forms(prof):
            said = lost(str(prof), _RAW_LOST, 1, f"{cause}; {_INSTEAD}")
            return _prof_reader(prof, "parsed", facts, databases_first, alone)().with_quality(said)
        if alone:
            raise
        if facts.level == "Level_none":
            return Tables()  # nothing was asked of the device, so nothing is missing
        return Tables().with_quality(lost(str(prof), _RAW_LOST, 1, cause))


def _kept(folder: Path, tables: Tables, sources: list[list[object]]) -> Tables:
    try:
        write_store(folder, tables, sources)
    except OSError as problem:
        # The tables are good; only the next opening will be slower.
        return tables.with_quality(lost(str(folder), "store not written", 1, str(problem)))
    return read_store(folder, None) or tables
