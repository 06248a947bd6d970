# SPDX-License-Identifier: Apache-2.0
"""What captures lie under a path, and which files each consists of."""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from stepscope.errors import CaptureError
from stepscope.formats.cann.chips import obstacle
from stepscope.formats.cann.folder import is_raw, stamp_of

OUTPUT = "ASCEND_PROFILER_OUTPUT"
_PROF = re.compile(r"PROF_.+")  # the rest of the name has several forms (cann-raw.md 1)
_OF_FRAMEWORK = re.compile(r".*_ascend_(pt|ms)|profiler_(info|metadata).*\.json")  # what a framework's profiler leaves
_TRACE_SUFFIXES = (".json", ".json.gz")
_TEXT_SIGNS = ("trace_view.json", "kernel_details.csv", "operator_details.csv", "memory_record.csv", "communication.json")


@dataclass(frozen=True)
class CaptureFiles:
    """One capture on disk. A folder capture has some of the parts; a single file is its own part."""

    root: Path
    framework: Path | None = None  # FRAMEWORK/
    profs: tuple[Path, ...] = ()  # PROF_*/
    output: Path | None = None  # ASCEND_PROFILER_OUTPUT/
    trace: Path | None = None  # a Kineto or Chrome trace
    database: Path | None = None  # a single .db
    linked: tuple[Path, ...] = ()  # symbolic links inside that were not followed
    alias: Path | None = None  # the symbolic link by which the user named it

    @property
    def has_text(self) -> bool:
        return self.output is not None and any((self.output / name).is_file() for name in _TEXT_SIGNS)

    @property
    def databases(self) -> list[Path]:
        """Profiler databases of the parsed output, those with a rank first."""
        if self.output is None:
            return []
        return sorted(
            (path for word in ("pytorch", "mindspore") for path in self.output.glob(f"ascend_{word}_profiler*.db")),
            key=lambda path: (path.stem.endswith("_profiler"), path.name),
        )

    @property
    def is_prof(self) -> bool:
        """A PROF folder that is a capture of its own: what the vendor's command line leaves."""
        return self.profs == (self.root,)

    @property
    def stamp(self) -> str:
        """When a PROF folder was begun, by its name: 14 digits; empty for other captures."""
        return stamp_of(self.root.name) if self.is_prof else ""

    @property
    def forms(self) -> dict[Path, tuple[str, ...]]:
        """For each PROF folder, in which forms its device data can be read, the best first; see `prof_forms`."""
        return {prof: prof_forms(prof) for prof in self.profs}


def prof_forms(prof: Path) -> tuple[str, ...]:
    """`raw` records, the vendor's `parsed` files, or only `part` of the raw records (host calls of a chip not yet readable)."""
    raw = is_raw(prof)
    whole = raw and not obstacle(prof)
    parsed = prof_timeline(prof) or prof_database(prof) is not None
    there = (("raw", whole), ("parsed", parsed), ("part", raw and not whole))
    return tuple(form for form, present in there if present)


def prof_timeline(prof: Path) -> bool:
    return any((prof / "mindstudio_profiler_output").glob("*.*")) or any(prof.glob("device_*/timeline/msprof_*.json"))


def prof_database(prof: Path) -> Path | None:
    return next(iter(sorted(prof.glob("msprof_*.db"))), None)


def is_ascend_timeline(trace: Path) -> bool:
    """Whether a trace is a bare array of events, as Ascend tools write it; Kineto wraps the array in an object."""
    with gzip.open(trace) if trace.suffix == ".gz" else trace.open("rb") as file:
        try:
            return file.read(4096).lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"["
        except (OSError, EOFError, zlib.error):
            return False


def find(path: Path) -> list[CaptureFiles]:
    """Every capture at `path` itself, else directly below it, by name.

    Raises:
        CaptureError: the path does not exist, cannot be read, or holds no capture.
    """
    path = Path(os.path.expanduser(path))
    if not path.exists():
        raise CaptureError("no such file or folder", where=str(path), fix="check the path; a capture folder ends in _ascend_pt")
    if not os.access(path, os.R_OK | (os.X_OK if path.is_dir() else 0)):
        raise CaptureError("cannot be read", where=str(path), cause="no permission", fix=f"chmod u+rX {path}")
    alias = path if path.is_symlink() else None
    path = path.resolve() if alias else path
    found = _at(path)
    if found:
        return [replace(found, alias=alias)]
    children = [item for item in (_at(child) for child in _listing(path)) if item] if path.is_dir() else []
    # Databases and traces beside PROF folders are other forms of the same.
    if any(item.is_prof for item in children):
        children = [item for item in children if not (item.trace or item.database)]
    if children:
        return children
    raise CaptureError(
        "no capture here",
        where=str(path),
        cause=_why_none(path),
        fix="give a *_ascend_pt folder, a folder of such folders, a PROF_* folder, a .json or .json.gz trace, or a profiler .db",
    )


def at(path: Path) -> CaptureFiles | None:
    """The capture that `path` itself is; None when it is none, or only holds some."""
    return _at(path)


def _at(path: Path) -> CaptureFiles | None:
    if path.is_file():
        return _single(path)
    if not path.is_dir() or path.name.startswith("."):
        return None
    if path.name == OUTPUT:
        return _folder(path.parent)
    if _PROF.fullmatch(path.name):
        return CaptureFiles(root=path, profs=(path,))
    return _folder(path)


def _single(path: Path) -> CaptureFiles | None:
    if path.parent.name == OUTPUT:
        return _folder(path.parent.parent)
    if path.name.endswith(_TRACE_SUFFIXES) and not path.name.startswith("profiler_"):
        return CaptureFiles(root=path, trace=path)
    if path.suffix == ".db" and path.name != "analysis.db":
        return CaptureFiles(root=path, database=path)
    return None


def _folder(path: Path) -> CaptureFiles | None:
    entries = {entry.name: entry for entry in _listing(path)}
    linked = tuple(entry for entry in entries.values() if entry.is_symlink())
    real = {name: entry for name, entry in entries.items() if not entry.is_symlink() and entry.is_dir()}
    if not (real.keys() & {"FRAMEWORK", OUTPUT} or any(_OF_FRAMEWORK.fullmatch(name) for name in (path.name, *entries))):
        return None  # a folder in which the vendor's command line left its PROF folders: each is a capture of its own
    found = CaptureFiles(
        root=path,
        framework=real.get("FRAMEWORK"),
        profs=tuple(entry for name, entry in sorted(real.items()) if _PROF.match(name)),
        output=real.get(OUTPUT),
        linked=linked,
    )
    return found if found.framework or found.profs or found.output else None


def _listing(path: Path) -> Iterable[Path]:
    try:
        return sorted(path.iterdir())
    except OSError:
        return ()


def _why_none(path: Path) -> str:
    if path.is_file():
        return f"{path.name} is neither a trace (.json, .json.gz) nor a profiler database (.db)"
    names = [child.name for child in _listing(path)]
    if not names:
        return "the folder is empty"
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return f"it holds {shown}; none is FRAMEWORK, PROF_*, {OUTPUT}, a trace or a database"
