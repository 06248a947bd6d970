# SPDX-License-Identifier: Apache-2.0
"""A capture that is ready to be shown: its tables, its timeline, its files, and what has been computed from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock
from time import perf_counter
from typing import Any, TypeVar

from stepscope.capture import Capture
from stepscope.formats import bytes_read
from stepscope.formats.reader import CaptureFiles
from stepscope.tables import Facts, Tables
from stepscope.tables.store import store_folder
from stepscope.web.timeline import index as trace_index
from stepscope.web.timeline.index import TraceIndex

Value = TypeVar("Value")
Progress = Callable[..., None]  # stage, share of one, and bytes read and in all while files are read

_READING, _READ = 0.05, 0.5  # where the share begins and ends while files are read
_STAGES = (("opening", 0.6), ("reading", _READING), ("linking", _READ), ("writing", 0.7))


@dataclass(frozen=True)
class LoadedCapture:
    """Everything that views need. Frames that several routes use are computed once, under a lock of their own."""

    tables: Tables
    files: CaptureFiles
    root: Path  # the folder that the user gave
    version: str
    source_files: tuple[Path, ...] = ()
    load_s: float = 0.0
    _results: dict[str, Any] = field(default_factory=dict)
    _lock: Any = field(default_factory=RLock)
    _locks: dict[str, Any] = field(default_factory=dict)

    def once(self, key: str, make: Callable[[], Value]) -> Value:
        """The result of `make`, computed at the first call; calls for another key do not wait for it."""
        if key not in self._results:
            with self._lock:
                own = self._locks.setdefault(key, RLock())
            with own:
                if key not in self._results:
                    self._results[key] = make()
        value: Value = self._results[key]
        return value

    def known(self, key: str) -> bool:
        """Whether `once` has that result already."""
        return key in self._results

    @property
    def facts(self) -> Facts:
        return self.once("facts", lambda: self.tables.facts)

    @property
    def kind(self) -> str:
        """npu, cuda, rocm, cpu or another accelerator."""
        return self.once("device kind", lambda: self.tables.device_kind)

    @property
    def is_npu(self) -> bool:
        return self.kind == "npu"

    @property
    def simulated(self) -> bool:
        """Whether it was recorded on the simulated NPU; `facts.modelled` names what is modelled instead of measured."""
        collector = self.facts.profiler_info.get("collector")
        settings = collector if isinstance(collector, dict) else {}
        return bool(self.facts.modelled) or "npu_sim" in (settings.get("device"), settings.get("backend"))

    @property
    def has_device(self) -> bool:
        return bool(self.tables.kernels.height or self.tables.collectives.height)

    @property
    def trace(self) -> TraceIndex:
        return self.once("trace", lambda: trace_index.build(self.tables))

    @property
    def base_ns(self) -> int:
        """Time zero of all views: the first event of the capture."""
        return self.trace.base_ns


def load_capture(files: CaptureFiles, root: Path, version: str, progress: Progress) -> LoadedCapture:
    """Read a capture (or open its store) and prepare its timeline.

    Raises:
        CaptureError: nothing of it can be shown.
    """
    began = perf_counter()
    tables, sources = _tables(files, progress)
    capture = LoadedCapture(tables, files, root, version, tuple(sources))
    progress("preparing the timeline", 0.8)
    folder = trace_folder(files.root)
    index = trace_index.load(folder, version)
    if index is None:
        index = trace_index.build(tables)
        try:
            trace_index.save(index, folder, version)
            index = trace_index.load(folder, version) or index
        except OSError:
            pass  # shown all the same; only the next opening is slower
    built = index
    capture.once("trace", lambda: built)
    return LoadedCapture(tables, files, root, version, tuple(sources), perf_counter() - began, capture._results)


def trace_folder(capture: Path) -> Path:
    store = store_folder(capture)
    return store.with_name(f"{store.name}.trace")


def _tables(files: CaptureFiles, progress: Progress) -> tuple[Tables, list[Path]]:
    capture = Capture(files)
    sources = capture.source_files()

    def report(stage: str) -> None:
        progress(stage, _fraction(stage))

    def advanced(name: str, read: int, total: int) -> None:
        progress(f"reading {name}", _READING + (_READ - _READING) * read / max(total, 1), read, total)

    with bytes_read.watched(sources, advanced):
        return capture.load(report), sources


def _fraction(stage: str) -> float:
    return next((fraction for word, fraction in _STAGES if stage.startswith(word)), 0.4)
