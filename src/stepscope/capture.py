# SPDX-License-Identifier: Apache-2.0
"""Open a capture: choose its sources, read them, link the tables and keep them in the store.

Readers are imported when their format is met: all of them together take longer than reading a small capture.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from stepscope.errors import CaptureError, printable
from stepscope.formats.discover import find
from stepscope.formats.pack import is_pack, unpacked
from stepscope.formats.reader import SOURCES, CaptureFiles, Options, Progress, quiet
from stepscope.formats.registry import reader_of
from stepscope.tables import ALL_TABLES, Facts, Tables, issues, lost
from stepscope.tables.store import SMALL_BYTES, fingerprint, is_fresh, read_store, size, store_folder, write_store
from stepscope.tables.tableset import absent_table

__all__ = ["SOURCES", "Capture", "folder_of", "gc_paused", "open_all", "open_capture", "store_path"]


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


class NewStore(NamedTuple):
    """The place of a store that is absent or stale, and the sources as they were before they were read."""

    folder: Path
    sources: list[list[object]]

    def write(self, tables: Tables) -> list[pl.DataFrame]:
        """Write the store; rows of `quality` when that fails: the tables are good, only the next opening will be slower."""
        try:
            write_store(self.folder, tables, self.sources)
        except OSError as problem:
            return [lost(issues.STORE_NOT_WRITTEN, str(self.folder), 1, str(problem))]
        return []


class Capture:
    """One capture whose tables are polars frames: `capture.ops`, `capture.kernels`, …

    The tables are read when first asked for, then kept in a store beside the capture (or in the user's cache
    when that folder is read-only) and opened from there the next time.
    """

    def __init__(self, files: CaptureFiles, *, source: str = "auto", databases_first: bool = False):
        if source not in SOURCES:
            raise CaptureError(f"unknown source {source!r}", where=str(files.root), fix=f"use one of {', '.join(SOURCES)}")
        self.path = files.root
        self.files = files
        self.source = reader_of(files).source(files, source)
        self.databases_first = databases_first

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> pl.DataFrame: ...

    else:

        def __getattr__(self, name):
            # Whoever looks for special methods (copy, a notebook) must not cause the capture to be read.
            if name in ALL_TABLES or hasattr(Tables, name):
                return getattr(self.tables, name)
            raise AttributeError(absent_table(name, "Capture"))

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *ALL_TABLES]

    def _ipython_key_completions_(self) -> list[str]:
        return list(ALL_TABLES)

    def _repr_html_(self) -> str:
        """Path, rank, device and tables, for a notebook."""
        from html import escape

        facts = self.facts
        rank = f"rank {facts.rank}, " if facts.rank >= 0 else ""
        line = f"{rank}{self.tables.device_kind}, {self.tables.steps.height} steps, read from {facts.source or self.source}"
        return f"<div><p><b>{escape(str(self.path))}</b><br>{escape(line)}</p>{self.tables._repr_html_()}</div>"

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
        return reader_of(self.files).source_files(self.files, Options(self.source, self.databases_first))

    def stored(self) -> Path | None:
        """The folder of the store, built when it is absent or stale; None when it cannot be written."""
        _require_utf8(self.path)
        folder = store_path(self.files)
        if reader_of(self.files).stored is not None:
            return folder
        sources = fingerprint(self.source_files(), self.path)
        if is_fresh(folder, sources):
            return folder
        self.__dict__["tables"] = self.load()
        return folder if is_fresh(folder, sources) else None

    def load(
        self, progress: Progress = quiet, *, keep: bool = True, parallel: bool = True, max_memory: int | None = None
    ) -> Tables:
        """The linked tables, from the store when it is fresh, else read from the sources (and stored, with `keep`)."""
        tables, store = self.load_unstored(progress, parallel=parallel, max_memory=max_memory)
        if store is None or not keep:
            return tables
        progress("writing the store")
        problem = store.write(tables)
        if problem:
            return tables.with_quality(*problem)
        # What is mapped takes the file system's memory in the place of ours; less than that is copied, to no use.
        return (read_store(store.folder, None) or tables) if size(tables) >= SMALL_BYTES else tables

    def load_unstored(
        self, progress: Progress = quiet, *, parallel: bool = True, max_memory: int | None = None
    ) -> tuple[Tables, NewStore | None]:
        """The linked tables, and the store that the caller may write of them; None where they come from a fresh one."""
        _require_utf8(self.path)
        if reader_of(self.files).stored is not None:
            return self._read(Options(self.source, progress=progress)), None
        new = NewStore(store_folder(self.path), fingerprint(self.source_files(), self.path))
        stored = read_store(new.folder, new.sources)
        if stored is not None:
            progress("opening the store")
            return stored, None
        from stepscope.analysis.link.capture import link  # a fresh store is opened without it

        with gc_paused():
            tables = self._read(Options(self.source, self.databases_first, parallel, progress, max_memory))
            progress("linking operators and kernels")
            return link(tables, parallel=parallel), new

    def _read(self, options: Options) -> Tables:
        files = self.files
        notes = [lost(issues.LINK_NOT_FOLLOWED, str(path), 1) for path in files.linked]
        if files.alias:
            notes.append(lost(issues.PATH_IS_LINK, str(files.alias), 1, f"read from {files.root}"))
        return reader_of(files).read(files, options).with_quality(*notes)


def open_capture(path: str | Path, *, source: str = "auto") -> Capture:
    """Open the one capture at `path`.

    Args:
        path: a capture folder, a PROF_* folder, a trace file, a database, a pack, or a folder with exactly one of them.
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


def store_path(files: CaptureFiles) -> Path:
    """Where the tables of a capture lie, once they are stored."""
    own = reader_of(files).stored
    return own(files) if own is not None else store_folder(files.root)


def folder_of(path: Path) -> Path:
    """The path itself, or for a pack the folder into which it was unpacked."""
    return unpacked(path) if is_pack(path) else path


def _require_utf8(path: Path) -> None:
    """The columnar engine and the database driver take paths as text only."""
    if str(path) != printable(str(path)):
        raise CaptureError(
            "the path is not UTF-8",
            where=str(path),
            cause="some bytes of its name are not characters",
            fix="rename the folder or file (mv), then try again",
        )
