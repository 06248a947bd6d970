# SPDX-License-Identifier: Apache-2.0
"""Steps of `Model.train`: its callbacks say when one begins and ends, so that a profiler without a schedule knows them too."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from stepscope.collect.guard import quietly


class Listener(Protocol):
    def training_step_begins(self, number: int) -> None: ...

    def training_step_ends(self) -> None: ...


_listeners: weakref.WeakSet[Any] = weakref.WeakSet()
_originals: dict[str, Callable[..., Any]] = {}


def listen(listener: Listener) -> None:
    """Tell `listener` of training steps as long as it lives."""
    _listeners.add(listener)
    if not _originals:
        quietly(_install)


def leave(listener: Listener) -> None:
    _listeners.discard(listener)
    if not _listeners:
        _remove()


def _install() -> None:
    from mindspore.train.callback._callback import _CallbackManager as manager

    begin, end = manager.step_begin, manager.step_end

    @functools.wraps(begin)
    def step_begin(self: Any, run_context: Any) -> Any:
        # After the user's callbacks: one of them may start the profiler.
        result = begin(self, run_context)
        number = getattr(run_context.original_args(), "cur_step_num", 0) if _listeners else 0
        for listener in list(_listeners):
            quietly(listener.training_step_begins, number)
        return result

    @functools.wraps(end)
    def step_end(self: Any, run_context: Any) -> Any:
        # Before the user's callbacks: one of them may stop the profiler.
        for listener in list(_listeners):
            quietly(listener.training_step_ends)
        return end(self, run_context)

    _originals.update(step_begin=begin, step_end=end)
    manager.step_begin, manager.step_end = step_begin, step_end


def _remove() -> None:
    if not _originals:
        return
    from mindspore.train.callback._callback import _CallbackManager as manager

    for name in ("step_begin", "step_end"):
        setattr(manager, name, _originals.pop(name))
