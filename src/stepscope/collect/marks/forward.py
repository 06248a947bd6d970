# SPDX-License-Identifier: Apache-2.0
"""The mark `forward`: the outermost call of a module; calls inside it cost nothing.

A hook on all modules makes every call expensive, so it is installed only while no module runs: the outermost call removes it
and puts it back at its end. Two kinds of programs need a wrapper around every call instead, about 0.3 us each: those that
call models in several threads, where one thread would hide the calls of another, and those that compile, where a hook would
become part of the compiled code.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from stepscope.collect.guard import quietly
from stepscope.collect.marks.log import DEFAULT_DOMAIN

_KEY = "stepscope"  # torch's own keys are numbers
NAME = "forward"


class _Thread(threading.local):
    inside = False


_here = _Thread()


class ForwardMarks:
    """Marks outermost calls between `start` and `stop`.

    Args:
        current_log: gives the log that records marks now, or None.
        current_stream: where their device part goes.
        patch: patches an attribute of torch until the capture ends.
    """

    def __init__(
        self,
        current_log: Callable[[], Any],
        current_stream: Callable[[], Any],
        patch: Callable[[Any, str, Callable[[Any], Any]], None],
    ):
        self._current_log, self._current_stream, self._put = current_log, current_stream, patch
        self._wraps = False
        self._thread = 0
        self._called: Any = None  # the module whose call runs

    def start(self, *, compiled: bool) -> None:
        global _here
        import torch

        _here = _Thread()  # an earlier capture may have ended inside a call
        self._hooks = torch.nn.modules.module._global_forward_pre_hooks
        self._enter_hook = _enter_hook(self)
        self._graph_task, self._traced, self._loss = (
            torch._C._current_graph_task_id, torch._C._get_tracing_state, torch.nn.modules.loss._Loss,
        )  # fmt: skip
        self._thread = 0
        if self._wraps or compiled or "_forward_hooks_always_called" not in vars(torch.nn.Module()):
            self.wrap()
        else:
            self._hooks[_KEY] = self._enter_hook

    def stop(self) -> None:
        if "torch" in sys.modules and hasattr(self, "_hooks"):
            self._hooks.pop(_KEY, None)
            _unhook(self._called)
            self._called = None

    def wrap(self) -> None:
        """Use a wrapper around each call from here on, not the hook."""
        import torch

        self._wraps = True
        self._hooks.pop(_KEY, None)
        self._put(torch.nn.Module, "__call__", self.around)

    def enter(self, module: Any) -> None:
        """The outermost call of a module begins."""
        thread = threading.get_ident()
        self._thread = self._thread or thread
        if thread != self._thread:
            self.wrap()
        self._hooks.pop(_KEY, None)
        _unhook(self._called)  # left by a call that ended in a way no hook sees, such as KeyboardInterrupt
        self._called = module
        _here.inside = True  # for the wrapper, if it has just been put in place
        module._forward_hooks_always_called[_KEY] = True
        module._forward_hooks[_KEY] = self._leave
        self._number = self.begin(module)

    def _leave(self, *_: Any) -> None:
        log = self._current_log()
        if log is not None:
            if self._number:
                log.end(self._number, DEFAULT_DOMAIN)
            if not self._wraps:
                self._hooks[_KEY] = self._enter_hook
        _unhook(self._called)
        self._called = None
        _here.inside = False

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        global _marks, _call, _is_compiling
        _marks, _call, _is_compiling = self, call, sys.modules["torch"].compiler.is_compiling
        return _wrapper

    def begin(self, module: Any) -> int:
        """Begin the range of this outermost call and return its number; 0 when it is not marked."""
        log = self._current_log()
        # During a backward pass this is a recomputation of activations.
        if log is None or self._graph_task() != -1 or self._traced() or isinstance(module, self._loss):
            return 0
        return int(log.begin(NAME, self._current_stream(), DEFAULT_DOMAIN))

    def end(self, number: int) -> None:
        log = self._current_log()
        if number and log is not None:
            log.end(number, DEFAULT_DOMAIN)


# Not inside the class: Dynamo checks the closure of a function each time it runs code that it compiled with it, and would
# recompile once the wrapper is gone.
_marks: ForwardMarks
_call: Callable[..., Any]
_is_compiling: Callable[[], bool]


def _wrapper(self: Any, *arguments: Any, **options: Any) -> Any:
    if _is_compiling() or _here.inside:
        return _call(self, *arguments, **options)
    number = _marks.begin(self)
    _here.inside = True
    try:
        return _call(self, *arguments, **options)
    finally:
        _here.inside = False
        _marks.end(number)


def _enter_hook(marks: ForwardMarks) -> Callable[[Any, Any], None]:
    is_compiling = sys.modules["torch"].compiler.is_compiling

    def hook(module: Any, arguments: Any) -> None:
        if not is_compiling():
            quietly(marks.enter, module)

    return hook


def _unhook(module: Any) -> None:
    if module is not None:
        module._forward_hooks.pop(_KEY, None)
        module._forward_hooks_always_called.pop(_KEY, None)
