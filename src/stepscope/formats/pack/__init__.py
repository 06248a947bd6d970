# SPDX-License-Identifier: Apache-2.0
"""Packs: captures in one compressed tar file with a list of checksums, which may come from anybody."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

SUFFIX = ".tar.zst"
LIST = "stepscope-pack.json"  # first member
VERSION = 1


def is_pack(path: Path) -> bool:
    """Whether a file is named as a pack; what is in it is checked when it is unpacked."""
    return path.name.endswith(SUFFIX) and path.is_file()


def pack_cache() -> Path:
    """Where packs are unpacked that were opened as they are."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stepscope" / "packs"


def unpacked(path: Path) -> Path:
    """The folder with the content of a pack, in the user's cache; unpacked at most once for each state of the file.

    Raises:
        CaptureError: the file is not a pack, is damaged, or holds what no pack holds.
    """
    status = path.stat()
    identity = f"{path.resolve()}\n{status.st_size}\n{status.st_mtime_ns}"
    # The name stays visible: the page and reports call the run so.
    name = path.name.removesuffix(SUFFIX).lstrip(".") or "pack"
    target = pack_cache() / hashlib.sha256(os.fsencode(identity)).hexdigest()[:24] / name
    if not target.is_dir():
        from stepscope.formats.pack.unpack import unpack

        unpack(path, target)
    return target
