# SPDX-License-Identifier: Apache-2.0
"""Steps of a script without profiling code: the calls of Optimizer.step (docs/formats/profiler-api.md 17.9)."""

from __future__ import annotations

import functools
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

from stepscope.collect.guard import warn_on_failure

# After so many steps of another optimizer without one of the leader, training has moved on to another phase.
PATIENCE = 16
_MARK = "_counted_by_stepscope"


class Iterations:
    """Counts iterations: with several optimizers only the calls of one count, the first that stepped.

    Args:
        count: called once per iteration.
        changes: called before a step of an optimizer that was not the last one to count.
    """

    def __init__(self, count: Callable[[], None], changes: Callable[[], None] = lambda: None):
        self._count, self._changes = count, changes
        self._leader: weakref.ref[Any] | None = None
        self._without_leader: Counter[int] = Counter()

    def after_step(self, optimizer: Any) -> None:
        leader = self._leader() if self._leader is not None else None
        if leader is optimizer and not self._without_leader:  # nearly always: with cold caches each line counts
            self._count()
            return
        self._changes()
        if leader is not optimizer:
            self._without_leader[id(optimizer)] += 1
            if leader is not None and self._without_leader[id(optimizer)] <= PATIENCE:
                return
            self._leader = weakref.ref(optimizer)
        self._without_leader.clear()
        self._count()


def watch(created: Callable[[], None], count: Callable[[], None]) -> None:
    """Call `created` when an optimizer is created, or steps that was created before, and `count` after each iteration."""
    from torch.optim import Optimizer

    iterations = Iterations(count, created)
    inside = threading.local()
    prepare = Optimizer._patch_step_function

    def wrap(kind: Any) -> None:
        if iterations not in getattr(kind.step, _MARK, ()):
            kind.step = _wrap_step(kind.step, iterations, inside)

    @functools.wraps(prepare)
    def prepare_and_wrap(self: Any) -> None:
        prepare(self)
        warn_on_failure("counting steps of optimizers", wrap, type(self))  # the script creates one, and must get it
        created()

    Optimizer._patch_step_function = prepare_and_wrap
    for kind in _kinds(Optimizer):
        if getattr(vars(kind).get("step"), "hooked", False):  # optimizers of this class exist already
            wrap(kind)


def _wrap_step(step: Any, iterations: Iterations, inside: threading.local) -> Any:
    is_compiling = compiling_check()

    @functools.wraps(step)
    def step_and_count(self: Any, *arguments: Any, **options: Any) -> Any:
        # A step may call another one: of its base class, or of an optimizer that it wraps.
        if is_compiling() or getattr(inside, "step", False):
            return step(self, *arguments, **options)
        inside.step = True
        try:
            result = step(self, *arguments, **options)
        finally:
            inside.step = False
        iterations.after_step(self)
        return result

    # PROF_CONFIG_PATH and `stepscope run --profile` may both count.
    setattr(step_and_count, _MARK, (*getattr(step, _MARK, ()), iterations))
    return step_and_count


def compiling_check() -> Callable[[], bool]:
    """torch's own function that says whether it compiles the code that runs; torch before 2.1 has none, and answers no."""
    import torch

    return getattr(getattr(torch, "compiler", None), "is_compiling", None) or (lambda: False)


def _kinds(kind: Any) -> list[Any]:
    return [kind, *(below for child in kind.__subclasses__() for below in _kinds(child))]
