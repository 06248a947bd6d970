# SPDX-License-Identifier: Apache-2.0
"""MindSpore's binary records as frames and back: `read_layout` reads what `encode` writes (docs/formats/mindspore.md 7.1-7.5)."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from stepscope.formats import bytes_read
from stepscope.formats.framework import tlv
from stepscope.formats.framework.layouts import HEADER
from stepscope.formats.framework.text_views import text_column
from stepscope.formats.mindspore.losses import note
from stepscope.tables import issues

NO_FLOW = (1 << 64) - 1
OP_RANGE_FILE = "mindspore.op_range"
DISPATCH_FILE = "x.dispatch"  # our own: calls of operators, the shapes of their inputs as `info`


@dataclass(frozen=True)
class Layout:
    """One kind of record: its fixed struct and the columns of its text fields by id."""

    fixed: np.dtype[Any]
    texts: Mapping[int, str]


OP_RANGE = Layout(
    np.dtype([
        ("tid", "<u8"), ("flow", "<u8"), ("step", "<u8"), ("start", "<u8"), ("end", "<u8"), ("thread", "<i4"),
        ("module", "<u2"), ("event", "<u2"), ("stage", "<u2"), ("level", "i1"),
        ("is_graph", "?"), ("is_stage", "?"), ("is_stack", "?"),
    ]),
    {13: "name", 14: "full_name", 15: "module_text", 16: "event_text", 17: "info"},
)  # fmt: skip

# Up to 2.5: times are nanoseconds, names are complete.
OLD_OP_RANGE = Layout(
    np.dtype([
        ("start", "<i8"), ("end", "<i8"), ("sequence", "<i8"), ("pid", "<u8"), ("tid", "<u8"), ("end_tid", "<u8"),
        ("forward_tid", "<u8"), ("flow", "<u8"), ("step", "<u8"), ("level", "i1"), ("is_async", "?"),
    ]),
    {3: "name", 4: "dtypes", 5: "shapes", 6: "stack", 7: "modules", 8: "flops", 9: "info"},
)  # fmt: skip

MEMORY_USAGE = Layout(
    np.dtype([
        ("device", "<i4"), ("tid", "<u8"), ("pid", "<u8"), ("time", "<u8"), ("address", "<u8"), ("size", "<u8"), ("used", "<u8"),
        ("peak", "<u8"), ("alloc", "<u8"), ("used_by_event", "<u8"), ("eager_free", "<u8"), ("stream_ptr", "<u8"),
        ("stream", "<u4"), ("from_persistent", "u1"), ("is_persistent", "u1"), ("run_mode", "u1"), ("alloc_type", "u1"),
    ]),
    {13: "owner"},
)  # fmt: skip

RECORD_SHAPES = Layout(np.dtype([]), {0: "name", 1: "shapes", 2: "dtypes"})


def read_layout(path: Path, layout: Layout, quality: list[pl.DataFrame]) -> pl.DataFrame:
    """One file as a frame: numbers as stored, text as String, null where a record lacks the field."""
    try:
        data = _map_file(path)
    except OSError as fault:
        note(quality, issues.UNREADABLE_FILE, path.name, 1, fault.strerror or str(fault))
        data = np.empty(0, np.uint8)
    size = layout.fixed.itemsize
    outer = tlv.records(data, size)
    whole = outer.lengths >= size
    offsets, lengths = outer.offsets[whole], outer.lengths[whole]
    note(
        quality,
        issues.TRUNCATED_RECORD,
        path.name,
        int(outer.stopped < data.size),
        f"at byte {outer.stopped} of {data.size}; the rest is lost",
    )
    note(quality, issues.DAMAGED_RECORD, path.name, int((~whole).sum()), f"shorter than the {size} bytes of its fixed part")
    columns = []
    if layout.fixed.names:
        rows = tlv.take_structs(data, layout.fixed, offsets)
        columns = [pl.Series(name, np.ascontiguousarray(rows[name])) for name in layout.fixed.names]
    found = tlv.fields(data, offsets + size, offsets + lengths, layout.texts)
    note(quality, issues.DAMAGED_RECORD, path.name, int(found.torn.sum()), "a text runs past the end of its record")
    absent = np.full(offsets.size, -1, np.int64)
    for field, name in layout.texts.items():
        place = found.offsets.get(field, np.zeros(offsets.size, np.int64))
        text, bad = text_column(data, place, found.lengths.get(field, absent))
        note(quality, issues.TEXT_NOT_UTF8, path.name, bad, name)
        columns.append(text.alias(name))
    return pl.DataFrame(columns)


def _map_file(path: Path) -> tlv.Bytes:
    bytes_read.note(path)
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return np.empty(0, np.uint8)
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)


def encode(layout: Layout, rows: Sequence[Mapping[str, Any]], kind: int = 0) -> bytes:
    """Records as bytes; for the few that we write ourselves (steps, cells), and for tests."""
    parts = []
    for row in rows:
        fixed = np.zeros(1, layout.fixed)
        for name in layout.fixed.names or ():
            fixed[name] = row.get(name, NO_FLOW if name == "flow" else 0)
        texts = [(field, str(row[name]).encode()) for field, name in layout.texts.items() if row.get(name) is not None]
        body = fixed.tobytes() + b"".join(_frame(field, text) for field, text in texts)
        parts.append(_frame(kind, body))
    return b"".join(parts)


def _frame(kind: int, body: bytes) -> bytes:
    return np.array([(kind, len(body))], HEADER).tobytes() + body
