# SPDX-License-Identifier: Apache-2.0
"""Which runs, workers and spans lie below the folders that a user gave (docs/reference/viewer.md 2)."""

from __future__ import annotations

import glob
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from stepscope.errors import printable
from stepscope.formats import registry
from stepscope.formats.ascend_capture import prof_folder
from stepscope.formats.chrome.files import is_json, looks_like_trace
from stepscope.formats.reader import CaptureFiles, bare_name
from stepscope.tables.sealed_folder import MANIFEST
from stepscope.tables.store import store_folder

MOST_DEPTH = 8
RESULTS = "_stepscope"  # end of the name of a folder of results (analyser.py)
MOST_ENTRIES = 200_000  # folders and files looked at in one scan


@dataclass(frozen=True)
class CaptureLocation:
    """One capture and where the user finds it."""

    run: str
    worker: str
    span: str
    files: CaptureFiles
    root: Path  # the given folder below which everything must lie
    not_analysed: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        return self.run, self.worker, self.span

    @property
    def path(self) -> str:
        """Path as shown: below the given folder."""
        return shown_path(self.files.root, self.root)


def shown_path(path: Path, root: Path) -> str:
    """A path below the folder that the user gave; never where that folder is."""
    inside = path != root and path.is_relative_to(root)
    return printable(path.relative_to(root).as_posix() if inside else path.name)


def natural(text: str) -> tuple[object, ...]:
    """Sort key in which 2 stands before 10."""
    return tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", text))


def layouts() -> list[str]:
    """Where captures may lie, one line a layout."""
    return [line for reader in registry.READERS for line in reader.layouts]


def discover(roots: Sequence[Path], *, follow_links: bool = False) -> list[CaptureLocation]:
    """Every capture at or below the given paths, by run, worker and span in natural order."""
    captures: list[CaptureLocation] = []
    for path in roots:
        root = Path(os.path.realpath(path))
        if root.exists():
            captures += _Scan(root, follow_links).all()
    unique: dict[Path, CaptureLocation] = {}
    for item in captures:
        run, worker, span = map(printable, item.key)
        unique.setdefault(item.files.root, replace(item, run=run, worker=worker, span=span))
    return _distinct(list(unique.values()))


class _Scan:
    """One walk below one folder."""

    def __init__(self, root: Path, follow_links: bool):
        self.root = root
        self.follow_links = follow_links
        self.looked_at = 0

    def all(self) -> list[CaptureLocation]:
        if self.root.is_file():
            capture = registry.claim(self.root)
            return [self._file(capture, self.root)] if capture else []
        itself = registry.claim(self.root)
        if itself is not None:
            # ASCEND_PROFILER_OUTPUT itself was named: its capture is the folder around it.
            return [CaptureLocation(itself.root.name, *_names(itself), itself, itself.root, _not_analysed(itself))]
        return list(self._below(self.root, 0))

    def _below(self, folder: Path, depth: int) -> Iterator[CaptureLocation]:
        entries = self._entries(folder)
        profs = any(entry.name.startswith("PROF_") and entry.is_dir() for entry in entries)
        for entry in entries:
            if entry.is_dir():
                if entry.name == "cluster_analysis_output" or _derived(entry):
                    continue
                capture = registry.claim(entry)
                if capture is not None:
                    yield CaptureLocation(self._run(folder), *_names(capture), capture, self.root, _not_analysed(capture))
                elif depth < MOST_DEPTH:
                    yield from self._below(entry, depth + 1)
            elif any(reader.listed(entry) for reader in registry.READERS) or _is_trace(entry):
                capture = registry.claim(entry)
                # A database beside PROF folders is another form of the same.
                if capture is not None and not (profs and entry.suffix == ".db"):
                    yield self._file(capture, entry)

    def _entries(self, folder: Path) -> list[Path]:
        try:
            names = sorted(os.listdir(folder), key=natural)
        except OSError:
            return []
        self.looked_at += len(names)
        if self.looked_at > MOST_ENTRIES:
            return []
        return [entry for entry in (folder / name for name in names if not name.startswith(".")) if self._allowed(entry)]

    def _allowed(self, entry: Path) -> bool:
        """Links lead nowhere outside, unless the user allows it."""
        if not entry.is_symlink():
            return True
        if self.follow_links:
            return entry.exists()
        target = Path(os.path.realpath(entry))
        return target.is_relative_to(self.root) and target.exists()

    def _run(self, folder: Path) -> str:
        return self.root.name if folder == self.root else folder.relative_to(self.root).as_posix()

    def _file(self, capture: CaptureFiles, path: Path) -> CaptureLocation:
        root = self.root if self.root.is_dir() else self.root.parent
        run = path.parent.name if path.parent == root else path.parent.relative_to(root).as_posix()
        if capture.file is None:  # a file inside a capture folder
            return CaptureLocation(capture.root.parent.name, *_names(capture), capture, capture.root)
        return CaptureLocation(run, *_names(capture), capture, root)


def _is_trace(path: Path) -> bool:
    """Whether a file of any name begins as a trace does."""
    if not is_json(path):
        return False
    try:
        status = path.stat()
    except OSError:
        return False
    return _begins_as_trace(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=4096)
def _begins_as_trace(path: Path, changed_ns: int, size: int) -> bool:
    """Folders are looked through every few seconds; a file that did not change is opened once."""
    del changed_ns
    return size > 0 and looks_like_trace(path)


def _derived(folder: Path) -> bool:
    """What `stepscope analyse` wrote beside a trace that is shown itself."""
    stem = folder.name.removesuffix(RESULTS)
    if stem == folder.name:
        return False
    return any(file.is_file() and bare_name(file) == stem for file in folder.parent.glob(f"{glob.escape(stem)}.*"))


def _names(capture: CaptureFiles) -> tuple[str, str]:
    """Worker and span under which the page lists a capture."""
    return registry.reader_of(capture).names(capture)


def _not_analysed(capture: CaptureFiles) -> bool:
    """Only raw data, never read before."""
    if capture.output is not None or (store_folder(capture.root) / MANIFEST).is_file():
        return False
    return not any("parsed" in prof_folder.forms(prof) for prof in capture.profs) if capture.framework or capture.profs else False


def _distinct(captures: list[CaptureLocation]) -> list[CaptureLocation]:
    """Natural order; spans of traces numbered by time, captures of the same name get different spans."""
    groups: defaultdict[tuple[str, str], list[CaptureLocation]] = defaultdict(list)
    for item in captures:
        groups[item.run, item.worker].append(item)
    numbered = []
    for members in groups.values():
        members.sort(key=lambda item: (natural(item.span), natural(item.files.root.name)))
        spans = [item.span for item in members]
        renumber = len(set(spans)) < len(spans) or any(span.startswith("time ") for span in spans)
        numbered += [replace(item, span=str(number)) if renumber else item for number, item in enumerate(members, 1)]
    return sorted(numbered, key=lambda item: (natural(item.run), natural(item.worker), natural(item.span)))
