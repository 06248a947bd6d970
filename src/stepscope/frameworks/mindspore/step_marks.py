# SPDX-License-Identifier: Apache-2.0
"""Marks of steps: through MindSpore's recorder if it runs, otherwise kept here and written beside its files."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from stepscope.collect import paths

PYTHON, PYTHON_OBSERVED = 5, 53  # module and event of such a mark (docs/formats/mindspore.md 7.2)


class StepMarks:
    """Ranges named ProfilerStep#n, one at a time.

    Args:
        ticks: the counter on which they are timed.
        recorder: MindSpore's recorder runs and records them.
    """

    def __init__(self, ticks: Callable[[], int], *, recorder: bool):
        self._ticks, self._recorder = ticks, recorder
        self._open: Any = None
        self._rows: list[dict[str, Any]] = []

    def begin(self, name: str) -> None:
        self.end()
        if self._recorder:
            from mindspore._c_expression import PythonProfilerRecorder

            self._open = PythonProfilerRecorder(name)
            self._open.record_start()
        else:
            self._open = (name, self._ticks(), threading.get_native_id())

    def end(self) -> None:
        mark, self._open = self._open, None
        if mark is None:
            return
        if self._recorder:
            mark.record_end()
            return
        name, start, tid = mark
        place = {"tid": tid, "start": start, "end": self._ticks(), "module": PYTHON, "event": PYTHON_OBSERVED}
        self._rows.append({**place, "name": name, "full_name": name})

    def write(self, framework: Path) -> None:
        """Add the marks that were kept here to the capture."""
        noted, self._rows = self._rows, []
        append(framework, noted)


def append(framework: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add records of our own to MindSpore's file of host records."""
    if not rows:
        return
    from stepscope.formats.mindspore import records

    texts = dict.fromkeys(records.OP_RANGE.texts.values(), "")
    del texts["info"]
    path = framework / records.OP_RANGE_FILE
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, paths.FILE_MODE), "ab") as file:
        file.write(records.encode(records.OP_RANGE, [{**texts, **row} for row in rows]))
