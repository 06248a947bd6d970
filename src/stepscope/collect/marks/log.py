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

_FLUSH_SECONDS = 0.1  # as all records of a capture: what a killed process loses is the same everywhere
_MAX_PENDING = 200_000  # rows, about 60 MB
_MAX_OPEN = 100_000
_PIECE = 2_000  # rows, about a millisecond
_RAW = time.CLOCK_MONOTONIC_RAW
_AT_ONCE, _BEGIN, _END = range(3)  # sides of a mark, as the simulated device calls them

_now = time.clock_gettime_ns
_numbers = itertools.count(1)
Place = tuple[int, int] | tuple[None, None]  # device and stream of the device part
_HOST: Place = (None, None)
Row = tuple[int, str, int, int, int, int, str, str, int | None, int | None]


class _Thread(threading.local):
    """Caches the number of the thread: asking the system for it costs more than the mark."""

    def __init__(self) -> None:
        self.tid = threading.get_native_id()
        self.pushed: dict[str, list[int]] = {}


_here = _Thread()


def _in_child() -> None:
    global _here
    _here = _Thread()


os.register_at_fork(after_in_child=_in_child)


class MarkLog:
    """Records marks between `start` and `stop`, which also ends the ranges that are still open.

    Args:
        framework: folder of the file.
        include: record only these domains; empty for all.
        exclude: do not record these domains.
    """

    def __init__(self, framework: Path, include: tuple[str, ...] = (), exclude: tuple[str, ...] = ()):
        self._path = framework / FILE
        self._include, self._exclude = frozenset(include), frozenset(exclude)
        self._recorded: dict[str, bool] = {DEFAULT_DOMAIN: self._passes(DEFAULT_DOMAIN)}
        self._rows: list[Row] = []
        self._open: dict[int, tuple[str, str, str, int, int, Place]] = {}
        self._dropped = 0
        self._on_device = _device_marks()
        self._file: int | None = None
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    # what the training script calls -------------------------------------------------------------------------------

    def mark(self, message: Any, stream: Any, domain: Any) -> None:
        if type(message) is not str or not message or stream is not None or not self._recorded.get(domain):
            place = self._check("mark", message, stream, domain)
            if place is None:
                return
        else:
            place = _HOST
        number, tid, now = next(_numbers), _here.tid, _now(_RAW)
        if place is not _HOST and not self._mark_on_device(place, number, _AT_ONCE):
            place = _HOST
        self._add((number, MARK, tid, tid, now, now, domain, message, *place))

    def begin(self, message: Any, stream: Any, domain: Any, kind: str = START_END) -> int:
        """The number of the new range; 0 when it is not recorded."""
        if type(message) is not str or not message or stream is not None or not self._recorded.get(domain):
            place = self._check("range", message, stream, domain)
            if place is None:
                return 0
        else:
            place = _HOST
        if len(self._open) >= _MAX_OPEN:
            self._dropped += 1
            return 0
        number, tid, now = next(_numbers), _here.tid, _now(_RAW)
        if place is not _HOST and not self._mark_on_device(place, number, _BEGIN):
            place = _HOST
        self._open[number] = (message, domain, kind, tid, now, place)
        return number

    def end(self, number: int, domain: str) -> None:
        now = _now(_RAW)
        entry = self._open.pop(number, None)
        if entry is None:
            return
        if entry[1] != domain:
            self._open[number] = entry  # ends only in its own domain (docs/formats/profiler-api.md 18.2)
            return
        self._close(number, entry, _here.tid, now)

    def span(self, message: str, began: int, domain: str = DEFAULT_DOMAIN) -> None:
        """Record a host range of this thread that ends now and began at `began`, a time of `clock`."""
        if self._recorded.get(domain):
            tid = _here.tid
            self._add((next(_numbers), START_END, tid, tid, began, _now(_RAW), domain, message, None, None))

    @staticmethod
    def clock() -> int:
        return _now(_RAW)

    def push(self, message: Any, stream: Any, domain: Any) -> int:
        """Begin a range; returns how many of this thread and domain were open, -1 when this one is not recorded."""
        number = self.begin(message, stream, domain, PUSH_POP)
        if not number:
            return -1
        pushed = _here.pushed.setdefault(domain, [])
        pushed[:] = [earlier for earlier in pushed if earlier in self._open]  # those of an earlier capture are closed
        pushed.append(number)
        return len(pushed) - 1

    def pop(self, domain: str) -> int:
        """End the newest range; returns how many are still open, -1 when none was."""
        pushed = _here.pushed.get(domain)
        if not pushed:
            return -1
        self.end(pushed.pop(), domain)
        return len(pushed)

    def begin_step(self, name: str) -> int:
        """Begin a step for the table of steps, whatever domains are recorded."""
        number = next(_numbers)
        self._open[number] = (name, DEFAULT_DOMAIN, STEP, _here.tid, _now(_RAW), _HOST)
        return number

    # the file -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, paths.FILE_MODE)
        self._thread = threading.Thread(target=self._write_until_the_end, name="stepscope-marks", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close open ranges and write the rest; no mark may follow."""
        if self._thread is None:
            return
        self._end.set()
        self._thread.join()
        self._thread = None
        now = _now(_RAW)
        for number in list(self._open):
            entry = self._open.pop(number, None)
            if entry is not None:
                self._close(number, entry, entry[3], now)
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
        # In pieces: the GIL is held while one is built, and free while it is written.
        while self._rows:
            self._write_piece()

    def _write_piece(self) -> None:
        rows = self._rows[:_PIECE]
        del self._rows[: len(rows)]  # what was appended meanwhile stays
        try:
            line = _line(rows)
        except TypeError:  # a text that is not valid UTF-8
            line = _line([(*row[:6], _clean(row[6]), _clean(row[7]), *row[8:]) for row in rows])
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
            messages.warning(f"cannot write marks; they are left out from here on: {problem.strerror}")
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, size)
            os.close(self._file)
            self._file = None

    # details ------------------------------------------------------------------------------------------------------

    def _add(self, row: Row) -> None:
        if len(self._rows) < _MAX_PENDING:
            self._rows.append(row)
        else:
            self._dropped += 1

    def _close(self, number: int, entry: tuple[str, str, str, int, int, Place], end_tid: int, now: int) -> None:
        message, domain, kind, tid, start, place = entry
        if place is not _HOST:
            self._mark_on_device(place, number, _END)
        self._add((number, kind, tid, end_tid, start, now, domain, message, *place))

    def _mark_on_device(self, place: Place, number: int, side: int) -> bool:
        """Whether the device recorded it; it does not when its recorder is off or the stream does not exist."""
        return self._on_device is not None and self._on_device(*place, number, side) == 0

    def _check(self, call: str, message: Any, stream: Any, domain: Any) -> Place | None:
        """Where the device part goes; None when the mark is invalid or its domain is not recorded."""
        if not isinstance(message, str) or not message:
            _warn(f"{call}: the message must be a non-empty string, not {message!r}")
            return None
        if not isinstance(domain, str) or not domain:
            _warn(f"{call}: the domain must be a non-empty string, not {domain!r}")
            return None
        if stream is not None and not isinstance(getattr(stream, "stream_id", None), int):
            _warn(f"{call}: the stream must be a Stream, not {type(stream).__name__}")
            return None
        if not self._recorded.setdefault(domain, self._passes(domain)):
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


def _warn(text: str) -> None:
    warnings.warn(f"mstx: {text}; this mark is left out", stacklevel=5)


def _device_marks() -> Callable[..., Any] | None:
    """The function that sets a mark on the simulated device; None without that device."""
    device = sys.modules.get("stepscope.simnpu.device")
    if device is None or not device.loaded():
        return None
    function = getattr(ctypes.CDLL(str(device.library_path())), "simnpu_mark", None)
    if function is None:
        return None
    function.argtypes = [ctypes.c_int32, ctypes.c_int64, ctypes.c_uint64, ctypes.c_uint32]
    function.restype = ctypes.c_int
    mark: Callable[..., Any] = function
    return mark
