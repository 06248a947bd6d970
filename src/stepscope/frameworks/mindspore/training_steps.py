# SPDX-License-Identifier: Apache-2.0
"""Steps of `Model.train`, from its callbacks, so that a profiler without a schedule knows them too."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, Protocol

from stepscope.collect.guard import quietly, warn_on_failure


class Listener(Protocol):
    def training_step_begins(self, number: int) -> None: ...

    def training_step_ends(self) -> None: ...


_listeners: weakref.WeakSet[Any] = weakref.WeakSet()
_originals: dict[str, Callable[..., Any]] = {}


def listen(listener: Listener) -> None:
    """Notify `listener` of training steps as long as it exists."""
    _listeners.add(listener)
    if not _originals:
        warn_on_failure("marking the steps of Model.train", _install)


def leave(listener: Listener) -> None:
    _listeners.discard(listener)
    if not _listeners:
        _remove()


def _install() -> None:
    from mindspore.train.callback import _CallbackManager as manager

    # Versions before 2.0 call the second name.
    names = ("on_train_step_begin", "on_train_step_end") if hasattr(manager, "on_train_step_begin") else ("step_begin", "step_end")
    begin, end = (getattr(manager, name) for name in names)

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

    _originals.update(zip(names, (begin, end), strict=True))
    for name, replacement in zip(names, (step_begin, step_end), strict=True):
        setattr(manager, name, replacement)


def _remove() -> None:
    if not _originals:
        return
    from mindspore.train.callback import _CallbackManager as manager

    for name in list(_originals):
        setattr(manager, name, _originals.pop(name))
