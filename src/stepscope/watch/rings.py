# SPDX-License-Identifier: Apache-2.0
"""The rings of this machine: who writes them, and what they count so far."""

from __future__ import annotations

import json
import struct
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stepscope.formats.ring import layout
from stepscope.watch.identity import alive

_PAGE_BYTES = 4096
_TRIES, _PAUSE_SECONDS = 5, 0.002


@dataclass(frozen=True)
class RankState:
    """What one process counted until its last step; `last` holds them and the fields of its newest row; empty before."""

    path: Path
    identity: dict[str, Any]
    last: dict[str, int] = field(default_factory=dict)
    epoch_offset: int = 0
    resident_bytes: int | None = None

    def labels(self) -> dict[str, str]:
        return {name: str(self.identity.get(name, "")) for name in ("job", "rank", "host", "role")}


def head(path: Path) -> dict[str, Any] | None:
    """Who writes a ring; None where the file is not one."""
    try:
        with path.open("rb") as file:
            content = file.read(layout.HEAD_BYTES)
        magic, version, _, row_bytes, length, monotonic, epoch = layout.HEAD.unpack_from(content)
        if magic != layout.MAGIC or version != layout.VERSION or row_bytes != layout.ROW_BYTES:
            return None
        found = json.loads(content[layout.HEAD.size :][:length])
    except (OSError, struct.error, ValueError):
        return None
    return {**found, "epoch_offset": epoch - monotonic} if isinstance(found, dict) else None


def live_states(folder: Path) -> list[RankState]:
    """The state of each process that writes a ring in a folder now, by rank."""
    found = []
    for path in sorted(folder.glob(f"*{layout.SUFFIX}")):
        who = head(path)
        if who is not None and alive(who, path):
            found.append(state(path, who))
    return sorted(found, key=lambda each: (str(each.identity.get("job")), _number(each.identity.get("rank"))))


def state(path: Path, who: dict[str, Any]) -> RankState:
    offset = who.pop("epoch_offset", 0)
    return RankState(path, who, _totals(path), offset, _resident(who))


def _totals(path: Path) -> dict[str, int]:
    """The cells of the head and the fields of the newest row; none before the first totals."""
    try:
        with path.open("rb") as file:
            for _ in range(_TRIES):
                file.seek(layout.CELLS_AT)
                cells = _named(layout.CELLS, file.read(8 * len(layout.CELLS)))
                if cells and cells["edition"] == cells["edition_again"]:
                    break
                time.sleep(_PAUSE_SECONDS)  # they are being written
            else:
                return {}
            if not 0 < cells["steps"] <= cells["count"]:
                return {}
            file.seek(layout.HEAD_BYTES + (cells["count"] - 1) % layout.ROWS * layout.ROW_BYTES)
            return _named(layout.FIELDS, file.read(layout.ROW_BYTES)) | cells
    except OSError:
        return {}


def _named(names: tuple[str, ...], content: bytes) -> dict[str, int]:
    if len(content) < 8 * len(names):
        return {}
    return dict(zip(names, struct.unpack(f"<{len(names)}q", content), strict=True))


def _resident(who: dict[str, Any]) -> int | None:
    try:
        return int(Path(f"/proc/{int(who['pid'])}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return None


def _number(value: Any) -> int:
    return value if isinstance(value, int) else -1
