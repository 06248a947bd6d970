# SPDX-License-Identifier: Apache-2.0
"""Steps of a script without profiling code: the calls of Optimizer.step (docs/formats/profiler-api.md 17.9)."""

from __future__ import annotations

import functools
import sys
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

from stepscope.collect.guard import warn_on_failure

# After so many steps of another optimizer without one of the leader, training has moved on to another phase.
PATIENCE = 16
_MARK = "_counted_by_stepscope"


def _nobody() -> Any:
    return None


class Iterations:
    """Counts iterations: with several optimizers only the calls of one count, the first that stepped.

    Args:
        count: called once per iteration; may be replaced later.
        changes: called before a step of an optimizer that was not the last one to count.
    """

    # Read after each step with cold caches, so it touches little memory.
    __slots__ = ("_changes", "_leader", "_without_leader", "count", "expected", "inside")

    def __init__(self, count: Callable[[], None], changes: Callable[[], None] = lambda: None):
        self.count, self._changes = count, changes
        # Threads that are inside a step. No update is lost without a lock: CPython from 3.10 on lets other threads run at calls and
        # backward jumps only, and there is none between the load and the store of `+= 1`.
        self.inside = 0
        self._leader: Callable[[], Any] = _nobody
        self.expected = _nobody  # caches `_leader` where `_without_leader` is empty, else nobody: one look at each step, not two
        self._without_leader: Counter[int] = Counter()

    def after_step(self, optimizer: Any) -> None:
        leader = self._leader()
        if leader is optimizer and not self._without_leader:
            self.count()
            return
        self._changes()
        if leader is not optimizer:
            self._without_leader[id(optimizer)] += 1
            self.expected = _nobody
            if leader is not None and self._without_leader[id(optimizer)] <= PATIENCE:
                return
            self._leader = weakref.ref(optimizer)
        self._without_leader.clear()
        self.expected = self._leader
        self.count()


def watch(created: Callable[[], None], count: Callable[[], None]) -> Iterations:
    """Call `created` when an optimizer is created, or steps that was created before, and `count` after each iteration."""
    from torch.optim import Optimizer

    iterations = Iterations(count, created)
    prepare = Optimizer._patch_step_function

    def wrap(kind: Any) -> None:
        if iterations not in getattr(kind.step, _MARK, ()):
            kind.step = _wrap_step(kind.step, iterations)

    @functools.wraps(prepare)
    def prepare_and_wrap(self: Any) -> None:
        prepare(self)
        warn_on_failure("counting steps of optimizers", wrap, type(self))  # the script creates one, and must get it
        created()

    Optimizer._patch_step_function = prepare_and_wrap
    for kind in _kinds(Optimizer):
        if getattr(vars(kind).get("step"), "hooked", False):  # optimizers of this class exist already
            wrap(kind)
    return iterations


def _wrap_step(step: Any, iterations: Iterations) -> Any:
    # The narrower check: it is one call that looks nothing up, and nobody exports a step without dynamo.
    is_compiling = _dynamo_check() or compiling_check()

    @functools.wraps(step)
    def step_and_count(self: Any, *arguments: Any, **options: Any) -> Any:
        # A step may call another one: of its base class, or of an optimizer that it wraps.
        if is_compiling() or (iterations.inside and _is_nested(iterations)):
            return step(self, *arguments, **options)
        iterations.inside += 1
        try:
            result = step(self, *arguments, **options)
        finally:
            iterations.inside -= 1
        if iterations.expected() is self:
            iterations.count()
        else:
            iterations.after_step(self)
        return result

    # PROF_CONFIG_PATH and `stepscope run --profile` may both count.
    setattr(step_and_count, _MARK, (*getattr(step, _MARK, ()), iterations))
    return step_and_count


def compiling_check() -> Callable[[], bool]:
    """torch's own function that says whether it compiles the code that runs; torch before 2.1 has none, and answers no."""
    import torch

    return getattr(getattr(torch, "compiler", None), "is_compiling", None) or (lambda: False)


def _dynamo_check() -> Callable[[], bool] | None:
    import torch

    return getattr(getattr(torch, "compiler", None), "is_dynamo_compiling", None)


def _is_nested(iterations: Iterations) -> bool:
    """Whether the caller runs inside another step of this thread; asked only while some thread is inside one."""
    step_and_count = sys._getframe(1)
    frame = step_and_count.f_back
    while frame is not None:
        if frame.f_code is step_and_count.f_code and frame.f_locals.get("iterations") is iterations:
            return True
        frame = frame.f_back
    return False


def _kinds(kind: Any) -> list[Any]:
    return [kind, *(below for child in kind.__subclasses__() for below in _kinds(child))]
