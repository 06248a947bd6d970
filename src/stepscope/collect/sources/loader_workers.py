# SPDX-License-Identifier: Apache-2.0
"""When the worker processes of a DataLoader fetched their batches.

A worker often starts before the capture and outlives it, so it checks for itself whether one is running, in a page of memory
that it shares with the training process. A forked worker has the page; one that is not forked (`spawn`,
`forkserver`) gets its address from the function it runs. It writes its own file, one line per batch, about 20 us.
Operators inside workers are not recorded.
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


class SharedPage:
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
    def at(cls, address: str) -> SharedPage:
        """Open the page of another process for reading."""
        page = cls.__new__(cls)
        page.pid, page.address, page._number = os.getpid(), address, 0
        with open(address, "rb") as file:
            page._page = mmap.mmap(file.fileno(), _BYTES, access=mmap.ACCESS_READ)
        return page

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


_page: SharedPage | None = None
_originals: list[tuple[Any, str, Any]] = []  # what we replaced: owner, name of the attribute, original


def watch() -> None:
    """Let workers that start from here on record their fetches; does nothing unless torch is loaded."""
    global _page
    if _originals or "torch" not in sys.modules:
        return
    from torch.utils.data._utils import worker

    if _page is None or _page.pid != os.getpid():
        _page = SharedPage()
    if _page.address is not None:
        _replace(worker, "_worker_loop", functools.partial(_loop, _page.address))
    _record_fetches(_page)


def unwatch() -> None:
    for owner, name, original in _originals:
        setattr(owner, name, original)
    _originals.clear()


def open_for(framework: Path) -> None:
    """A capture begins."""
    if _page is not None and _page.pid == os.getpid():
        _page.open(framework)


def close() -> None:
    """The capture ends: fetches that end later are not recorded."""
    if _page is not None and _page.pid == os.getpid():
        _page.close()


def _loop(address: str, *arguments: Any) -> None:
    """What a worker runs: torch's own loop, with its fetches recorded even if it was not forked from the training process."""
    from torch.utils.data._utils import worker

    original = next(
        (original for owner, name, original in _originals if (owner, name) == (worker, "_worker_loop")), worker._worker_loop
    )
    if not _originals:
        with contextlib.suppress(OSError, ValueError):  # the training process is gone, or belongs to another user
            _record_fetches(SharedPage.at(address))
    original(*arguments)


def _record_fetches(page: SharedPage) -> None:
    from torch.utils.data._utils import fetch

    for kind in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
        _replace(kind, "fetch", _wrap_fetch(kind.fetch, page))


def _replace(owner: Any, name: str, ours: Any) -> None:
    _originals.append((owner, name, getattr(owner, name)))
    setattr(owner, name, ours)


def _wrap_fetch(fetch: Any, page: SharedPage) -> Any:
    @functools.wraps(fetch)
    def wrapper(self: Any, index: Any) -> Any:
        from torch.utils.data import get_worker_info

        worker = get_worker_info()
        if worker is None:  # in the training process, where torch records a range already
            return fetch(self, index)
        begin = raw_ns()
        batch = fetch(self, index)
        samples = len(index) if isinstance(index, (list, tuple)) else 1
        _record(page, f"{begin},{raw_ns()},{worker.id},{samples}\n")
        return batch

    return wrapper


def _record(page: SharedPage, line: str) -> None:
    framework = page.look()
    if framework is None:
        return
    try:
        path = framework / FILE.format(pid=os.getpid())
        new = not path.exists()
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, paths.FILE_MODE), "w") as file:
            file.write(HEADER + line if new else line)
    except OSError:
        return  # the disk is full or the folder is gone: the training process reports that
