# SPDX-License-Identifier: Apache-2.0
"""The mark `forward`: the outermost call of a module.

Every call goes through a wrapper while a capture runs, about 0.5 us for each call inside another (benchmarks/mstx.py). Hooks
would cost nothing there, but torch runs none when a call ends with KeyboardInterrupt or another BaseException, and compiles
them with the code that they belong to.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from stepscope.collect.guard import quietly
from stepscope.collect.marks.log import DEFAULT_DOMAIN

NAME = "forward"


class _Thread(threading.local):
    inside = False


_here = _Thread()


class ForwardMarks:
    """Marks outermost calls from `start` until the capture ends.

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
        self._current_log, self._current_stream, self._patch = current_log, current_stream, patch

    def start(self) -> None:
        global _here
        import torch

        _here = _Thread()  # an earlier capture may have ended inside a call
        self._graph_task, self._traced, self._loss = (
            torch._C._current_graph_task_id, torch._C._get_tracing_state, torch.nn.modules.loss._Loss,
        )  # fmt: skip
        self._patch(torch.nn.Module, "__call__", self._around)

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

    def _around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        global _marks, _call, _is_compiling
        _marks, _call, _is_compiling = self, call, sys.modules["torch"].compiler.is_compiling
        quietly(_leave_to_python)
        return _wrapper


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


def _leave_to_python() -> None:
    """Dynamo leaves frames of torch's own modules alone; ours stands between them and must not be compiled either."""
    frames = sys.modules["torch"]._C._dynamo.eval_frame
    if hasattr(frames, "skip_code"):  # until torch 2.6
        frames.skip_code(_wrapper.__code__)
    else:
        skip = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.DEFAULT)
        frames.set_code_exec_strategy(_wrapper.__code__, skip)
