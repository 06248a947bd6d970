# SPDX-License-Identifier: Apache-2.0
"""Always on: follows the steps of a job, keeps the last ones in a ring, and records the next ones when a step is slow.

    import stepscope
    stepscope.watch()                # or STEPSCOPE_WATCH=1 in the environment, without a change of the script

Steps are those of the optimizer; a loop without one calls `step()` of what `watch` returns. Nothing here raises into the job.
"""

from __future__ import annotations

import atexit
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from stepscope.collect import messages
from stepscope.collect.guard import quietly, warn_on_failure
from stepscope.watch.settings import Settings, parse

if TYPE_CHECKING:
    from stepscope.dynamic_profile.optimizer_steps import Iterations
    from stepscope.watch.watcher import Watcher

__all__ = ["Settings", "Watch", "parse", "start", "start_from_environment"]

ENVIRONMENT = "STEPSCOPE_WATCH"
_watch: Watch | None = None


class Watch:
    """The watch of this process; `step()` only in a loop whose steps are not those of an optimizer."""

    def __init__(self, settings: Settings | None, first_step: int = 0):
        self._settings, self._first_step = settings, first_step
        self._own_loop = False
        self._watcher: Watcher | None = None
        self._iterations: Iterations | None = None

    @property
    def ring(self) -> Path | None:
        """The file with the last steps; None before the first one, and when it cannot be written."""
        return self._watcher.ring_path if self._watcher is not None else None

    def step(self) -> None:
        """A step has ended; from the first call on, steps of optimizers do not count."""
        if not self._own_loop:
            self._own_loop = True
            self._connect()
        watcher = self._get()
        if watcher is not None:
            watcher.step()

    def stop(self) -> None:
        """End the watch; the ring stays."""
        self._settings = None
        if self._watcher is not None:
            self._watcher.stop()
            self._watcher = None
            self._connect()

    def follow_optimizers(self) -> None:
        from stepscope.dynamic_profile import optimizer_steps

        self._iterations = optimizer_steps.watch(self._created, self._count)
        self._connect()

    def forget(self) -> None:
        """In a forked child, which gets a ring of its own if it trains."""
        watcher, self._watcher = self._watcher, None
        self._connect()
        if watcher is not None:
            watcher.forget()

    def _get(self) -> Watcher | None:
        if self._watcher is None and self._settings is not None:
            from stepscope.watch.watcher import Watcher

            self._watcher = Watcher(self._settings, self._first_step)
            self._connect()
        return self._watcher

    def _connect(self) -> None:
        """Let optimizers call the watcher itself where that is enough: with cold caches a call between costs microseconds."""
        if self._iterations is not None:
            watcher = None if self._own_loop else self._watcher
            self._iterations.count = watcher.step if watcher is not None else self._count

    def _created(self) -> None:
        if self._watcher is None and not self._own_loop:
            watcher = self._get()
            if watcher is not None:
                watcher.open()

    def _count(self) -> None:
        if self._watcher is None:  # in a forked child
            self._created()
        if self._watcher is not None and not self._own_loop:
            self._watcher.step()


def start(text: str = "", *, first_step: int = 0, **changes: Any) -> Watch:
    """Follow the steps of this process from here on; once in a process.

    Args:
        text: settings such as "k=2,port=9464"; an invalid one is a warning, and nothing is watched.
        first_step: number of the step that runs now; not 0 after a resume.
        changes: settings by their names, as in `Settings`.
    """
    global _watch
    if _watch is not None:
        messages.once(messages.warning, "stepscope.watch is on already; this call has no effect")
        return _watch
    try:
        settings = parse(text)
        settings = replace(settings, **changes) if settings is not None else None
    except (TypeError, ValueError) as problem:
        messages.warning(f"stepscope.watch: {problem}; nothing is watched")
        return Watch(None)
    _watch = Watch(settings, first_step)
    if settings is not None and _has_torch():
        warn_on_failure("stepscope.watch", _watch.follow_optimizers)
    return _watch


def start_from_environment() -> None:
    start(os.environ.get(ENVIRONMENT, ""))


def _has_torch() -> bool:
    import importlib.util

    return "torch" in sys.modules or importlib.util.find_spec("torch") is not None


class _CallableModule(ModuleType):
    def __call__(self, text: str = "", *, first_step: int = 0, **changes: Any) -> Watch:
        """As `start`."""
        return start(text, first_step=first_step, **changes)


def _at_exit() -> None:
    if _watch is not None:
        quietly(_watch.stop)


def _in_child() -> None:
    if _watch is not None:
        quietly(_watch.forget)


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_in_child)
sys.modules[__name__].__class__ = _CallableModule
