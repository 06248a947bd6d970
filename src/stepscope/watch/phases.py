# SPDX-License-Identifier: Apache-2.0
"""What a step waits for, measured without touching the script: data loaders, garbage collections, checkpoints."""

from __future__ import annotations

import functools
import gc
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from stepscope.collect.guard import warn_on_failure
from stepscope.collect.marks.checkpoints import CheckpointMarks
from stepscope.collect.marks.stages import Patch

_now = time.monotonic_ns
_thread = threading.get_ident


def _none() -> None:
    """No iterator is known."""


class Phases:
    """Nanoseconds of the current step in each phase; whoever ends the step takes them and sets them to 0.

    Only what the thread of the training loop waits for counts: a loader that another thread reads ahead costs it nothing.
    """

    # Read at each step with cold caches, so it touches little memory.
    __slots__ = (
        "__weakref__",
        "_before",
        "_checkpoints",
        "_gc_began",
        "_iterator",
        "_last",
        "_main",
        "_patches",
        "checkpoint",
        "collections",
        "data",
        "gc",
        "loop",
        "others",
        "unusual",
    )

    def __init__(self) -> None:
        self.data = self.gc = self.checkpoint = 0
        self.unusual = False  # whether the step has more than a wait for data and garbage collections
        self.others: dict[int, int] = {}  # loaders but the one of training, by dataset
        self.collections = 0
        self.loop = _thread()
        self._main = self._last = 0
        self._iterator: Callable[[], Any] = _none  # gives the one over the loader of training that was read last
        self._before: frozenset[int] = frozenset()  # others of the last step that had some
        self._gc_began = 0
        self._patches: list[Patch] = []
        self._checkpoints = CheckpointMarks(lambda: self, self._patch)

    def start(self) -> None:
        gc.callbacks.append(self._on_collection)
        self.watch_torch()

    def watch_torch(self) -> None:
        """What torch does for the loop; again after the first step, by whose end the script has imported it."""
        if "torch" in sys.modules and not self._patches:
            warn_on_failure("watching data loaders", self._watch_loaders)
            warn_on_failure("watching checkpoints", self._checkpoints.begin)

    def stop(self) -> None:
        if self._on_collection in gc.callbacks:
            gc.callbacks.remove(self._on_collection)
        self._checkpoints.end()
        for patch in reversed(self._patches):
            patch.restore()
        self._patches.clear()

    def settle_others(self) -> int:
        """At the end of a step that read loaders beside the one of training: the time in those that training does not use.

        The loader that was read last is the one of training if the known one was not read at all; others belong to training if
        the step before read them as well.
        """
        others = self.others
        if not self.data:
            self._main, self.data = self._last, others.pop(self._last, 0)
            self._iterator = _none
        before, self._before = self._before, frozenset(others)
        elsewhere = 0
        for loader, ns in others.items():
            if loader in before:
                self.data += ns
            else:
                elsewhere += ns
        others.clear()
        return elsewhere

    # CheckpointMarks calls these, as of a log of marks.
    def begin(self, name: str, stream: Any, domain: str) -> int:
        return _now() if _thread() == self.loop else 0

    def end(self, began: int, domain: str) -> None:
        if began:
            self.checkpoint += _now() - began
            self.unusual = True

    def _patch(self, owner: Any, name: str, around: Callable[[Any], Any]) -> None:
        if name in vars(owner) and not any(patch.stands_at(owner, name) for patch in self._patches):
            self._patches.append(Patch(owner, name, around))

    def _on_collection(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            self._gc_began = _now()
        elif self._gc_began:
            self.gc += _now() - self._gc_began
            self._gc_began = 0
            self.collections += 1

    def _watch_loaders(self) -> None:
        from torch.utils.data.dataloader import _BaseDataLoaderIter

        self._patch(_BaseDataLoaderIter, "__next__", self._around_next)

    def _around_next(self, fetch: Callable[[Any], Any]) -> Callable[[Any], Any]:
        thread, now = _thread, _now

        @functools.wraps(fetch)
        def __next__(iterator: Any) -> Any:
            if thread() != self.loop:
                return fetch(iterator)
            began = now()
            try:
                return fetch(iterator)
            finally:
                ns = now() - began
                if self._iterator() is iterator:
                    self.data += ns
                else:
                    self._waited(iterator, ns)

        return __next__

    def _waited(self, iterator: Any, ns: int) -> None:
        """For an iterator that is not known to be the one of training: its loader may be."""
        loader = id(iterator._dataset)
        if loader == self._main:
            self._iterator = weakref.ref(iterator)
            self.data += ns
        else:
            self._last, self.unusual = loader, True
            self.others[loader] = self.others.get(loader, 0) + ns
