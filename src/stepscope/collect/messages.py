# SPDX-License-Identifier: Apache-2.0
"""Lines that the profiler prints into the training job's output (api.md 2)."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator

# Scripts that know nothing of a profiler keep their standard output to themselves.
to_stderr = False
_listeners: list[Callable[[str, str], None]] = []
_printing = threading.RLock()
_MOST_FORK_WAIT = 1.0  # seconds


@contextlib.contextmanager
def heard_by(listener: Callable[[str, str], None]) -> Iterator[None]:
    """Inside, every line goes to `listener(level, text)` too, also those that this rank does not print."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def info(text: str) -> None:
    _tell("INFO", text)
    _print("INFO", text)


def warning(text: str) -> None:
    """Shown by the first rank only: a thousand ranks say the same thing."""
    _tell("WARNING", text)
    muted = os.environ.get("TORCH_NPU_WARNING_DISABLE", os.environ.get("TORCH_NPU_DISABLED_WARNING")) == "1"
    if os.environ.get("RANK", "0") == "0" and not muted:
        _print("WARNING", text)


def error(text: str) -> None:
    _tell("ERROR", text)
    _print("ERROR", text)


_said: set[str] = set()


def once(say: Callable[[str], None], text: str) -> None:
    """Say a text that would otherwise come back with every step or capture."""
    if text not in _said:
        _said.add(text)
        say(text)


def _tell(level: str, text: str) -> None:
    for listener in _listeners:
        listener(level, text)


def _print(level: str, text: str) -> None:
    with _printing, contextlib.suppress(OSError, ValueError):  # standard output is closed or full: nobody to tell
        file = sys.stderr if to_stderr else sys.stdout
        print(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] [{level}] [{os.getpid()}] profiler.py: {text}", file=file, flush=True)


class _Forking(threading.local):
    held = False


_forking = _Forking()


def _before_fork() -> None:
    """No thread of ours prints meanwhile: the child would find the file's own lock taken, and could never print."""
    _forking.held = _printing.acquire(timeout=_MOST_FORK_WAIT)  # nobody may read what we print: that ends the wait


def _after_fork() -> None:
    if _forking.held:
        _forking.held = False
        _printing.release()


def _in_child() -> None:
    global _printing
    _printing = threading.RLock()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)
