# SPDX-License-Identifier: Apache-2.0
"""The native observer from Python: operators, memory and Python calls stream to the FRAMEWORK files while training runs.

The library (native/observer) does all work per event; this module only switches it. torch is not imported before an observer
is loaded.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepscope.collect.sources.param_tensors import write_param_tensors
from stepscope.native import find_library

_ABI = 4
TRIAL = "import sys; from stepscope.collect.tiers.observer import try_library; try_library(sys.argv[1])"
_TRIAL_OPS = 10
_PHASES = ("idle", "prepared", "recording", "limit reached")


@dataclass(frozen=True)
class ObserverOptions:
    """What is recorded besides names and times."""

    record_shapes: bool = False
    profile_memory: bool = False
    with_stack: bool = False
    with_modules: bool = False
    with_flops: bool = False
    all_threads: bool = False
    host_memory_only: bool = False  # the device's own recorder writes its memory
    max_bytes: int | None = None

    @property
    def bits(self) -> int:
        switches = (
            self.record_shapes, self.profile_memory, self.with_stack, self.with_modules, self.with_flops, self.all_threads,
            self.host_memory_only,
        )  # fmt: skip
        return sum(1 << place for place, on in enumerate(switches) if on)

    @property
    def traces_python(self) -> bool:
        return self.with_stack or self.with_modules

    @property
    def names_tensors(self) -> bool:
        """Tensor names are recorded only where a memory timeline can be built from them (docs/formats/framework.md 4.1)."""
        return self.record_shapes and self.profile_memory and self.traces_python


@dataclass(frozen=True)
class ThreadReport:
    """One thread that recorded; `logical` is torch's own number, which `forward_thread_id` refers to."""

    thread: int
    logical: int
    operators: int
    dropped: int


@dataclass(frozen=True)
class StopReport:
    """What a recording wrote."""

    operators: int
    memory_events: int
    python_events: int
    marks: int
    bytes: int
    dropped: int  # records lost because memory was full
    threads: tuple[ThreadReport, ...]
    seconds: float  # that stop took
    limit: str | None  # why the recording ended before stop, if it did


class _Report(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_uint64) for name in ("ops", "memory", "calls", "marks", "bytes", "dropped", "threads", "unfinished")),
        ("error", ctypes.c_int64),
        ("limit_reached", ctypes.c_int64),
    ]


class ObserverError(RuntimeError):
    """The observer rejected a call; the text says why."""


