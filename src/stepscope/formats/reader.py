# SPDX-License-Identifier: Apache-2.0
"""What a reader of one kind of capture provides; `registry.py` lists all readers.

Modules that define a reader are imported with every command, so they import the code that parses only when it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepscope.tables import Tables

Progress = Callable[[str], None]
SOURCES = ("auto", "raw", "parsed", "text", "db")  # forms that a user may request


def quiet(stage: str) -> None:
    """Progress that is not shown."""
    del stage


@dataclass(frozen=True)
class CaptureFiles:
    """One capture on disk. A capture folder of Ascend has some of the parts; most other captures are one file."""

    root: Path
    format: str = ""  # name of the reader that claims it
    file: Path | None = None  # the capture itself, when it is a single file
    framework: Path | None = None  # FRAMEWORK/
    profs: tuple[Path, ...] = ()  # PROF_*/
    output: Path | None = None  # ASCEND_PROFILER_OUTPUT/
    linked: tuple[Path, ...] = ()  # symbolic links inside that were not followed
    alias: Path | None = None  # the symbolic link by which the user named it

    @property
    def is_prof(self) -> bool:
        """A PROF folder that is a capture of its own: what the vendor's command line leaves."""
        return self.profs == (self.root,)

    @property
    def databases(self) -> list[Path]:
        """Profiler databases of the parsed output, those with a rank first."""
        if self.output is None:
            return []
        return sorted(
            (path for word in ("pytorch", "mindspore") for path in self.output.glob(f"ascend_{word}_profiler*.db")),
            key=lambda path: (path.stem.endswith("_profiler"), path.name),
        )


@dataclass(frozen=True)
class Options:
    """How to read a capture."""

    source: str = ""  # which form of the same data, as `Reader.source` names it
    databases_first: bool = False  # only databases are wanted: a vendor's database is read before its JSON
    parallel: bool = True
    progress: Progress = quiet
    max_memory: int | None = None  # bytes; what unpacks to more is refused


def never(path: Path) -> bool:
    del path
    return False


def bare_name(file: Path) -> str:
    """The name of a capture that is one file, without the ends that say what kind of file it is."""
    return Path(file.name.removesuffix(".gz")).stem


def name_and_one(files: CaptureFiles) -> tuple[str, str]:
    """Worker and span of a capture whose name says nothing about them."""
    return (bare_name(files.root) if files.file else files.root.name), "1"


def whole_file(files: CaptureFiles, options: Options) -> list[Path]:
    """`Reader.source_files` of a capture that is one file."""
    del options
    return [files.file] if files.file else []


@dataclass(frozen=True)
class Reader:
    """One format.

    `claims` is called for every file and folder that is looked at, in the order of the registry: it decides by
    name, or by the first few kilobytes, and never raises.
    """

    name: str
    accepts: str  # what a user may pass, for error messages
    claims: Callable[[Path], CaptureFiles | None]
    read: Callable[[CaptureFiles, Options], Tables]
    source_files: Callable[[CaptureFiles, Options], list[Path]] = whole_file  # what the tables depend on
    form: str = "file"  # what `info` calls its only form
    choose: Callable[[CaptureFiles, str], str] | None = None  # the form to read, given `--source`, where there are several
    listed: Callable[[Path], bool] = never  # whether a file is shown when a folder around it was given
    names: Callable[[CaptureFiles], tuple[str, str]] = name_and_one  # worker and span, as the page lists them
    stored: Callable[[CaptureFiles], Path] | None = None  # where a capture consists of linked tables: the folder of these
    layouts: tuple[str, ...] = ()  # where such captures lie below a folder, shown when nothing was found

    def source(self, files: CaptureFiles, requested: str) -> str:
        """The form of a capture that is read."""
        return self.choose(files, requested) if self.choose else self.form
