# SPDX-License-Identifier: Apache-2.0
"""Long garbage collections of Python (docs/formats/profiler-api.md 19)."""

from __future__ import annotations

import contextlib
import gc
import os
import struct
from pathlib import Path
from typing import Any

from stepscope.collect import paths
from stepscope.collect.clocks import raw_ns

FILE = "torch.gc_record"
_RECORD = struct.Struct("<3Q")  # docs/formats/framework.md 4.7
_FLUSH_NS = 100_000_000  # as all records of a capture


class GcPauses:
    """Records collections of at least `threshold_ms` between start and stop; writes no file if there were none."""

    def __init__(self, framework: Path, threshold_ms: float):
        self._file = framework / FILE
        self._threshold_ns = threshold_ms * 1e6
        self._began = 0
        self._records: list[bytes] = []
        self._pid = os.getpid()
        self._flushed = 0

    def start(self) -> None:
        gc.callbacks.append(self._on_collection)

    def stop(self) -> None:
        if self._on_collection in gc.callbacks:
            gc.callbacks.remove(self._on_collection)
        self._flush()

    def _on_collection(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            self._began = raw_ns()
            return
        ended = raw_ns()
        # A collection that was already running when recording began has no start time.
        if self._began and ended - self._began >= self._threshold_ns:
            self._records.append(_RECORD.pack(self._pid, self._began, ended))
            if ended - self._flushed >= _FLUSH_NS:
                self._flushed = ended
                with contextlib.suppress(OSError):  # it is tried again at the end, where a failure is reported
                    self._flush()
        self._began = 0

    def _flush(self) -> None:
        if not self._records or not self._file.parent.is_dir():
            return
        with os.fdopen(os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, paths.FILE_MODE), "wb") as file:
            file.write(b"".join(self._records))
        self._records.clear()
