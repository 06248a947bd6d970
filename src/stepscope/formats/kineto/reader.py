# SPDX-License-Identifier: Apache-2.0
"""Kineto and other Chrome traces as captures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.errors import CaptureError
from stepscope.formats.chrome.files import is_json, is_named_as_kineto, worker_and_span
from stepscope.formats.reader import CaptureFiles, Options, Reader

if TYPE_CHECKING:
    from stepscope.tables import Tables


def _claims(path: Path) -> CaptureFiles | None:
    return CaptureFiles(path, file=path) if is_json(path) else None


def _read(files: CaptureFiles, options: Options) -> Tables:
    from stepscope.formats.kineto.read import read
    from stepscope.formats.trace_events.read import read_foreign

    options.progress(f"reading {files.root.name}")
    try:
        return read(files.root, most_bytes=options.max_memory)
    except CaptureError as problem:
        return read_foreign(files.root, problem, most_bytes=options.max_memory)


READER = Reader(
    name="kineto",
    accepts="a .json or .json.gz trace",
    claims=_claims,
    read=_read,
    form="trace",
    listed=is_named_as_kineto,
    names=worker_and_span,
    layouts=("<run>/<worker>[.<time>].pt.trace.json[.gz]", "a Chrome trace *.json[.gz], named itself"),
)