class Observer:
    """Records into one folder at a time: prepare, start, stop."""

    def __init__(self, path: Path, origin: str):
        self.origin = origin
        # Two views of one library: calls that are short or touch Python keep the GIL, those that wait release it.
        self._short, self._long = _declare(ctypes.PyDLL(str(path))), _declare(ctypes.CDLL(str(path)))
        if self._short.stepscope_observer_abi() != _ABI:
            raise ObserverError("the library has another version")
        self._folder = Path()
        self._options = ObserverOptions()
        self._pid = -1
        self._profile_before: Any = None

    @property
    def phase(self) -> str:
        """`idle`, `prepared`, `recording`, or `limit reached` when it went silent by itself."""
        return _PHASES[self._short.stepscope_observer_phase()]

    def prepare(self, framework_folder: Path, options: ObserverOptions) -> None:
        """Get memory and the writer thread ready, so that `start` is short. The folder exists already."""
        if self.phase == "prepared":
            self.stop()  # a warm-up that was abandoned
        folder = os.fsencode(framework_folder)
        self._check(self._long.stepscope_observer_prepare(folder, options.bits, options.max_bytes or 0))
        self._folder, self._options, self._pid = framework_folder, options, os.getpid()
        if options.traces_python:
            self._prepare_tracing()

    def start(self) -> None:
        """Record from here on, on this thread and autograd's, or on all threads."""
        self._check(self._short.stepscope_observer_start())
        if self._options.traces_python:
            self._profile_before = sys.getprofile()
            self._check(self._short.stepscope_observer_trace_thread(0))
            if self._options.all_threads:
                threading.setprofile(self._trace_new_thread)

    def stop(self) -> StopReport:
        """Stop recording and return when all files are complete."""
        begin = time.perf_counter()
        traced = self._options.traces_python and self._pid == os.getpid()
        if traced:
            self._end_tracing()
        report = _Report()
        self._check(self._long.stepscope_observer_stop(ctypes.byref(report)))
        if traced:
            if self._options.names_tensors:
                write_param_tensors(self._folder / "torch.param_tensor_info", self._instances())
            self._short.stepscope_observer_forget_callees()
        threads = tuple(self._thread(index) for index in range(report.threads))
        return StopReport(
            report.ops,
            report.memory,
            report.calls,
            report.marks,
            report.bytes,
            report.dropped,
            threads,
            time.perf_counter() - begin,
            _limit(report, self._options),
        )

    def silence(self) -> None:
        """Record nothing from here on, on any thread; any thread may call it. `stop` comes later."""
        self._check(self._long.stepscope_observer_silence())

    def flush(self) -> None:
        """Write out what was recorded until now; any thread may call it."""
        self._check(self._long.stepscope_observer_flush())

    def report_memory(self, on: bool) -> bool:
        """Give up or take back the place where torch reports this thread's memory; whether it is ours now.

        torch has one such place per thread, and a second profiler raises where it is taken.
        """
        return bool(self._short.stepscope_observer_report_memory(int(on)) == 1)

    def enable_child_thread(self, options: ObserverOptions | None = None) -> None:
        """Record the calling thread too, with its own switches if given."""
        wanted = options or self._options
        self._check(self._short.stepscope_observer_enable_thread(wanted.bits))
        if wanted.traces_python and self._options.traces_python:
            self._check(self._short.stepscope_observer_trace_thread(0))

    def disable_child_thread(self) -> None:
        """Stop recording the calling thread."""
        if self._options.traces_python:
            self._short.stepscope_observer_untrace_thread()
        self._check(self._short.stepscope_observer_disable_thread())

    def push_range(self, name: str) -> None:
        """Open a range on this thread; `pop_range` closes the newest. Neither does anything when nothing is recorded."""
        text = name.encode("utf-8", "replace")
        self._short.stepscope_observer_push(text, len(text))

    def pop_range(self) -> None:
        self._short.stepscope_observer_pop()

    def mark_step(self, number: int | None) -> None:
        """End the step that is open and begin `ProfilerStep#number`; None only ends."""
        text = b"" if number is None else b"ProfilerStep#%d" % number
        self._short.stepscope_observer_step(text, len(text))

    def range_start(self, name: str) -> int:
        """Open a range that any thread may end; 0 when nothing is recorded."""
        text = name.encode("utf-8", "replace")
        return int(self._short.stepscope_observer_range_start(text, len(text)))

    def range_end(self, number: int) -> None:
        self._short.stepscope_observer_range_end(number)

    def mark(self, category: int, correlation: int, name: str) -> None:
        """A mark of a task queue: 0 and 1 enqueue begin and end, 2 and 3 dequeue begin and end (docs/formats/framework.md 4.2)."""
        text = name.encode("utf-8", "replace")
        self._short.stepscope_observer_mark(category, correlation, text, len(text))

    def _prepare_tracing(self) -> None:
        import torch

        module_code = id(torch.nn.Module.__call__.__code__)
        optimizer_step = getattr(torch.optim.Optimizer, "_optimizer_step_code", None)
        optimizer_code = id(optimizer_step.__code__) if optimizer_step else 0
        prefixes = "\n".join(_import_prefixes()).encode("utf-8", "replace")
        self._check(self._short.stepscope_observer_trace(module_code, optimizer_code, prefixes, int(self._options.names_tensors)))

    def _trace_new_thread(self, frame: Any, event: str, argument: Any) -> None:
        # Runs as the profile function of a new thread, once: it puts the library's in its own place, without its own frame.
        if self._short.stepscope_observer_trace_thread(1):
            sys.setprofile(None)

    def _end_tracing(self) -> None:
        if self._options.all_threads:
            threading.setprofile(None)
        self._short.stepscope_observer_untrace_thread()
        if self._profile_before is not None:
            sys.setprofile(self._profile_before)
            self._profile_before = None

    def _instances(self) -> list[tuple[int, bool, Any]]:
        """Modules and optimizers that were called and still exist: key, whether an optimizer, object."""
        key, kind, found = ctypes.c_uint64(), ctypes.c_uint64(), []
        for index in range(self._short.stepscope_observer_instances()):
            reference = self._short.stepscope_observer_instance(index, ctypes.byref(key), ctypes.byref(kind))
            instance = reference()
            if instance is not None:
                found.append((key.value, bool(kind.value), instance))
        return found

    def _thread(self, index: int) -> ThreadReport:
        values = (ctypes.c_uint64 * 4)()
        self._short.stepscope_observer_thread(index, values)
        return ThreadReport(*values)

    def _check(self, result: int) -> None:
        if result:
            raise ObserverError(self._short.stepscope_observer_error().decode("utf-8", "replace"))


