# SPDX-License-Identifier: Apache-2.0
"""Lines that the profiler prints on the training job's standard error (docs/formats/profiler-api.md 2).

Standard output belongs to the script alone: it may be a pipe to another program.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator

_listeners: list[Callable[[str, str], None]] = []
_printing = threading.RLock()
_MOST_FORK_WAIT = 1.0  # seconds


@contextlib.contextmanager
def copied_to(listener: Callable[[str, str], None]) -> Iterator[None]:
    """Pass every line to `listener(level, text)` as well, including those that this rank does not print."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def info(text: str) -> None:
    _notify("INFO", text)
    _print("INFO", text)


def warning(text: str) -> None:
    """Printed by rank 0 only: a thousand ranks would print the same line."""
    _notify("WARNING", text)
    muted = os.environ.get("TORCH_NPU_WARNING_DISABLE", os.environ.get("TORCH_NPU_DISABLED_WARNING")) == "1"
    if os.environ.get("RANK", "0") == "0" and not muted:
        _print("WARNING", text)


def error(text: str) -> None:
    _notify("ERROR", text)
    _print("ERROR", text)


_printed: set[str] = set()


def once(say: Callable[[str], None], text: str) -> None:
    """Print a message once that would otherwise repeat with every step or capture."""
    if text not in _printed:
        _printed.add(text)
        say(text)


def _notify(level: str, text: str) -> None:
    for listener in _listeners:
        listener(level, text)


def _print(level: str, text: str) -> None:
    line = f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] [{level}] [{os.getpid()}] profiler.py: {text}"
    with _printing, contextlib.suppress(OSError, ValueError):  # standard error is closed or full
        # In one piece: launchers start ranks with an unbuffered stream, where another rank's line could come before the newline.
        print(f"{line}\n", end="", file=sys.stderr, flush=True)


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
