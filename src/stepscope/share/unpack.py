# SPDX-License-Identifier: Apache-2.0
"""Unpack a pack into a folder of the user's choice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stepscope.errors import CaptureError
from stepscope.formats.pack import SUFFIX
from stepscope.formats.pack.unpack import unpack
from stepscope.share.stores import refuse_existing


def unpack_into(pack: Path, folder: Path | None = None) -> tuple[Path, dict[str, Any]]:
    """Unpack into a new folder, named as the pack unless given; the folder, and the list of the pack."""
    if not pack.is_file():
        raise CaptureError("no such file", where=str(pack), fix="give a file of stepscope pack")
    target = folder or pack.with_name(pack.name.removesuffix(SUFFIX) if pack.name.endswith(SUFFIX) else f"{pack.name}.unpacked")
    refuse_existing(target)
    return target, unpack(pack, target)
