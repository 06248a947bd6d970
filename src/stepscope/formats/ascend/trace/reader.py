# SPDX-License-Identifier: Apache-2.0
"""A timeline that an Ascend tool wrote (trace_view.json, msprof_*.json), by itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.errors import CaptureError
from stepscope.formats.chrome.files import has_events_of_kineto, is_array, is_json, worker_and_span
from stepscope.formats.reader import CaptureFiles, Options, Reader

if TYPE_CHECKING:
    from stepscope.tables import Tables


def _claims(path: Path) -> CaptureFiles | None:
    return CaptureFiles(path, file=path) if is_json(path) and is_array(path) and not has_events_of_kineto(path) else None


def _read(files: CaptureFiles, options: Options) -> Tables:
    from stepscope.formats.ascend import text
    from stepscope.formats.trace_events.read import read_foreign

    options.progress(f"reading {files.root.name}")
    try:
        return text.read_trace(files.root, most_bytes=options.max_memory)
    except CaptureError as problem:
        return read_foreign(files.root, problem, most_bytes=options.max_memory)


READER = Reader(
    name="ascend_timeline",
    accepts="a trace_view.json",
    claims=_claims,
    read=_read,
    form="trace",
    names=worker_and_span,
)
