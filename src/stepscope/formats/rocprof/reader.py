# SPDX-License-Identifier: Apache-2.0
"""Results of rocprofv3 as captures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.formats.chrome.files import head, is_json
from stepscope.formats.reader import CaptureFiles, Options, Reader

if TYPE_CHECKING:
    from stepscope.tables import Tables

_SIGN = b'"rocprofiler-sdk-tool"'
_HEAD_BYTES = 256  # the key is the first of the document


def _is_result(path: Path) -> bool:
    return is_json(path) and _SIGN in head(path, _HEAD_BYTES)


def _claims(path: Path) -> CaptureFiles | None:
    return CaptureFiles(path, file=path) if _is_result(path) else None


def _read(files: CaptureFiles, options: Options) -> Tables:
    from stepscope.formats.rocprof.read import read

    options.progress(f"reading {files.root.name}")
    return read(files.root, most_bytes=options.max_memory)


READER = Reader(
    name="rocprof",
    accepts="a JSON result of rocprofv3",
    claims=_claims,
    read=_read,
    form="file",
    listed=lambda path: path.name.removesuffix(".gz").endswith("_results.json") and _is_result(path),
    layouts=("<run>/<pid>_results.json[.gz] (rocprofv3 --output-format json)",),
)
