# SPDX-License-Identifier: Apache-2.0
"""Marks and ranges of one capture, on their way to a file of the FRAMEWORK folder.

A mark is one tuple in a list; a thread of ours writes the list out as columns a few times a second. No lock is taken per mark:
appending to a list, and taking something out of a dict, are single steps of the interpreter.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from stepscope.collect import messages, paths

FILE = "x.mstx.jsonl"
COLUMNS = ("id", "kind", "tid", "end_tid", "start", "end", "domain", "message", "device", "stream")
DEFAULT_DOMAIN = "default"
MARK, PUSH_POP, START_END, STEP = "marker", "push/pop", "start/end", "step"

_FLUSH_SECONDS = 0.2
_MOST_WAITING = 200_000  # rows, about 60 MB
_MOST_OPEN = 100_000
_PIECE = 2_000  # rows, about a millisecond
_RAW = time.CLOCK_MONOTONIC_RAW
_AT_ONCE, _BEGIN, _END = range(3)  # sides of a mark, as the simulated device calls them

_now = time.clock_gettime_ns
_numbers = itertools.count(1)
Place = tuple[int, int] | tuple[None, None]  # device and stream of the device part
_HOST: Place = (None, None)
Row = tuple[int, str, int, int, int, int, str, str, int | None, int | None]


class _Thread(threading.local):
    """Asking the system for the number of a thread costs more than the mark."""

    def __init__(self) -> None:
        self.tid = threading.get_native_id()
        self.pushed: dict[str, list[int]] = {}


_here = _Thread()


def _in_child() -> None:
    global _here
    _here = _Thread()


os.register_at_fork(after_in_child=_in_child)


class MarkLog:
    """Takes marks between `start` and `stop`; ranges that are open at the end end there.

    Args:
        framework: folder of the file.
        include: only these domains, if any are named.
        exclude: not these domains.
    """

    def __init__(self, framework: Path, include: tuple[str, ...] = (), exclude: tuple[str, ...] = ()):
        self._path = framework / FILE
        self._include, self._exclude = frozenset(include), frozenset(exclude)
        self._wanted: dict[str, bool] = {DEFAULT_DOMAIN: self._passes(DEFAULT_DOMAIN)}
        self._rows: list[Row] = []
        self._open: dict[int, tuple[str, str, str, int, int, Place]] = {}
        self._dropped = 0
        self._on_device = _device_marks()
        self._file: int | None = None
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    # what the training script calls -------------------------------------------------------------------------------

    def mark(self, message: Any, stream: Any, domain: Any) -> None:
        if type(message) is not str or not message or stream is not None or not self._wanted.get(domain):
            place = self._checked("mark", message, stream, domain)
            if place is None:
                return
        else:
            place = _HOST
        number, tid, now = next(_numbers), _here.tid, _now(_RAW)
        if place is not _HOST and not self._tell_device(place, number, _AT_ONCE):
            place = _HOST
        self._add((number, MARK, tid, tid, now, now, domain, message, *place))

    def begin(self, message: Any, stream: Any, domain: Any, kind: str = START_END) -> int:
        """The number of the new range; 0 when it is not recorded."""
        if type(message) is not str or not message or stream is not None or not self._wanted.get(domain):
            place = self._checked("range", message, stream, domain)
            if place is None:
                return 0
        else:
            place = _HOST
        if len(self._open) >= _MOST_OPEN:
            self._dropped += 1
            return 0
        number, tid, now = next(_numbers), _here.tid, _now(_RAW)
        if place is not _HOST and not self._tell_device(place, number, _BEGIN):
            place = _HOST
        self._open[number] = (message, domain, kind, tid, now, place)
        return number

    def end(self, number: int, domain: str) -> None:
        now = _now(_RAW)
        begun = self._open.pop(number, None)
        if begun is None:
            return
        if begun[1] != domain:
            self._open[number] = begun  # api.md 18.2: the end of another domain is none
            return
        self._close(number, begun, _here.tid, now)

    def span(self, message: str, began: int, domain: str = DEFAULT_DOMAIN) -> None:
        """A range of this thread that is over, on the host; it began at a time of `clock`."""
        if self._wanted.get(domain):
            tid = _here.tid
            self._add((next(_numbers), START_END, tid, tid, began, _now(_RAW), domain, message, None, None))

    @staticmethod
    def clock() -> int:
        return _now(_RAW)

    def push(self, message: Any, stream: Any, domain: Any) -> int:
        """How many ranges of this thread and domain were open before; -1 when this one is not recorded."""
        number = self.begin(message, stream, domain, PUSH_POP)
        if not number:
            return -1
        pushed = _here.pushed.setdefault(domain, [])
        pushed[:] = [open_one for open_one in pushed if open_one in self._open]  # those of an earlier capture are closed
        pushed.append(number)
        return len(pushed) - 1

    def pop(self, domain: str) -> int:
        """How many are open afterwards; -1 when there was none."""
        pushed = _here.pushed.get(domain)
        if not pushed:
            return -1
        self.end(pushed.pop(), domain)
        return len(pushed)

    def begin_step(self, name: str) -> int:
        """A step for the table of steps, whatever domains are wanted."""
        number = next(_numbers)
        self._open[number] = (name, DEFAULT_DOMAIN, STEP, _here.tid, _now(_RAW), _HOST)
        return number

    # the file -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, paths.FILE_MODE)
        self._thread = threading.Thread(target=self._write_until_the_end, name="stepscope-marks", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close what is open and write the rest; nothing may be marked any more."""
        if self._thread is None:
            return
        self._end.set()
        self._thread.join()
        self._thread = None
        now = _now(_RAW)
        for number in list(self._open):
            begun = self._open.pop(number, None)
            if begun is not None:
                self._close(number, begun, begun[3], now)
        self._flush()
        if self._file is not None:
            if self._dropped:
                self._write(orjson.dumps({"pid": os.getpid(), "dropped": self._dropped}, option=orjson.OPT_APPEND_NEWLINE))
            os.close(self._file)
            self._file = None

    def _write_until_the_end(self) -> None:
        while not self._end.wait(_FLUSH_SECONDS):
            self._flush()

    def _flush(self) -> None:
        # In pieces: the interpreter's lock is held while one is made, and free while it is written.
        while self._rows:
            self._write_piece()

    def _write_piece(self) -> None:
        taken = self._rows[:_PIECE]
        del self._rows[: len(taken)]  # what was appended meanwhile stays
        try:
            line = _line(taken)
        except TypeError:  # a text that is no UTF-8
            line = _line([(*row[:6], _clean(row[6]), _clean(row[7]), *row[8:]) for row in taken])
        self._write(line)

    def _write(self, line: bytes) -> None:
        if self._file is None:
            self._dropped += 1
            return
        size = os.fstat(self._file).st_size
        try:
            while line:
                line = line[os.write(self._file, line) :]
        except OSError as problem:
            messages.warning(f"marks cannot be written and are left out from here on: {problem.strerror}")
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, size)
            os.close(self._file)
            self._file = None

    # details ------------------------------------------------------------------------------------------------------

    def _add(self, row: Row) -> None:
        if len(self._rows) < _MOST_WAITING:
            self._rows.append(row)
        else:
            self._dropped += 1

    def _close(self, number: int, begun: tuple[str, str, str, int, int, Place], end_tid: int, now: int) -> None:
        message, domain, kind, tid, start, place = begun
        if place is not _HOST:
            self._tell_device(place, number, _END)
        self._add((number, kind, tid, end_tid, start, now, domain, message, *place))

    def _tell_device(self, place: Place, number: int, side: int) -> bool:
        """Whether the device has taken it; not when it does not record, or has no such stream."""
        return self._on_device is not None and self._on_device(*place, number, side) == 0

    def _checked(self, what: str, message: Any, stream: Any, domain: Any) -> Place | None:
        """Where the device part goes; None when the mark is wrong or its domain is not wanted."""
        if not isinstance(message, str) or not message:
            _wrong(f"{what}: the message must be a text that is not empty, not {message!r}")
            return None
        if not isinstance(domain, str) or not domain:
            _wrong(f"{what}: the domain must be a text that is not empty, not {domain!r}")
            return None
        if stream is not None and not isinstance(getattr(stream, "stream_id", None), int):
            _wrong(f"{what}: the stream must be a Stream, not {type(stream).__name__}")
            return None
        if not self._wanted.setdefault(domain, self._passes(domain)):
            return None
        if stream is None or self._on_device is None:
            return _HOST
        return int(stream.device_index), int(stream.stream_id)

    def _passes(self, domain: str) -> bool:
        return domain in self._include if self._include else domain not in self._exclude


def _line(rows: list[Row]) -> bytes:
    columns = dict(zip(COLUMNS, zip(*rows, strict=True), strict=True))
    return orjson.dumps({"pid": os.getpid(), **columns}, option=orjson.OPT_APPEND_NEWLINE)


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _wrong(text: str) -> None:
    warnings.warn(f"mstx: {text}; it is left out", stacklevel=5)


def _device_marks() -> Callable[..., Any] | None:
    """How the simulated device is told of a mark; None where there is no such device."""
    device = sys.modules.get("stepscope.simnpu.device")
    if device is None or not device.loaded():
        return None
    function = getattr(ctypes.CDLL(str(device.library_path())), "simnpu_mark", None)
    if function is None:
        return None
    function.argtypes = [ctypes.c_int32, ctypes.c_int64, ctypes.c_uint64, ctypes.c_uint32]
    function.restype = ctypes.c_int
    tell: Callable[..., Any] = function
    return tell
