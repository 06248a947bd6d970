# SPDX-License-Identifier: Apache-2.0
"""When the worker processes of a DataLoader fetched their batches.

A worker is often started before the capture begins and outlives it, so it finds out for itself whether one is running: from
a page of memory that it shares with the training process. A forked worker has the page; one that is not forked (`spawn`,
`forkserver`) is told where it is by the function it runs. It writes its own file, one line per batch, about 20 us.
Operators inside of workers are not recorded.
"""

from __future__ import annotations

import contextlib
import functools
import mmap
import os
import struct
import sys
from pathlib import Path
from typing import Any

from stepscope.collect import paths
from stepscope.collect.clocks import raw_ns

FILE = "x.loader_worker_{pid}.csv"
HEADER = "start_raw_ns,end_raw_ns,worker,samples\n"
_HEAD = struct.Struct("<QH")  # number of the capture (0: none runs), length of its folder's name
_BYTES = mmap.PAGESIZE


class Board:
    """A page that the workers share: which capture runs, and where it is written."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        # A file without a name: nothing is left behind however the process ends.
        file = os.memfd_create("stepscope") if hasattr(os, "memfd_create") else -1
        if file >= 0:
            os.truncate(file, _BYTES)
        self.address = f"/proc/{self.pid}/fd/{file}" if file >= 0 else None
        self._page = mmap.mmap(file, _BYTES)
        self._number = 0

    @classmethod
    def at(cls, address: str) -> Board:
        """The page of another process, to look at."""
        board = cls.__new__(cls)
        board.pid, board.address, board._number = os.getpid(), address, 0
        with open(address, "rb") as file:
            board._page = mmap.mmap(file.fileno(), _BYTES, access=mmap.ACCESS_READ)
        return board

    def open(self, framework: Path) -> None:
        name = os.fsencode(framework.absolute())
        if _HEAD.size + len(name) > _BYTES:
            return  # workers then see no capture
        self._number += 1
        self._page[_HEAD.size : _HEAD.size + len(name)] = name
        self._page[: _HEAD.size] = _HEAD.pack(self._number, len(name))

    def close(self) -> None:
        self._page[: _HEAD.size] = _HEAD.pack(0, 0)

    def look(self) -> Path | None:
        """The folder of the capture that runs now."""
        number, length = _HEAD.unpack_from(self._page)
        if not number:
            return None
        name = self._page[_HEAD.size : _HEAD.size + length]
        # The next capture may have begun while the name was read.
        return Path(os.fsdecode(name)) if _HEAD.unpack_from(self._page)[0] == number else None


_board: Board | None = None
_own: list[tuple[Any, str, Any]] = []  # in whose place ours are: an object, the attribute's name, what it was


def watch() -> None:
    """Let workers that start from here on note their fetches; nothing where torch is not loaded."""
    global _board
    if _own or "torch" not in sys.modules:
        return
    from torch.utils.data._utils import worker

    if _board is None or _board.pid != os.getpid():
        _board = Board()
    if _board.address is not None:
        _replace(worker, "_worker_loop", functools.partial(_loop, _board.address))
    _note_fetches(_board)


def unwatch() -> None:
    for place, name, own in _own:
        setattr(place, name, own)
    _own.clear()


def open_for(framework: Path) -> None:
    """A capture begins."""
    if _board is not None and _board.pid == os.getpid():
        _board.open(framework)


def close() -> None:
    """The capture ends: a fetch that ends later is not noted."""
    if _board is not None and _board.pid == os.getpid():
        _board.close()


def _loop(address: str, *arguments: Any) -> None:
    """What a worker runs: torch's own loop, watched where the worker was not forked from a process that watches."""
    from torch.utils.data._utils import worker

    own = next((own for place, name, own in _own if (place, name) == (worker, "_worker_loop")), worker._worker_loop)
    if not _own:
        with contextlib.suppress(OSError, ValueError):  # the training process is gone, or of another user
            _note_fetches(Board.at(address))
    own(*arguments)


def _note_fetches(board: Board) -> None:
    from torch.utils.data._utils import fetch

    for kind in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
        _replace(kind, "fetch", _noting(kind.fetch, board))


def _replace(place: Any, name: str, ours: Any) -> None:
    _own.append((place, name, getattr(place, name)))
    setattr(place, name, ours)


def _noting(fetch: Any, board: Board) -> Any:
    @functools.wraps(fetch)
    def noted(self: Any, index: Any) -> Any:
        from torch.utils.data import get_worker_info

        worker = get_worker_info()
        if worker is None:  # in the training process, where a range of torch shows it already
            return fetch(self, index)
        begin = raw_ns()
        batch = fetch(self, index)
        samples = len(index) if isinstance(index, (list, tuple)) else 1
        _note(board, f"{begin},{raw_ns()},{worker.id},{samples}\n")
        return batch

    return noted


def _note(board: Board, line: str) -> None:
    framework = board.look()
    if framework is None:
        return
    try:
        path = framework / FILE.format(pid=os.getpid())
        new = not path.exists()
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, paths.FILE_MODE), "w") as file:
            file.write(HEADER + line if new else line)
    except OSError:
        return  # the disk is full or the folder is gone: the training process finds out
