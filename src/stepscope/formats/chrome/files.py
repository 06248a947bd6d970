# SPDX-License-Identifier: Apache-2.0
"""Trace files: which kind one is, by its name and first bytes, and which worker wrote it."""

from __future__ import annotations

import gzip
import re
import zlib
from pathlib import Path

from stepscope.formats.reader import CaptureFiles, name_and_one

_SUFFIXES = (".json", ".json.gz")
_SIGNS = (b'"traceEvents"', b'"ph"')
_HEAD = 1 << 16
# Arguments and categories that Kineto writes and Ascend tools do not (docs/formats/kineto.md 2).
_OF_KINETO = re.compile(
    rb'"(?:External id|external id|Ev Idx|Record function id)"|'
    rb'"cat"\s*:\s*"(?:user_annotation|kernel|[a-z0-9]+_(?:runtime|driver|memcpy|memset|sync))"'
)
_KINETO = re.compile(r"(?P<worker>.+?)(?:\.(?P<time>\d+))?\.pt\.trace\.json(?:\.gz)?")


def is_json(path: Path) -> bool:
    """Whether a file may be a trace, by its name; `profiler_*.json` are settings."""
    return path.name.endswith(_SUFFIXES) and not path.name.startswith("profiler_") and path.is_file()


def is_array(path: Path) -> bool:
    """Whether a trace is a bare array of events, as Ascend tools write it; Kineto wraps the array in an object."""
    return head(path, 4096).lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"["


def has_events_of_kineto(path: Path) -> bool:
    """Whether the first events are Kineto's: scripts that cut a trace often keep the array alone."""
    return _OF_KINETO.search(head(path, _HEAD)) is not None


def looks_like_trace(path: Path) -> bool:
    return any(sign in head(path, _HEAD) for sign in _SIGNS)


def head(path: Path, size: int) -> bytes:
    """The first bytes, decompressed; empty where they cannot be read."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            return gzip.GzipFile(fileobj=file).read(size) if packed else file.read(size)
    except (OSError, EOFError, zlib.error):
        return b""


def is_named_as_kineto(path: Path) -> bool:
    """Whether a file has the name that torch's TensorBoard handler gives to traces."""
    return bool(_KINETO.fullmatch(path.name))


def worker_and_span(files: CaptureFiles) -> tuple[str, str]:
    """From `worker.time.pt.trace.json`; the time stands for the span until all traces of the worker are known."""
    match = _KINETO.fullmatch(files.root.name)
    return (match["worker"], f"time {match['time'] or 0}") if match else name_and_one(files)
