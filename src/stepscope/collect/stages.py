# SPDX-License-Identifier: Apache-2.0
"""Stages of a training loop, marked without touching its code (mstx-plugin.md, api.md 18.3).

Batches of data loaders, checkpoints and collectives are marked in every capture with mstx=True; the forward pass and steps
when `mstx_torch_plugin` asks for them. torch is patched only while a capture runs.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from stepscope.collect.guard import tolerated
from stepscope.collect.mark_log import DEFAULT_DOMAIN, MarkLog

_log: Any = None
_patches: list[Patch] = []


class Patch:
    """One attribute of torch with ours in its place."""

    def __init__(self, owner: Any, name: str, around: Callable[[Any], Any]):
        self._owner, self._name = owner, name
        self._before = vars(owner)[name]
        self._ours = around(self._before)
        setattr(owner, name, self._ours)

    def restore(self) -> bool:
        """Whether it is as it was; not when somebody else has put theirs over ours, which then calls through."""
        if vars(self._owner).get(self._name) is not self._ours:
            return False
        setattr(self._owner, self._name, self._before)
        return True

    def stands_at(self, owner: Any, name: str) -> bool:
        return self._owner is owner and self._name == name


def begin(log: Any) -> None:
    """A capture begins whose marks go to `log`."""
    global _log
    _log = log
    if isinstance(log, MarkLog) and "torch" in sys.modules:  # the vendor's torch_npu marks these itself
        tolerated("marking data loaders", _mark_loaders)
        tolerated("marking checkpoints", _mark_checkpoints)


def end() -> None:
    global _log
    _log = None
    _patches[:] = [patch for patch in _patches if not patch.restore()]


def current_stream() -> Any:
    """The stream on which device parts of marks go; None without a device."""
    device = sys.modules.get("stepscope.simnpu.device")
    if _log is None or device is None or not device.loaded():
        return None
    return sys.modules["torch"].npu.current_stream()


def put(owner: Any, name: str, around: Callable[[Any], Any]) -> None:
    """Patch an attribute until the capture ends, unless an older patch of ours could not be taken away."""
    if name in vars(owner) and not any(patch.stands_at(owner, name) for patch in _patches):
        _patches.append(Patch(owner, name, around))


def _mark_loaders() -> None:
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    put(_BaseDataLoaderIter, "__next__", _around_next)


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


class _Saving(threading.local):
    inside = False


_saving = _Saving()


def _mark_checkpoints() -> None:
    import torch

    put(torch, "save", _around_save)
    put(torch.serialization, "save", _around_save)
    checkpoint = sys.modules.get("torch.distributed.checkpoint")
    savers = (checkpoint, sys.modules.get("torch.distributed.checkpoint.state_dict_saver"))
    for owner in savers:
        for name in ("save", "async_save"):
            if owner is not None and callable(getattr(owner, name, None)):
                put(owner, name, _around_save)


def _around_save(save: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(save)
    def saved(*arguments: Any, **options: Any) -> Any:
        log = _log
        if log is None or _saving.inside:
            return save(*arguments, **options)
        number = log.begin("save_checkpoint", None, DEFAULT_DOMAIN)
        _saving.inside = True
        try:
            return save(*arguments, **options)
        finally:
            _saving.inside = False
            log.end(number, DEFAULT_DOMAIN)

    return saved


def _forget_in_child() -> None:
    global _log
    _log = None


os.register_at_fork(after_in_child=_forget_in_child)
