# SPDX-License-Identifier: Apache-2.0
"""The raw records of a FRAMEWORK folder as frames, read and written: `read_records` reads what `write` writes.

Frames and their columns are declared in `layouts.KINDS`; times are ticks as stored. Reading accepts every
known generation, writing makes the current one.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from stepscope.formats import bytes_read
from stepscope.formats.framework import codec_records, tlv
from stepscope.formats.framework.layouts import HEADER, KINDS, Layout, RecordKind, detect
from stepscope.formats.framework.text_views import text_column
from stepscope.tables import ALL_TABLES, issues, lost

_DETECT_AMONG = 64
_ROWS_PER_CHUNK = 1 << 17
# Value of a column that a writer leaves out; 0 for all others.
_ABSENT = {"sequence_number": -1}
_NAME = "name"  # always written, even when empty: readers tell generations apart by its id


def read_records(folder: Path) -> tuple[dict[str, pl.DataFrame], pl.DataFrame]:
    """All current record kinds of a FRAMEWORK folder by name, and what could not be read as rows of `quality`."""
    frames, quality = {}, [ALL_TABLES["quality"].empty()]
    for name, kind in KINDS.items():
        frames[name], losses = read_kind(folder, kind)
        quality.append(losses)
    return frames, pl.concat(quality)


def read_kind(folder: Path, kind: RecordKind) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The records of one kind: all files whose name begins with one of its prefixes, in the order of their names."""
    parts, quality = [pl.DataFrame(schema=kind.schema)], [ALL_TABLES["quality"].empty()]
    for path in _files(folder, kind):
        if path.is_symlink():
            quality.append(lost(issues.LINK_NOT_FOLLOWED, path.name, 1))
            continue
        try:
            data = _map_file(path)
        except OSError as fault:
            quality.append(lost(issues.UNREADABLE_FILE, path.name, 1, fault.strerror or str(fault)))
            continue
        frame, losses = decode(kind, data, path.name)
        parts.append(frame)
        quality += losses
    filled = [part for part in parts if part.height]
    return pl.concat(filled) if filled else parts[0], pl.concat(quality)


def _files(folder: Path, kind: RecordKind) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.name.startswith(kind.prefixes) and path.is_file())


def _map_file(path: Path) -> tlv.Bytes:
    bytes_read.note(path)
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return np.empty(0, np.uint8)
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)


def decode(kind: RecordKind, data: tlv.Bytes, source: str) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
    """One file's bytes as a frame, and what could not be read (docs/formats/framework.md 3.3)."""
    if kind.outer_type is None:
        return _decode_flat(kind, data, source)
    outer = tlv.records(data, min(layout.fixed.itemsize for layout in kind.layouts), codec_records.find_records)
    layout = _layout(kind, data, outer)
    size = layout.fixed.itemsize
    whole = outer.lengths >= size
    offsets, lengths = outer.offsets[whole], outer.lengths[whole]
    losses = [_torn_tail(source, outer.stopped, data.size), _too_short(source, outer, ~whole, size)]
    read = codec_records.read_columns(data, layout, offsets, lengths) or _columns(data, layout, offsets, lengths)
    torn = np.flatnonzero(read.torn)
    if torn.size:
        losses.append(
            lost(issues.DAMAGED_RECORD, source, torn.size, f"first in the record at byte {offsets[torn[0]] - HEADER.itemsize}")
        )
    losses += [lost(issues.TEXT_NOT_UTF8, source, bad, name) for name, (_, bad) in read.texts.items()]
    columns = {**read.numbers, **{name: text for name, (text, _) in read.texts.items()}}
    return _frame(kind, columns, offsets.size), losses


def _decode_flat(kind: RecordKind, data: tlv.Bytes, source: str) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
    fixed = kind.layouts[0].fixed
    count = data.size // fixed.itemsize
    read = codec_records.read_columns(data, kind.layouts[0], count)
    numbers = read.numbers if read else _numbers(data[: count * fixed.itemsize].view(fixed))
    return _frame(kind, numbers, count), [_torn_tail(source, count * fixed.itemsize, data.size)]


def _columns(data: tlv.Bytes, layout: Layout, offsets: tlv.Offsets, lengths: tlv.Offsets) -> codec_records.Columns:
    """What the kernel finds, where there is none."""
    numbers = _numbers(tlv.take_structs(data, layout.fixed, offsets))
    if not (layout.texts and offsets.size):
        return codec_records.Columns(numbers, {}, np.zeros(0, np.bool_))
    size = layout.fixed.itemsize
    found = tlv.fields(data, offsets + size, offsets + lengths, layout.texts)
    texts = {layout.texts[field]: text_column(data, found.offsets[field], found.lengths[field]) for field in found.offsets}
    return codec_records.Columns(numbers, texts, found.torn)


def _numbers(rows: NDArray[Any]) -> dict[str, pl.Series]:
    return {name: pl.Series(name, np.ascontiguousarray(rows[name])) for name in rows.dtype.names or ()}


def _frame(kind: RecordKind, columns: dict[str, pl.Series], height: int) -> pl.DataFrame:
    absent = {
        name: pl.Series(name, [None], dtype=dtype).new_from_index(0, height)
        for name, dtype in kind.schema.items()
        if name not in columns
    }
    all_columns = {**columns, **absent}
    return pl.DataFrame([all_columns[name].alias(name) for name in kind.schema])


