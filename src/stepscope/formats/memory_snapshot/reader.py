# SPDX-License-Identifier: Apache-2.0
"""Memory snapshots of PyTorch as captures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.formats.chrome.files import head
from stepscope.formats.reader import CaptureFiles, Options, Reader

if TYPE_CHECKING:
    from stepscope.tables import Tables

_ENDS = (".pickle", ".pkl")
_SIGNS = (b"segments", b"device_traces")  # the keys of a snapshot; one of them comes first
_HEAD_BYTES = 256


def _claims(path: Path) -> CaptureFiles | None:
    """By the first bytes too: most pickles are something else."""
    found = path.suffix in _ENDS and path.is_file() and any(sign in head(path, _HEAD_BYTES) for sign in _SIGNS)
    return CaptureFiles(path, file=path) if found else None


def _read(files: CaptureFiles, options: Options) -> Tables:
    from stepscope.formats.memory_snapshot.read import read

    options.progress(f"reading {files.root.name}")
    return read(files.root)


READER = Reader(
    name="memory_snapshot",
    accepts="a memory snapshot (.pickle)",
    claims=_claims,
    read=_read,
    listed=lambda path: path.suffix == ".pickle" and "snapshot" in path.name,
    layouts=("<run>/*snapshot*.pickle (torch.cuda.memory._dump_snapshot)",),
)
