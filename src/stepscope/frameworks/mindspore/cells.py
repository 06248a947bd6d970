# SPDX-License-Identifier: Apache-2.0
"""Calls of cells, for versions of MindSpore with which its own recorder was not tested."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stepscope.frameworks.mindspore import ticks
from stepscope.frameworks.mindspore.step_marks import append


class CellCalls:
    """One record per call of a cell from Python; in graph mode only the outermost one."""

    name = "cells"

    def __init__(self) -> None:
        self._original: Callable[..., Any] | None = None
        self._framework: Path | None = None
        self._calls: list[tuple[type, int, int, int]] = []

    def start(self, framework: Path) -> None:
        from mindspore import nn

        original, counter = nn.Cell.__call__, ticks.counter()
        noted, thread = self._calls.append, threading.get_native_id

        def call(cell: Any, *arguments: Any, **keywords: Any) -> Any:
            began = counter()
            try:
                return original(cell, *arguments, **keywords)
            finally:
                noted((type(cell), thread(), began, counter()))

        self._original, self._framework = original, framework
        nn.Cell.__call__ = call

    def stop(self) -> None:
        original, self._original = self._original, None
        if original is None:
            return
        from mindspore import nn

        nn.Cell.__call__ = original
        noted, self._calls = self._calls, []
        assert self._framework is not None
        rows = [
            {"tid": tid, "start": start, "end": end, "flow": 0, "is_stack": True, "name": _name(kind)}
            for kind, tid, start, end in noted
        ]
        append(self._framework, rows)


def _name(kind: type) -> str:
    """The name that MindSpore's own tracer gives the call of a cell (docs/formats/mindspore.md 7.2)."""
    code = getattr(getattr(kind, "construct", None), "__code__", None)
    file = kind.__module__.replace(".", "/") + ".py"
    return f"{file}({code.co_firstlineno if code else 0}):nn.Cell.{kind.__name__}.__call__"
