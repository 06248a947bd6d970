# SPDX-License-Identifier: Apache-2.0
"""Files that are whole or absent: written under another name, renamed when complete."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

from stepscope.errors import CaptureError

if TYPE_CHECKING:
    import polars as pl

FILE_MODE = 0o640
FOLDER_MODE = 0o750

_FULL = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)


class ByteSink(Protocol):
    def write(self, data: memoryview, /) -> object: ...


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a new file that takes the place of `path` when the block ends well; else nothing changes on disk."""
    with _partial(path) as (number, partial):
        with os.fdopen(number, "wb") as handle:
            yield handle
        _put({partial: path})


def replace_together(contents: Iterable[tuple[Path, bytes]]) -> list[Path]:
    """Write files that take the places of those of these names when all of them are complete; else nothing changes on disk."""
    complete = {}
    with ExitStack() as stack:
        for path, content in contents:
            number, partial = stack.enter_context(_partial(path))
            with os.fdopen(number, "wb") as handle:
                handle.write(content)
            complete[partial] = path
        _put(complete)
    return list(complete.values())


@contextmanager
def _partial(path: Path) -> Iterator[tuple[int, str]]:
    """A new file beside `path`: its descriptor, which the block closes, and its name, under which nothing stays."""
    refuse_symlink(path)
    try:
        number, partial = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
    except OSError as error:
        raise write_error(error, path) from error
    try:
        yield number, partial
    except OSError as error:
        _remove(partial)
        raise write_error(error, path) from error
    except BaseException:
        _remove(partial)
        raise


def _put(complete: Mapping[str, Path]) -> None:
    """Give files their names."""
    for partial in complete:
        os.chmod(partial, FILE_MODE)
    places = list(map(str, complete.values()))
    try:
        # One call over texts runs no line of Python between two files, so no handler of a signal: Ctrl-C comes before or after all.
        list(map(os.replace, complete, places))
    except OSError as error:
        raise write_error(error, Path(error.filename2 or places[0])) from error


def _remove(partial: str) -> None:
    with suppress(FileNotFoundError):  # it has its name already
        os.unlink(partial)


def make_output_folder(folder: Path) -> Path:
    """Create the folder (and those above it) readable by owner and group only."""
    refuse_symlink(folder)
    missing = [above for above in (folder, *folder.parents) if not above.exists()]
    try:
        for above in reversed(missing):
            above.mkdir()
            above.chmod(FOLDER_MODE)
    except OSError as error:
        raise write_error(error, folder) from error
    return folder


def refuse_symlink(path: Path) -> None:
    for part in (path, path.parent):
        if part.is_symlink():
            raise CaptureError(
                f"will not write through the symbolic link {part.name}",
                where=str(part),
                cause=f"it points to {os.readlink(part)}, which may belong to somebody else",
                fix="give the real path",
            )


def write_rows(handle: ByteSink, lines: pl.Series) -> None:
    """Write the text of a String column end to end, without a Python object per row."""
    handle.write(row_bytes(lines))


def row_bytes(lines: pl.Series) -> memoryview:
    """The text of a String column end to end."""
    import polars as pl  # not every process that writes files has columns

    array = lines.to_arrow(compat_level=pl.CompatLevel.oldest())
    if not len(array):
        return memoryview(b"")
    offsets, data = array.buffers()[1:]
    # The array may be a slice of a longer one: only the bytes between its own first and last offset are its text.
    ends = memoryview(offsets).cast("B").cast("q" if str(array.type) == "large_string" else "i")
    return memoryview(data)[ends[array.offset] : ends[array.offset + len(array)]]


def write_error(error: OSError, path: Path) -> CaptureError:
    """The error of the operating system, with what to do about it."""
    kept = "the file of that name from before is unchanged" if path.exists() else "no file of that name was left behind"
    if error.errno in _FULL:
        return CaptureError(
            f"no space left to write {path.name}",
            where=str(path.parent),
            cause=f"the disk is full; {kept}",
            fix="free some space or choose another folder for the output",
        )
    if error.errno in _FORBIDDEN:
        return CaptureError(
            f"cannot write {path.name}",
            where=str(path.parent),
            cause=f"{os.strerror(error.errno or 0).lower()}; {kept}",
            fix="choose a folder that you may write to for the output",
        )
    return CaptureError(f"cannot write {path.name}", where=str(path.parent), cause=f"{error}; {kept}")
