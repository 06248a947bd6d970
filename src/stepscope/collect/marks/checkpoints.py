# SPDX-License-Identifier: Apache-2.0
"""The mark `save_checkpoint`: one per checkpoint, whichever function writes it and however many pieces it has.

`torch.distributed.checkpoint` writes each tensor with `torch.save`, on threads of its own if asked to; these pieces are not
marked. What all its functions call is, so that a name bound before the capture (`from … import save`) is seen too.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import sys
import threading
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from stepscope.collect.guard import quietly
from stepscope.collect.marks.log import DEFAULT_DOMAIN

NAME = "save_checkpoint"
_PACKAGE = "torch.distributed.checkpoint"
_SAVER = f"{_PACKAGE}.state_dict_saver"
_CONVERTER = f"{_PACKAGE}.format_utils"  # saves whole checkpoints by torch.save
_BACKGROUND = "AsyncCheckpointExecutor"  # the threads of async_save

Patch = Callable[[Any, str, Callable[[Any], Any]], None]


class _Thread(threading.local):
    inside = False


class CheckpointMarks:
    """Patches what saves checkpoints between `begin` and `end`.

    Args:
        current_log: gives the log that records marks now, or None.
        patch: patches an attribute until the capture ends.
    """

    def __init__(self, current_log: Callable[[], Any], patch: Patch):
        self._current_log, self._patch = current_log, patch
        self._here = _Thread()
        self._in_background: list[None] = []  # one for each async_save whose background part has not begun
        self._finder = _LateImport(self._mark_distributed)

    def begin(self) -> None:
        import torch

        for owner in (torch, torch.serialization):
            self._patch(owner, "save", self._around_save)
        for name in ("_save", "_legacy_save"):  # of a `save` that was bound before
            self._patch(torch.serialization, name, self._around)
        jit = sys.modules.get("torch.jit")
        for owner in (jit, sys.modules.get("torch.jit._serialization")):
            if owner is not None:
                self._patch(owner, "save", self._around)
        self._in_background.clear()
        saver = sys.modules.get(_SAVER)
        if saver is not None:
            self._mark_distributed(saver)
        else:
            sys.meta_path.insert(0, self._finder)

    def end(self) -> None:
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)

    def _mark_distributed(self, saver: ModuleType) -> None:
        self._patch(saver, "_save_state_dict", self._around_state_dict)
        for owner in (saver, sys.modules.get(_PACKAGE)):
            if owner is not None:
                self._patch(owner, "async_save", self._around_async)

    def _around(self, save: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(save)
        def wrapper(*arguments: Any, **options: Any) -> Any:
            return self._marked(save, arguments, options)

        return wrapper

    def _around_save(self, save: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(save)
        def wrapper(*arguments: Any, **options: Any) -> Any:
            caller = sys._getframe(1).f_globals.get("__name__", "")
            if caller.startswith(_PACKAGE) and caller != _CONVERTER:
                return self._unmarked(save, arguments, options)
            return self._marked(save, arguments, options)

        return wrapper

    def _around_state_dict(self, save: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(save)
        def wrapper(*arguments: Any, **options: Any) -> Any:
            if self._in_background and threading.current_thread().name.startswith(_BACKGROUND):
                self._in_background.pop()
                return self._unmarked(save, arguments, options)
            return self._marked(save, arguments, options)

        return wrapper

    def _around_async(self, save: Callable[..., Any]) -> Callable[..., Any]:
        """What training waits for is marked; the rest runs beside it."""

        @functools.wraps(save)
        def wrapper(*arguments: Any, **options: Any) -> Any:
            self._in_background.append(None)
            return self._marked(save, arguments, options)

        return wrapper

    def _marked(self, save: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        log = self._current_log()
        if log is None or self._here.inside:
            return save(*arguments, **options)
        number = log.begin(NAME, None, DEFAULT_DOMAIN)
        try:
            return self._unmarked(save, arguments, options)
        finally:
            log.end(number, DEFAULT_DOMAIN)

    def _unmarked(self, save: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        before, self._here.inside = self._here.inside, True
        try:
            return save(*arguments, **options)
        finally:
            self._here.inside = before


class _LateImport(importlib.abc.MetaPathFinder):
    """Calls a function with the module when `torch.distributed.checkpoint` is imported during a capture."""

    def __init__(self, imported: Callable[[ModuleType], None]):
        self._imported = imported

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != _SAVER:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Notifying(spec.loader, self._imported)
        return spec


class _Notifying(importlib.abc.Loader):
    """The loader of a module, which also notifies; the module keeps its own."""

    def __init__(self, loader: Any, imported: Callable[[ModuleType], None]):
        self._loader, self._imported = loader, imported

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)  # type: ignore[no-any-return]

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        quietly(self._imported, module)
