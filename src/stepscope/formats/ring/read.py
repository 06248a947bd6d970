# SPDX-License-Identifier: Apache-2.0
"""Ring files as arrays and as tables; a ring may be read while its process writes it."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from stepscope.errors import CaptureError
from stepscope.formats.ring import layout
from stepscope.tables import ALL_TABLES, Facts, Tables, issues, lost

_ROW = np.dtype([(name, "<i8") for name in layout.FIELDS])
_MOST_BYTES = 1 << 30


@dataclass(frozen=True)
class Ring:
    """One ring: who wrote it, and its rows from the oldest to the newest."""

    path: Path
    identity: dict[str, Any]  # job, rank, host, role, pid, born, namespace
    rows: np.ndarray[Any, np.dtype[np.void]]
    epoch_offset: int  # to add to the times of rows

    def text(self, name: str) -> str:
        value = self.identity.get(name, "")
        return value if isinstance(value, str) else ""

    def number(self, name: str) -> int:
        value = self.identity.get(name, -1)
        return value if isinstance(value, int) and abs(value) < 1 << 62 else -1


def read_ring(path: Path) -> Ring:
    """
    Raises:
        CaptureError: the file cannot be read, or is not a ring of a known version.
    """
    try:
        size = path.stat().st_size
        content = path.read_bytes() if size <= _MOST_BYTES else b""
    except OSError as problem:
        raise CaptureError(
            "the ring cannot be read", where=str(path), cause=problem.strerror or str(problem), fix="check its permissions"
        ) from problem
    bad = CaptureError("not a ring of stepscope.watch", where=str(path), cause="its head is damaged", fix="choose another file")
    if len(content) < layout.HEAD_BYTES:
        raise bad
    magic, version, rows, row_bytes, length, monotonic, epoch = layout.HEAD.unpack_from(content)
    if magic != layout.MAGIC or version != layout.VERSION or row_bytes != layout.ROW_BYTES or not 0 < rows <= 1 << 20:
        raise bad
    return Ring(path, _identity(content[layout.HEAD.size :][:length]), _rows(path, content, rows), _offset(monotonic, epoch))


def read(path: Path) -> Tables:
    """The tables `steps` and `step_phases` of a ring."""
    ring = read_ring(path)
    rows, notes = ring.rows, []
    times = {name: rows[name] for name in ("start", "end")}
    # Damaged bytes may make any number; what is added up below must not wrap around.
    limits = np.iinfo(np.int64)
    possible = (times["start"] >= limits.min - min(ring.epoch_offset, 0)) & (times["end"] <= limits.max - max(ring.epoch_offset, 0))
    possible &= times["start"] <= times["end"]
    rows = rows[possible]
    unusable = int((~possible).sum())
    if unusable:
        notes.append(lost(issues.DAMAGED_RECORD, path.name, unusable))
    start, end = rows["start"] + ring.epoch_offset, rows["end"] + ring.epoch_offset
    steps = pl.DataFrame(
        {
            "step": rows["step"],
            "pid": np.full(len(rows), ring.number("pid"), np.int64),
            "start_ns": start,
            "end_ns": end,
            "inflated": (rows["flags"] & layout.RECORDING) != 0,
        }
    )
    phases = pl.DataFrame(
        {
            "step": rows["step"],
            "start_ns": start,
            **{f"{phase}_ns": rows[phase] for phase in layout.PHASES},
            "limit_ns": rows["flags"] >> layout.LIMIT_SHIFT,
            "outlier": (rows["flags"] & layout.OUTLIER) != 0,
        }
    ).with_columns(pl.col("limit_ns").replace(0, None))
    facts = Facts(
        source="ring",
        rank=ring.number("rank"),
        host_name=ring.text("host"),
        session_start_ns=int(start[0]) if len(start) else None,
        session_end_ns=int(end[-1]) if len(end) else None,
    )
    frames = {
        "steps": ALL_TABLES["steps"].conform(steps.sort("start_ns", maintain_order=True)),
        "step_phases": ALL_TABLES["step_phases"].conform(phases.sort("start_ns", maintain_order=True)),
        "meta": facts.table(),
    }
    return Tables(frames).with_quality(*notes)


def _rows(path: Path, content: bytes, size: int) -> np.ndarray[Any, np.dtype[np.void]]:
    """The rows in the order written, without those that may have been written again while the file was read."""
    present = (len(content) - layout.HEAD_BYTES) // layout.ROW_BYTES
    count = _count(content[layout.CELLS_AT :])
    oldest = max(_count_now(path, count) + 1 - size, 0)
    numbers = np.arange(oldest, count, dtype=np.int64) if oldest < count <= oldest + size else np.zeros(0, np.int64)
    places = numbers % size
    rows = np.frombuffer(content, _ROW, min(present, size), layout.HEAD_BYTES)
    return rows[places[places < present]]


def _count(cells: bytes) -> int:
    (count,) = struct.unpack_from("<q", cells)
    return count if 0 <= count < 1 << 48 else 0


def _count_now(path: Path, before: int) -> int:
    try:
        with path.open("rb") as file:
            file.seek(layout.CELLS_AT)
            return max(_count(file.read(8)), before)
    except (OSError, struct.error):
        return before


def _identity(text: bytes) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _offset(monotonic: int, epoch: int) -> int:
    """Between the two clocks; 0 where the head holds nonsense."""
    offset = epoch - monotonic
    return offset if abs(offset) < 1 << 62 else 0
