# SPDX-License-Identifier: Apache-2.0
"""Input shapes of operators that MindSpore's CPU profiler records without inputs: those of PyNative's fast path.

A dispatch mode sees each call on the thread that started the profiler and records its time, by which the reader finds the
kernels that it launched. Operators on other threads, and inside compiled functions, are not seen.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stepscope.collect import messages, paths
from stepscope.frameworks.mindspore import ticks

_MAX_CALLS = 1_000_000  # calls, about 400 MB; a recording with shapes is short
Call = tuple[int, int, str, tuple[Any, ...]]


def available() -> bool:
    """Whether this MindSpore has dispatch modes: from 2.9 on."""
    try:
        from mindspore.utils import MsDispatchMode
    except ImportError:
        return False
    return MsDispatchMode is not None


class DispatchShapes:
    name = "dispatch"

    def __init__(self) -> None:
        self._calls: list[Call] = []
        self._running = False
        self._thread = 0
        self._framework: Path | None = None

    def start(self, framework: Path) -> None:
        from mindspore._c_expression import _DispatchGuardStack

        thread, mode = threading.get_native_id(), _the_mode()
        if _DispatchGuardStack.depth() > (thread in _stacked_threads):
            # Modes end in reverse order: one that outlived ours would remove ours instead of itself.
            messages.warning("a dispatch mode of the script is active: input shapes of PyNative's fast path are not recorded")
            return
        self._framework, self._thread, self._running = framework, thread, True
        mode.calls = self._calls
        if thread not in _stacked_threads:
            mode.__enter__()

    def stop(self) -> None:
        if not self._running:
            return
        from mindspore._c_expression import _DispatchGuardStack

        self._running, mode = False, _the_mode()
        mode.calls = None
        # The stack belongs to its thread, and a mode of the script may be above ours: then ours stays and does nothing.
        here = threading.get_native_id() == self._thread
        if here and _DispatchGuardStack.depth() == 1:
            mode.__exit__(None, None, None)
            _stacked_threads.discard(self._thread)
        else:
            _stacked_threads.add(self._thread)
        self._write()

    def _write(self) -> None:
        from stepscope.formats.mindspore import records

        calls, self._calls = self._calls, []
        assert self._framework is not None
        if len(calls) >= _MAX_CALLS:
            messages.warning(f"input shapes are recorded for the first {_MAX_CALLS} operators only")
        rows = [
            {"tid": self._thread, "start": began, "end": ended, "name": name, "info": ";".join(map(_shape, shapes))}
            for began, ended, name, shapes in calls
        ]
        if rows:
            paths.write_file(self._framework / records.DISPATCH_FILE, records.encode(records.OP_RANGE, rows))


_stacked_threads: set[int] = set()  # threads whose stack still has our mode
_modes: list[Any] = []


def _the_mode() -> Any:
    """The one mode of the process. MindSpore may release it without holding the GIL, when a thread or the process ends, so that
    must never be the last reference."""
    if not _modes:
        _modes.append(_mode(ticks.counter()))
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(_modes[0]))
    return _modes[0]


def _mode(counter: Callable[[], int]) -> Any:
    from mindspore.utils import MsDispatchMode

    class RecordShapes(MsDispatchMode):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.calls: list[Call] | None = None

        def __ms_dispatch__(self, func: Any, args: Any, kwargs: Any = None) -> Any:
            # Other operators are called with (primitive, name, inputs); the CPU profiler has their shapes.
            calls = self.calls
            if calls is None or (len(args) == 3 and isinstance(args[1], str)) or len(calls) >= _MAX_CALLS:
                return func(*args)
            began = counter()
            result = func(*args)
            calls.append((began, counter(), func.name, tuple(shape for value in args for shape in _shapes(value))))
            return result

    return RecordShapes()


def _shapes(value: Any) -> tuple[Any, ...]:
    """The shape of a tensor, the shapes of a list of tensors, None for anything else."""
    if isinstance(value, (tuple, list)) and value and hasattr(value[0], "shape"):
        return tuple(getattr(item, "shape", None) for item in value)
    return (getattr(value, "shape", None),)


def _shape(shape: Any) -> str:
    """`4,8`; empty for anything but a tensor, as the CPU profiler's `NoShape`."""
    return ",".join(map(str, shape)) if isinstance(shape, (tuple, list)) else ""
