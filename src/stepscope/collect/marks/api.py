# SPDX-License-Identifier: Apache-2.0
"""Marks and ranges of the user (docs/formats/profiler-api.md 18): the functions of `stepscope.mstx`, and their on/off switch.

They do nothing unless a capture with mstx=True runs. Code that torch compiles gets no marks: they would break the graph, or
be moved behind it.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from stepscope.collect.marks import stages
from stepscope.collect.marks.log import DEFAULT_DOMAIN, MarkLog
from stepscope.collect.marks.vendor import VendorMarks
from stepscope.collect.settings import Settings
from stepscope.collect.tiers import ascend


class Log(Protocol):
    """Where marks go: our own file, or the vendor's library."""

    def mark(self, message: Any, stream: Any, domain: Any) -> None: ...
    def begin(self, message: Any, stream: Any, domain: Any) -> int: ...
    def end(self, number: int, domain: str) -> None: ...
    def push(self, message: Any, stream: Any, domain: Any) -> int: ...
    def pop(self, domain: str) -> int: ...


_log: Log | None = None
_vendor: Any = None


def _before_torch() -> bool:
    """Stands in for torch's function until torch is imported."""
    global _compiling
    _compiling = getattr(sys.modules.get("torch.compiler"), "is_compiling", _before_torch)
    return False


_compiling: Callable[[], bool] = getattr(sys.modules.get("torch.compiler"), "is_compiling", _before_torch)


def mark(message: Any, stream: Any = None, domain: Any = DEFAULT_DOMAIN) -> None:
    """Mark this moment; with a stream also the moment when the device gets there."""
    if _compiling():
        return
    log = _log
    if log is not None:
        log.mark(message, stream, domain)


def range_start(message: Any, stream: Any = None, domain: Any = DEFAULT_DOMAIN) -> int:
    """Begin a range that any thread may end. Returns its number, 0 when it is not recorded."""
    if _compiling():
        return 0
    log = _log
    return 0 if log is None else log.begin(message, stream, domain)


def range_end(range_id: Any, domain: Any = DEFAULT_DOMAIN) -> None:
    """End the range with this number, which was begun in the same domain."""
    if _compiling():
        return
    log = _log
    if log is None:
        return
    if type(range_id) is not int or type(domain) is not str:
        warnings.warn(f"mstx: range_end takes a number and a domain, not {range_id!r} and {domain!r}", stacklevel=2)
        return
    log.end(range_id, domain)


def range_push(message: Any, stream: Any = None, domain: Any = DEFAULT_DOMAIN) -> int:
    """Begin a range inside the newest of this thread and domain. Returns how many were open, -1 when it is not recorded."""
    if _compiling():
        return -1
    log = _log
    return -1 if log is None else log.push(message, stream, domain)


def range_pop(domain: Any = DEFAULT_DOMAIN) -> int:
    """End the newest range of this thread and domain. Returns how many are still open, -1 when none was."""
    if _compiling():
        return -1
    log = _log
    return -1 if log is None else log.pop(domain)


class mstx_range:
    """A range around a function (as decorator) or a block (`with`); it ends whatever happens inside.

    A generator's range lasts from its first value to its end, a coroutine's until it is done.
    """

    def __init__(self, message: Any, stream: Any = None, domain: Any = DEFAULT_DOMAIN):
        self.message, self.stream, self.domain = message, stream, domain
        self._open_ranges: dict[int, list[int]] = {}

    def __enter__(self) -> mstx_range:
        self._open_ranges.setdefault(threading.get_ident(), []).append(range_start(self.message, self.stream, self.domain))
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        thread = threading.get_ident()
        numbers = self._open_ranges[thread]
        number = numbers.pop()
        if not numbers:
            del self._open_ranges[thread]
        if number:
            range_end(number, self.domain)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        message, stream, domain = self.message or getattr(function, "__name__", ""), self.stream, self.domain

        @functools.wraps(function)
        def wrapper(*arguments: Any, **options: Any) -> Any:
            number = range_start(message, stream, domain)
            if not number:
                return function(*arguments, **options)
            try:
                return function(*arguments, **options)
            finally:
                range_end(number, domain)

        kind = next((kind for kind, belongs in _SUSPENDED.items() if belongs(function)), None)
        return wrapper if kind is None else kind(function, mstx_range(message, stream, domain))


def annotate(message: Any = "", stream: Any = None, domain: Any = DEFAULT_DOMAIN) -> mstx_range:
    """The same as `mstx_range`; for a function the message defaults to its name."""
    return mstx_range(message, stream, domain)


def _coroutine(function: Callable[..., Any], around: mstx_range) -> Callable[..., Any]:
    @functools.wraps(function)
    async def wrapper(*arguments: Any, **options: Any) -> Any:
        number = range_start(around.message, around.stream, around.domain)
        try:
            return await function(*arguments, **options)
        finally:
            range_end(number, around.domain)

    return wrapper


def _generator(function: Callable[..., Any], around: mstx_range) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*arguments: Any, **options: Any) -> Any:
        number = range_start(around.message, around.stream, around.domain)
        try:
            return (yield from function(*arguments, **options))
        finally:
            range_end(number, around.domain)

    return wrapper


_SUSPENDED: dict[Callable[..., Any], Callable[[Any], bool]] = {
    _coroutine: inspect.iscoroutinefunction,
    _generator: inspect.isgeneratorfunction,
}


class Marks:
    """Marks of one capture: from start to stop the functions above record, and stages of the training loop are marked too."""

    def __init__(self, framework: Path, settings: Settings, *, by_vendor: bool = False):
        vendor = ascend.vendor() if by_vendor else None
        self.log: Log = VendorMarks(vendor) if vendor is not None else MarkLog(framework, settings.domains, settings.other_domains)

    def start(self) -> None:
        if isinstance(self.log, MarkLog):
            self.log.start()
        record_to(self.log)
        stages.begin(self.log)

    def stop(self) -> None:
        stages.end()
        record_to(None)
        if _vendor is not None:
            forward_to(_vendor)
        if isinstance(self.log, MarkLog):
            self.log.stop()


def record_to(log: Log | None) -> None:
    """Send marks to this log from here on; None switches them off."""
    global _log
    _log = log
    _before_torch()


def forward_to(vendor: Any) -> None:
    """Send all marks to the vendor's library whenever no capture of ours records them."""
    global _vendor
    _vendor = vendor
    log = VendorMarks(vendor)
    record_to(log)
    stages.begin(log)


def current() -> Log | None:
    return _log


os.register_at_fork(after_in_child=lambda: record_to(None))
