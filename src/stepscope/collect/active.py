# SPDX-License-Identifier: Apache-2.0
"""Which profiler runs in this process: one at a time, none in a forked child, stopped when the process ends."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable
from typing import Protocol

from stepscope.collect import messages


class Stoppable(Protocol):
    def end_with_process(self) -> None:
        """Stop and flush; no analysis."""

    def forget_after_fork(self) -> None:
        """Drop all state in a forked child: the parent alone goes on recording."""


_lock = threading.Lock()
_running: weakref.ref[Stoppable] | None = None
_on_begin: list[Callable[[], None]] = []  # called when a profiler begins


def claim(profiler: Stoppable) -> bool:
    """Whether this profiler may run. It may not while another one does, which is an error message."""
    global _running
    with _lock:
        free = running() is None
        if free:
            _running = weakref.ref(profiler)
    if free:
        for notice in tuple(_on_begin):
            notice()
    else:
        messages.error("another profiler is already running in this process; this one records nothing")
    return free


def release(profiler: Stoppable) -> None:
    global _running
    with _lock:
        if running() is profiler or running() is None:
            _running = None


def running() -> Stoppable | None:
    return _running() if _running is not None else None


def notify_begin(notice: Callable[[], None]) -> None:
    """Call `notice`, which must not fail, whenever a profiler begins, until `ignore_begin`."""
    _on_begin.append(notice)


def ignore_begin(notice: Callable[[], None]) -> None:
    if notice in _on_begin:
        _on_begin.remove(notice)


def _at_exit() -> None:
    profiler = running()
    if profiler is not None:
        profiler.end_with_process()


def _in_child() -> None:
    global _running, _lock
    _lock = threading.Lock()  # may have been held by a thread that the child does not have
    profiler = running()
    _running = None
    if profiler is not None:
        profiler.forget_after_fork()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_in_child)