def _layout(kind: RecordKind, data: tlv.Bytes, outer: tlv.Outer) -> Layout:
    """The layout of a file: that of the first record that shows its generation, else the current one."""
    for offset, length in zip(outer.offsets[:_DETECT_AMONG].tolist(), outer.lengths[:_DETECT_AMONG].tolist(), strict=True):
        layout = detect(kind, data.data[offset : offset + length])
        if layout is not None:
            return layout
    return kind.layouts[0]


def _torn_tail(source: str, stopped: int, size: int) -> pl.DataFrame:
    return lost(issues.TRUNCATED_RECORD, source, int(stopped < size), f"at byte {stopped}: {size - stopped} bytes lost")


def _too_short(source: str, outer: tlv.Outer, short: NDArray[np.bool_], needed: int) -> pl.DataFrame:
    rows = np.flatnonzero(short)
    if not rows.size:
        return ALL_TABLES["quality"].empty()
    gone = int(outer.lengths[rows].sum()) + HEADER.itemsize * rows.size
    first = int(outer.offsets[rows[0]]) - HEADER.itemsize
    detail = f"first at byte {first}: shorter than the {needed} bytes of its fixed part; {gone} bytes lost"
    return lost(issues.DAMAGED_RECORD, source, rows.size, detail)


def write(folder: Path, records: Mapping[str, pl.DataFrame], *, append: bool = False) -> list[Path]:
    """Write frames by record kind into a FRAMEWORK folder; an empty frame writes no file. Returns the files written.

    Columns may be left out: text fields are then absent (`name` is empty), numbers 0 (`sequence_number` -1).
    Text may be String or Categorical. `append` adds to files that exist, so a capture can be written in pieces.
    """
    _create_folders(folder)
    written = []
    for name, frame in records.items():
        if not frame.height:
            continue
        path = folder / KINDS[name].file_name
        flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if append else os.O_TRUNC)
        with os.fdopen(os.open(path, flags, 0o640), "wb") as file:
            for chunk in encode(KINDS[name], frame):
                file.write(chunk)
        written.append(path)
    return written


def _create_folders(folder: Path) -> None:
    """Create every missing level with mode 0750 (docs/formats/framework.md 1.3)."""
    for level in (*reversed(folder.parents), folder):
        level.mkdir(mode=0o750, exist_ok=True)


def encode(kind: RecordKind, frame: pl.DataFrame) -> Iterator[memoryview]:
    """The bytes of the records of a frame, in the current layout, in bounded pieces."""
    unknown = set(frame.columns) - set(kind.schema)
    if unknown:
        raise KeyError(f"{kind.name} has no columns {sorted(unknown)}")
    for start in range(0, frame.height, _ROWS_PER_CHUNK):
        yield _encode_chunk(kind, frame.slice(start, _ROWS_PER_CHUNK))


def _encode_chunk(kind: RecordKind, frame: pl.DataFrame) -> memoryview:
    layout = kind.layouts[0]
    header = [] if kind.outer_type is None else HEADER.descr
    rows = np.zeros(frame.height, np.dtype(header + layout.fixed.descr))
    for name in layout.fixed.names or ():
        absent = _ABSENT.get(name, 0)
        rows[name] = frame[name].fill_null(absent).to_numpy() if name in frame.columns else absent
    if kind.outer_type is None:
        return memoryview(rows.tobytes())
    written = [name for name in layout.texts.values() if name == _NAME or _any_text(frame, name)]
    texts = {field: _text(frame, name).cast(pl.Binary) for field, name in layout.texts.items() if name in written}
    length = np.full(frame.height, layout.fixed.itemsize, np.int64)
    parts: list[Any] = []
    for field, text in texts.items():
        size = text.bin.size()
        length += (size.cast(pl.Int64) + HEADER.itemsize).fill_null(0).to_numpy()
        parts += [_field_headers(field, size), text.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(pa.large_binary())]
    rows["type"], rows["length"] = kind.outer_type, length
    if not parts:
        return memoryview(rows.tobytes())
    import pyarrow.compute as pc  # a tenth of a second, and readers have no use for it

    joined = pc.binary_join_element_wise(
        _fixed_binary(rows), *parts, pa.scalar(b"", pa.large_binary()), null_handling="replace", null_replacement=""
    )
    _, ends, data = joined.buffers()
    return memoryview(data)[: np.frombuffer(ends, np.int64)[frame.height]]


def _any_text(frame: pl.DataFrame, name: str) -> bool:
    return name in frame.columns and frame[name].null_count() < frame.height


def _text(frame: pl.DataFrame, name: str) -> pl.Series:
    if name not in frame.columns:
        return pl.Series(name, [""] * frame.height, dtype=pl.String)
    text: pl.Series = frame[name].cast(pl.String)
    return text.fill_null("") if name == _NAME else text


def _field_headers(field: int, size: pl.Series) -> pa.Array:
    """The header of an inner field in each record; null where the record has no such field."""
    rows = np.zeros(size.len(), HEADER)
    rows["type"], rows["length"] = field, size.fill_null(0).to_numpy()
    return _fixed_binary(rows, size.is_not_null().to_numpy())


def _fixed_binary(rows: NDArray[Any], present: NDArray[np.bool_] | None = None) -> pa.Array:
    ends = np.arange(rows.size + 1, dtype=np.int64) * rows.itemsize
    validity = None if present is None else pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(pa.large_binary(), rows.size, [validity, pa.py_buffer(ends), pa.py_buffer(rows)])
