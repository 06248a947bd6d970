# SPDX-License-Identifier: Apache-2.0
"""Marks and ranges of a training script: the names of `mindspore.profiler.mstx`, on any device.

They are recorded while a profiler with mstx=True runs and cost next to nothing otherwise. Not for use inside a cell that is
compiled to a graph.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from stepscope.collect.marks import api as marks
from stepscope.collect.marks.api import mstx_range, range_end
from stepscope.collect.marks.log import DEFAULT_DOMAIN, MarkLog

__all__ = ["mark", "mstx_range", "range_end", "range_start"]


def mark(message: Any, stream: Any = None, domain: Any = DEFAULT_DOMAIN) -> None:
    """Mark this moment; with a stream on Ascend also the moment when the device gets there."""
    marks.mark(message, _on_device(stream), domain)


def range_start(message: Any, stream: Any = None, domain: Any = DEFAULT_DOMAIN) -> int:
    """Begin a range. Returns its number for `range_end`, 0 when it is not recorded."""
    return marks.range_start(message, _on_device(stream), domain)


class UserMarks:
    """Records marks between `start` and `stop`: to our own file, or through MindSpore's functions on Ascend."""

    name = "mstx"

    def __init__(self, include: tuple[str, ...], exclude: tuple[str, ...], *, on_device: bool):
        self._include, self._exclude, self._on_device = include, exclude, on_device
        self._end: Callable[[], None] | None = None
        self._stock: dict[str, Any] = {}

    def start(self, framework: Path) -> None:
        if self._on_device:
            marks.record_to(_StockMarks())
            self._end = lambda: None
            return
        log = MarkLog(framework, self._include, self._exclude)
        log.start()
        marks.record_to(log)
        self._end = log.stop
        self._redirect()

    def stop(self) -> None:
        end, self._end = self._end, None
        if end is not None:
            self._restore()
            marks.record_to(None)
            end()

    def _redirect(self) -> None:
        """MindSpore's own functions do nothing without a device; replace them until the end."""
        stock = _stock()
        for name, function in (("mark", mark), ("range_start", range_start), ("range_end", range_end)):
            self._stock[name] = vars(stock)[name]
            setattr(stock, name, staticmethod(function))

    def _restore(self) -> None:
        for name in list(self._stock):
            setattr(_stock(), name, self._stock.pop(name))


class _StockMarks:
    """Passes marks to MindSpore, whose profiler records them. Not tested on a device."""

    def __init__(self) -> None:
        self._mstx = _stock()

    def mark(self, message: Any, stream: Any, domain: Any) -> None:
        self._mstx.mark(message, stream, domain)

    def begin(self, message: Any, stream: Any, domain: Any) -> int:
        return int(self._mstx.range_start(message, stream, domain) or 0)

    def end(self, number: int, domain: str) -> None:
        self._mstx.range_end(number, domain)

    def push(self, message: Any, stream: Any, domain: Any) -> int:
        """MindSpore has no nested ranges."""
        del message, stream, domain
        return -1

    def pop(self, domain: str) -> int:
        del domain
        return -1


def _on_device(stream: Any) -> Any:
    """Only MindSpore's own functions understand its streams."""
    return stream if stream is not None and isinstance(marks.current(), _StockMarks) else None


def _stock() -> Any:
    from mindspore import profiler

    return profiler.mstx
