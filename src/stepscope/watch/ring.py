# SPDX-License-Identifier: Apache-2.0
"""The ring of one process: a mapped file, so that a step costs a few stores and all of them survive a SIGKILL.

By default it lies in memory that files share (`/dev/shm`): a disk that is full or slow, and a network folder that goes away,
cannot touch training there.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import secrets
import stat
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from stepscope.collect import paths
from stepscope.errors import CaptureError
from stepscope.formats.ring import layout

KEPT = 32  # rings of processes that have ended
FIRST_ROW = layout.HEAD_BYTES // 8
ROW = len(layout.FIELDS)
COUNT = layout.CELLS_AT // 8
CELL = {name: COUNT + number for number, name in enumerate(layout.CELLS)}
_TOTALS, _BUCKETS = CELL["total_step"], CELL["bucket_0"]
_BOUNDS_NS = [int(seconds * 1e9) for seconds in layout.BOUNDS_SECONDS]


class Ring:
    """The ring of this process; `cells` is the file as 64-bit numbers.

    Args:
        folder: where it is created; made if missing. None: in memory of this process alone.
        identity: who writes it, as a JSON object.

    Raises:
        CaptureError: it cannot be created.
    """

    def __init__(self, folder: Path | None, identity: dict[str, Any]):
        self.path: Path | None = None
        self._anchor = (time.monotonic_ns(), time.time_ns())
        self._bytes: mmap.mmap | bytearray = bytearray(layout.FILE_BYTES) if folder is None else self._map(folder, identity)
        self.cells = memoryview(self._bytes).cast("q")
        self.cells[CELL["device_bytes"]] = -1
        self.identify(identity)

    def _map(self, folder: Path, identity: dict[str, Any]) -> mmap.mmap:
        own_folder(folder)
        path = folder / f"{identity['host']}_{os.getpid()}_{secrets.token_hex(4)}{layout.SUFFIX}"
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, paths.FILE_MODE)
            try:
                # All of it now: on a full disk a store into a mapped hole would end the process.
                os.posix_fallocate(file, 0, layout.FILE_BYTES)
                mapped = mmap.mmap(file, layout.FILE_BYTES)
            except OSError:
                path.unlink(missing_ok=True)
                raise
            finally:
                os.close(file)
        except OSError as problem:
            raise CaptureError("cannot create the ring", where=str(path), cause=problem.strerror) from problem
        self.path = path
        return mapped

    def identify(self, identity: dict[str, Any]) -> None:
        """Write the head; again when the rank becomes known later."""
        text = json.dumps(identity).encode()
        if len(text) > layout.CELLS_AT - layout.HEAD.size:
            text = b"{}"
        head = layout.HEAD.pack(layout.MAGIC, layout.VERSION, layout.ROWS, layout.ROW_BYTES, len(text), *self._anchor) + text
        self._bytes[: layout.CELLS_AT] = head.ljust(layout.CELLS_AT, b"\0")

    def add(self, step: int, start: int, end: int, phases: tuple[int, int, int, int], flags: int) -> None:
        """Write the row of a step; `Watcher` has the same in its hot path."""
        cells, count = self.cells, self.cells[COUNT]
        at = FIRST_ROW + count % layout.ROWS * ROW
        for number, value in enumerate((step, start, end, *phases, flags)):
            cells[at + number] = value
        cells[COUNT] = count + 1

    def put(self, name: str, value: int) -> None:
        self.cells[CELL[name]] = value

    def count(self, name: str, value: int = 1) -> None:
        self.cells[CELL[name]] += value

    @contextlib.contextmanager
    def totals(self) -> Iterator[None]:
        """While totals change, readers know that they do."""
        cells = self.cells
        cells[CELL["edition"]] += 1
        yield
        cells[CELL["edition_again"]] = cells[CELL["edition"]]

    def rows(self, first: int, last: int) -> Iterator[tuple[int, list[int]]]:
        """Rows by their numbers, the last one not included: the cell where each begins, and its fields."""
        cells = self.cells
        for number in range(first, last):
            at = FIRST_ROW + number % layout.ROWS * ROW
            yield at, cells[at : at + ROW].tolist()

    def add_to_totals(self, rows: Sequence[tuple[int, list[int]]]) -> None:
        """Count rows; inside `totals()`."""
        if not rows:
            return
        cells = self.cells
        _, starts, ends, *phases, _ = zip(*(fields for _, fields in rows), strict=True)
        spent = [end - start for start, end in zip(starts, ends, strict=True)]
        for ns in spent:
            cells[_BUCKETS + bisect_left(_BOUNDS_NS, ns)] += 1
        cells[CELL["steps"]] += len(rows)
        for each, column in enumerate((spent, *phases)):
            cells[_TOTALS + each] += sum(column)


def own_folder(folder: Path) -> None:
    """Create a folder that only this user can write to.

    Raises:
        CaptureError: it belongs to somebody else, who could make a job of this user write elsewhere.
    """
    paths.ensure_folder(folder)
    status = folder.lstat()
    if stat.S_ISLNK(status.st_mode) or status.st_uid not in (os.geteuid(), 0) or status.st_mode & stat.S_IWOTH:
        raise CaptureError(
            "the folder for rings cannot be trusted",
            where=str(folder),
            cause="it is a symbolic link, belongs to another user or is writable by everyone",
            fix="name a folder of your own: STEPSCOPE_WATCH=rings=FOLDER",
        )


def forget_old(folder: Path, alive: Callable[[Path], bool]) -> None:
    """Delete rings of ended processes but the newest, so that a folder does not grow for ever."""
    found = []
    for path in folder.glob(f"*{layout.SUFFIX}"):
        with contextlib.suppress(OSError):
            found.append((path.stat().st_mtime, path))
    for _, path in sorted(found, reverse=True)[KEPT:]:
        if not alive(path):
            path.unlink(missing_ok=True)
