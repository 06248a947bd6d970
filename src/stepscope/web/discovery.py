# SPDX-License-Identifier: Apache-2.0
"""Which runs, workers and spans lie below the folders that a user gave (viewer.md 2)."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stepscope.formats.discover import OUTPUT, CaptureFiles, at
from stepscope.tables.store import MANIFEST, store_folder

MOST_DEPTH = 8
RESULTS = "_stepscope"  # end of the name of a folder of results (analyser.py)
MOST_ENTRIES = 200_000  # folders and files looked at in one scan
_SUFFIX = re.compile(r"_ascend_(pt|ms)$")
_NUMBERED = re.compile(r"(?P<worker>.+)_(?P<span>\d+(?:\.\d+)?)")
_KINETO = re.compile(r"(?P<worker>.+?)(?:\.(?P<time>\d+))?\.pt\.trace\.json(?:\.gz)?")
_DATABASE = re.compile(r"(?:ascend_(?:pytorch|mindspore)_profiler|msprof)(?:_(?P<rank>\d+))?.*\.db")
_INFO = re.compile(r"profiler_info_(\d+)\.json")
_TRACE_SIGNS = (b'"traceEvents"', b'"ph"')
LAYOUTS = (
    f"<run>/<worker>_<span>/{OUTPUT}/",
    f"<run>/<worker>_<span>_ascend_pt/{OUTPUT}/ (also _ascend_ms)",
    "<run>/<worker>[.<time>].pt.trace.json[.gz]",
    "<run>/ascend_pytorch_profiler_<rank>.db, msprof_*.db",
    "<run>/PROF_*/ or a folder with FRAMEWORK/ (raw data)",
    "a Chrome trace *.json[.gz], named itself",
)


@dataclass(frozen=True)
class Found:
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
    if path == root:
        return path.name
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name


def natural(text: str) -> tuple[object, ...]:
    """Sort key in which 2 stands before 10."""
    return tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", text))


def discover(roots: Sequence[Path], *, follow_links: bool = False) -> list[Found]:
    """Every capture at or below the given paths, by run, worker and span in natural order."""
    found: list[Found] = []
    for given in roots:
        root = Path(os.path.realpath(given))
        if root.exists():
            found += _Scan(root, follow_links).all()
    unique: dict[Path, Found] = {}
    for item in found:
        unique.setdefault(item.files.root, item)
    return _distinct(list(unique.values()))


class _Scan:
    """One walk below one folder."""

    def __init__(self, root: Path, follow_links: bool):
        self.root = root
        self.follow_links = follow_links
        self.looked_at = 0

    def all(self) -> list[Found]:
        if self.root.is_file():
            capture = at(self.root)
            return [self._file(capture, self.root)] if capture else []
        itself = at(self.root)
        if itself is not None:
            # ASCEND_PROFILER_OUTPUT itself was named: its capture is the folder around it.
            worker, span = _of_folder(itself.root)
            return [Found(itself.root.name, worker, span, itself, itself.root, _not_analysed(itself))]
        return list(self._below(self.root, 0)) or self._plain_traces()

    def _below(self, folder: Path, depth: int) -> Iterator[Found]:
        entries = self._entries(folder)
        profs = any(entry.name.startswith("PROF_") and entry.is_dir() for entry in entries)
        for entry in entries:
            if entry.is_dir():
                if entry.name == "cluster_analysis_output" or _derived(entry):
                    continue
                capture = at(entry)
                if capture is not None:
                    worker, span = _of_folder(entry)
                    yield Found(self._run(folder), worker, span, capture, self.root, _not_analysed(capture))
                elif depth < MOST_DEPTH:
                    yield from self._below(entry, depth + 1)
            elif _KINETO.fullmatch(entry.name) or (_DATABASE.fullmatch(entry.name) and not profs):
                # A database beside PROF folders is another form of the same.
                capture = at(entry)
                if capture is not None:
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
        """Links lead nowhere outside, unless the user said that they may."""
        if not entry.is_symlink():
            return True
        if self.follow_links:
            return entry.exists()
        target = Path(os.path.realpath(entry))
        return target.is_relative_to(self.root) and target.exists()

    def _run(self, folder: Path) -> str:
        return self.root.name if folder == self.root else folder.relative_to(self.root).as_posix()

    def _file(self, capture: CaptureFiles, path: Path) -> Found:
        root = self.root if self.root.is_dir() else self.root.parent
        run = path.parent.name if path.parent == root else path.parent.relative_to(root).as_posix()
        if capture.trace is None and capture.database is None:  # a file inside a capture folder
            worker, span = _of_folder(capture.root)
            return Found(capture.root.parent.name, worker, span, capture, capture.root)
        trace, database = _KINETO.fullmatch(path.name), _DATABASE.fullmatch(path.name)
        if trace:
            # Until all are known the time stands for the span; `_distinct` numbers them.
            return Found(run, trace["worker"], f"time {trace['time'] or 0}", capture, root)
        if database:
            return Found(run, database["rank"] or path.stem, "1", capture, root)
        return Found(run, path.name.removesuffix(".gz").removesuffix(".json").removesuffix(".db"), "1", capture, root)

    def _plain_traces(self) -> list[Found]:
        """Chrome traces of any name in the very folder that was given, when there is nothing else."""
        found = []
        for entry in self._entries(self.root):
            if entry.is_file() and entry.name.endswith((".json", ".json.gz")):
                capture = at(entry)
                if capture is not None and capture.trace and (entry.suffix == ".gz" or _looks_like_trace(entry)):
                    found.append(self._file(capture, entry))
        return found


def _derived(folder: Path) -> bool:
    """What `stepscope analyse` wrote beside a trace that is shown itself."""
    stem = folder.name.removesuffix(RESULTS)
    return stem != folder.name and any((folder.parent / f"{stem}{end}").is_file() for end in (".json", ".json.gz", ".db"))


def _looks_like_trace(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            head = file.read(1 << 16)
    except OSError:
        return False
    return any(sign in head for sign in _TRACE_SIGNS)


def _of_folder(folder: Path) -> tuple[str, str]:
    """Worker and span from the name of a capture folder, else the rank that its files tell."""
    stem = _SUFFIX.sub("", folder.name)
    numbered = _NUMBERED.fullmatch(stem)
    if numbered and not folder.name.startswith("PROF_"):
        return numbered["worker"], numbered["span"]
    try:
        ranks = [match[1] for match in map(_INFO.fullmatch, sorted(os.listdir(folder))) if match]
    except OSError:
        ranks = []
    return (ranks[0] if ranks else folder.name), "1"


def _not_analysed(capture: CaptureFiles) -> bool:
    """Only raw data, never read before."""
    if capture.output is not None or (store_folder(capture.root) / MANIFEST).is_file():
        return False
    return not any("parsed" in forms for forms in capture.forms.values()) if capture.framework or capture.profs else False


def _distinct(found: list[Found]) -> list[Found]:
    """Natural order; spans of traces numbered by time, and captures of the same name told apart."""
    groups: defaultdict[tuple[str, str], list[Found]] = defaultdict(list)
    for item in found:
        groups[item.run, item.worker].append(item)
    named = []
    for members in groups.values():
        members.sort(key=lambda item: (natural(item.span), natural(item.files.root.name)))
        spans = [item.span for item in members]
        renumber = len(set(spans)) < len(spans) or any(span.startswith("time ") for span in spans)
        named += [replace(item, span=str(number)) if renumber else item for number, item in enumerate(members, 1)]
    return sorted(named, key=lambda item: (natural(item.run), natural(item.worker), natural(item.span)))
