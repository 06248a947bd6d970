# SPDX-License-Identifier: Apache-2.0
"""SIGTERM while a collector holds its records in memory: save them first, then end as the signal asks."""

from __future__ import annotations

import functools
import os
import signal
import threading
from types import FrameType

from stepscope.collect import active

_pid: int | None = None  # the process whose handler is ours
_forking = threading.local()


def arm() -> None:
    """Save at SIGTERM, unless the job has a handler of its own; only the main thread can set one."""
    global _pid
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        _guard_forks()
        signal.signal(signal.SIGTERM, _save_and_end)
        _pid = os.getpid()


def disarm() -> None:
    global _pid
    if _pid == os.getpid() and threading.current_thread() is threading.main_thread():
        _pid = None
        if signal.getsignal(signal.SIGTERM) is _save_and_end:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _save_and_end(number: int, frame: FrameType | None) -> None:
    del frame
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second one ends at once
    profiler = active.running()
    if profiler is not None:
        profiler.end_with_process()
    os.kill(os.getpid(), number)


@functools.cache
def _guard_forks() -> None:
    """A child ends at SIGTERM as if we had never been there.

    Python forgets in the child the signals that its handlers were told of but have not yet handled: one that comes just
    after the fork would be lost. It waits at the kernel until the child has the default again.
    """
    os.register_at_fork(before=_hold, after_in_parent=_release, after_in_child=_release_child)


def _hold() -> None:
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _release() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _release_child() -> None:
    if signal.getsignal(signal.SIGTERM) is _save_and_end:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _release()
