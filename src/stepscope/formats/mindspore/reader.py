# SPDX-License-Identifier: Apache-2.0
"""The trace that MindSpore's runtime writes at exit, by itself."""

from __future__ import annotations

from pathlib import Path

from stepscope.formats import mindspore
from stepscope.formats.chrome.files import is_json, worker_and_span
from stepscope.formats.reader import CaptureFiles, Options, Reader
from stepscope.tables import Tables


def _claims(path: Path) -> CaptureFiles | None:
    return CaptureFiles(path, file=path) if mindspore.is_runtime_trace(path) and is_json(path) else None


def _read(files: CaptureFiles, options: Options) -> Tables:
    options.progress(f"reading {files.root.name}")
    return mindspore.read_runtime_trace(files.root)


READER = Reader(
    name="mindspore_runtime",
    accepts="a RuntimeProfilerJson file",
    claims=_claims,
    read=_read,
    form="trace",
    names=worker_and_span,
)
