# SPDX-License-Identifier: Apache-2.0
"""SIGTERM while a collector holds its records in memory: save them first, then end as the signal asks."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

from stepscope.collect import active

_pid: int | None = None  # the process whose handler is ours


def arm() -> None:
    """Save at SIGTERM, unless the job has a handler of its own; only the main thread can set one."""
    global _pid
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
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
    if profiler is not None and _pid == os.getpid():
        profiler.end_with_process()
    os.kill(os.getpid(), number)
