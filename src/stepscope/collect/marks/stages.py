# SPDX-License-Identifier: Apache-2.0
"""Stages of a training loop, marked without touching its code (docs/formats/mstx-plugin.md 4, docs/formats/profiler-api.md 18.3).

Batches of data loaders, checkpoints and collectives are marked in every capture with mstx=True; the forward pass and steps
when `mstx_torch_plugin` asks for them. torch is patched only while a capture runs.
"""

from __future__ import annotations

import functools
import os
import sys
import weakref
from collections.abc import Callable
from typing import Any

from stepscope.collect.guard import quietly, warn_on_failure
from stepscope.collect.marks.checkpoints import CheckpointMarks
from stepscope.collect.marks.communication import mark_process_groups
from stepscope.collect.marks.forward import ForwardMarks
from stepscope.collect.marks.log import DEFAULT_DOMAIN, MarkLog

_log: Any = None
_patches: list[Patch] = []


def _compiling() -> bool:
    """Whether torch is compiling this code; replaced by torch's own function once that is imported."""
    return False


class Patch:
    """An attribute of torch that is replaced by ours."""

    def __init__(self, owner: Any, name: str, around: Callable[[Any], Any]):
        self._owner, self._name = owner, name
        self._before = vars(owner)[name]
        self._ours = around(self._before)
        setattr(owner, name, self._ours)

    def restore(self) -> bool:
        """Put the original back; False when somebody else has patched over ours, which then stays and calls through."""
        if vars(self._owner).get(self._name) is not self._ours:
            return False
        setattr(self._owner, self._name, self._before)
        return True

    def stands_at(self, owner: Any, name: str) -> bool:
        return self._owner is owner and self._name == name


def begin(log: Any) -> None:
    """Mark the stages of a capture that begins; marks go to `log`."""
    global _log
    if _log is not None:
        end()
    _log = log
    if isinstance(log, MarkLog) and "torch" in sys.modules:  # the vendor's torch_npu marks these itself
        warn_on_failure("marking data loaders", _mark_loaders)
        warn_on_failure("marking checkpoints", _checkpoints.begin)
        warn_on_failure("marking communication", mark_process_groups, lambda: _log, patch)
    for stage in _optional:
        warn_on_failure(f"marking {stage.name}", stage.begin)


def end() -> None:
    global _log
    for stage in _optional:
        quietly(stage.end)
    _checkpoints.end()
    _log = None
    _patches[:] = [item for item in _patches if not item.restore()]


def enable_forward_and_steps() -> None:
    """Mark the forward pass and steps too, in this capture and all later ones."""
    if not _optional:
        _optional.extend((_Forward(), _Steps()))
        if _log is not None:
            begin(_log)


def disable_forward_and_steps() -> None:
    """Stop marking them, and restore torch."""
    log, stages = _log, _optional[:]
    end()
    _optional.clear()
    for stage in stages:
        stage.remove()
    if log is not None:
        begin(log)


def current_stream() -> Any:
    """The stream for the device parts of marks; None without a device."""
    device = sys.modules.get("stepscope.simnpu.device")
    if _log is None or device is None or not device.loaded():
        return None
    return sys.modules["torch"].npu.current_stream()


def patch(owner: Any, name: str, around: Callable[[Any], Any]) -> None:
    """Patch an attribute until the capture ends, unless an earlier patch of ours could not be removed."""
    if name in vars(owner) and not any(item.stands_at(owner, name) for item in _patches):
        _patches.append(Patch(owner, name, around))


_checkpoints = CheckpointMarks(lambda: _log, patch)


def _mark_loaders() -> None:
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    patch(_BaseDataLoaderIter, "__next__", _around_next)


def _around_next(fetch: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(fetch)
    def __next__(self: Any) -> Any:
        log = _log
        if not isinstance(log, MarkLog):
            return fetch(self)
        began = log.clock()
        try:
            batch = fetch(self)
        except StopIteration:
            raise  # no batch: nothing to mark
        except BaseException:
            log.span("dataloader", began)
            raise
        log.span("dataloader", began)
        return batch

    return __next__


class _Forward:
    name = "the forward pass"

    def __init__(self) -> None:
        self._marks = ForwardMarks(lambda: _log, current_stream, patch)

    def begin(self) -> None:
        self._marks.start()

    def end(self) -> None:
        """The wrapper goes with the other patches of the capture."""

    def remove(self) -> None:
        """Nothing of it outlives a capture."""


class _Steps:
    """`step n` lasts from the end of the optimizers' step n to the end of the next; n counts from the first one seen.

    A step is over when an optimizer that has stepped in it steps again, so several optimizers make one step. A capture that
    begins inside a step shows the rest of it.
    """

    name = "steps"

    def __init__(self) -> None:
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        global _compiling
        _compiling = getattr(sys.modules["torch"].compiler, "is_compiling", _compiling)
        self._count = self._open = 0
        self._stepping: weakref.WeakSet[Any] = weakref.WeakSet()
        self._stepped: weakref.WeakSet[Any] = weakref.WeakSet()
        self._hooks = (register_optimizer_step_pre_hook(self._before), register_optimizer_step_post_hook(self._after))

    def begin(self) -> None:
        self._open = 0
        if self._count and _log is not None:
            self._open = _log.begin(f"step {self._count}", current_stream(), DEFAULT_DOMAIN)

    def end(self) -> None:
        """The log ends the range that is open."""
        self._open = 0

    def remove(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _before(self, optimizer: Any, arguments: Any, options: Any) -> None:
        if not _compiling():
            self._stepping.add(optimizer)

    def _after(self, optimizer: Any, arguments: Any, options: Any) -> None:
        # A step that calls its base class's step ends twice; compiled code gets no marks.
        if _compiling() or optimizer not in self._stepping:
            return
        self._stepping.discard(optimizer)
        if not self._stepped or optimizer in self._stepped:
            self._stepped.clear()
            quietly(self._next)
        self._stepped.add(optimizer)

    def _next(self) -> None:
        self._count += 1
        log = _log
        if log is not None:
            if self._open:
                log.end(self._open, DEFAULT_DOMAIN)
            self._open = log.begin(f"step {self._count}", current_stream(), DEFAULT_DOMAIN)


_optional: list[_Forward | _Steps] = []


def _forget_in_child() -> None:
    global _log
    _log = None


os.register_at_fork(after_in_child=_forget_in_child)
