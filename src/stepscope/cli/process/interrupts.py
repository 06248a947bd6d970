# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C ends a command also where Python itself would ignore it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer, main_thread
from typing import Any

_AGAIN_SECONDS = 0.01


@contextmanager
def interrupts_kept() -> Iterator[None]:
    """Interrupt again where the first time was inside a callback of the interpreter, which ignores exceptions.

    Each import has such a callback, so one of some hundred interrupts of a starting command was lost, and `view` served on.
    """
    usual = sys.unraisablehook

    def hook(ignored: Any) -> None:
        if ignored.exc_type is KeyboardInterrupt:
            # From another thread, when this callback is over: here it would be ignored once more. A real signal also ends a wait.
            Timer(_AGAIN_SECONDS, signal.pthread_kill, (main_thread().ident, signal.SIGINT)).start()
        else:
            usual(ignored)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = usual
