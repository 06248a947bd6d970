# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C ends a command also where an interpreter or a library ignores the exception."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer, current_thread, main_thread
from types import FrameType
from typing import Any, NoReturn

_AGAIN_SECONDS = 0.01
_commands = 0  # that run


class _Interrupt(KeyboardInterrupt):
    """Comes again where no Python code saw it: CPython drops exceptions of its callbacks, and C code may clear any.

    Of the interrupts of a starting `view` one or two in a hundred came into `numpy.dtype`, which clears what is raised in it, and
    `view` served on.
    """

    def __del__(self) -> None:
        # What catches an exception is the last frame that it came to, and lets go of it there. C code has no frame.
        seen = self.__traceback__ is not None and self.__traceback__.tb_frame is sys._getframe(1)
        if _commands and not seen:
            # From another thread, when that code is over: here it would be ignored once more. A real signal also ends a wait.
            Timer(_AGAIN_SECONDS, signal.pthread_kill, (main_thread().ident, signal.SIGINT)).start()


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise _Interrupt


@contextmanager
def interrupts_kept() -> Iterator[None]:
    """Interrupt again where the first time was ignored."""
    global _commands
    usual = sys.unraisablehook

    def hook(ignored: Any) -> None:
        if ignored.exc_type is not _Interrupt:
            usual(ignored)

    handles = current_thread() is main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if handles:
        signal.signal(signal.SIGINT, _interrupt)
    sys.unraisablehook = hook
    _commands += 1
    try:
        yield
    finally:
        _commands -= 1
        sys.unraisablehook = usual
        if handles:
            signal.signal(signal.SIGINT, signal.default_int_handler)