def load_observer() -> Observer | str:
    """The observer of this process, built on first use if needed, or the reason why it is not available. Never raises."""
    global _loaded
    if _loaded is None:
        _loaded = _load()
    return _loaded


_loaded: Observer | str | None = None


def _load() -> Observer | str:
    if not sys.platform.startswith("linux"):
        return f"{sys.platform} is not supported"
    found = find_library("observer", TRIAL)
    if isinstance(found, str):
        return found
    try:
        observer = try_library(str(found.path), found.origin)
        atexit.register(_stop_at_exit, observer)
        return observer
    except (OSError, AttributeError, RuntimeError, ValueError, ImportError) as fault:
        return f"the observer does not work here: {fault}"


def _stop_at_exit(observer: Observer) -> None:
    """A script that ends inside a recording keeps what it recorded."""
    if observer.phase != "idle":
        with contextlib.suppress(ObserverError, OSError):
            observer.stop()


def try_library(path: str, origin: str = "built") -> Observer:
    """Load a library and record a few operators with it; raises if it does not count them correctly."""
    import torch

    folder = Path(torch.__file__).parent / "lib"
    for name in ("libc10.so", "libtorch_cpu.so"):  # its symbols resolve against these, wherever torch is installed
        ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL)
    observer = Observer(Path(path), origin)
    tensor = torch.zeros(2)
    with tempfile.TemporaryDirectory(prefix="stepscope-") as target:
        observer.prepare(Path(target), ObserverOptions(record_shapes=True, profile_memory=True))
        observer.start()
        try:
            for _ in range(_TRIAL_OPS):
                torch.add(tensor, 1)
        finally:
            report = observer.stop()
        written = sum(file.stat().st_size for file in Path(target).iterdir())
    if report.operators < _TRIAL_OPS or report.dropped or report.bytes != written:
        raise ObserverError(f"its trial recorded {report.operators} of {_TRIAL_OPS} operators")
    return observer


def _declare(library: Any) -> Any:
    text, size, number = ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64
    by_name: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "abi": (ctypes.c_int, ()),
        "error": (text, ()),
        "phase": (ctypes.c_int, ()),
        "prepare": (ctypes.c_int, (text, ctypes.c_uint32, number)),
        "start": (ctypes.c_int, ()),
        "stop": (ctypes.c_int, (ctypes.c_void_p,)),
        "silence": (ctypes.c_int, ()),
        "flush": (ctypes.c_int, ()),
        "report_memory": (ctypes.c_int, (ctypes.c_int,)),
        "thread": (ctypes.c_int, (number, ctypes.c_void_p)),
        "enable_thread": (ctypes.c_int, (ctypes.c_uint32,)),
        "disable_thread": (ctypes.c_int, ()),
        "push": (None, (text, size)),
        "pop": (None, ()),
        "step": (None, (text, size)),
        "range_start": (number, (text, size)),
        "range_end": (None, (number,)),
        "mark": (None, (ctypes.c_uint8, number, text, size)),
        "trace": (ctypes.c_int, (ctypes.c_void_p, ctypes.c_void_p, text, ctypes.c_int)),
        "trace_thread": (ctypes.c_int, (ctypes.c_int,)),
        "untrace_thread": (None, ()),
        "instances": (number, ()),
        "instance": (ctypes.py_object, (number, ctypes.c_void_p, ctypes.c_void_p)),
        "forget_callees": (None, ()),
    }
    for name, (result, arguments) in by_name.items():
        function: Callable[..., Any] = getattr(library, f"stepscope_observer_{name}")
        function.restype, function.argtypes = result, arguments  # type: ignore[attr-defined]
    return library


def _import_prefixes() -> list[str]:
    """Prefixes to remove from file names, longest first (docs/formats/framework.md 4.5)."""
    folders = {path.rstrip("/") + "/" for path in sys.path if path and path.startswith("/")}
    return sorted(folders, key=len, reverse=True)


def _limit(report: _Report, options: ObserverOptions) -> str | None:
    if report.error:
        return f"files could not be written: {os.strerror(report.error)}"
    return f"max_bytes={options.max_bytes} reached" if report.limit_reached else None
