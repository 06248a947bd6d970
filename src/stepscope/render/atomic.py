# SPDX-License-Identifier: Apache-2.0
"""Files that are whole or absent: written under another name, renamed when complete."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
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
    refuse_symlink(path)
    try:
        number, partial = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
    except OSError as error:
        raise write_error(error, path) from error
    try:
        with os.fdopen(number, "wb") as handle:
            yield handle
        os.chmod(partial, FILE_MODE)
        os.replace(partial, path)
    except OSError as error:
        os.unlink(partial)
        raise write_error(error, path) from error
    except BaseException:
        os.unlink(partial)
        raise


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
