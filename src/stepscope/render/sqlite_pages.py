# SPDX-License-Identifier: Apache-2.0
"""Pages of SQLite tables straight from columns: large tables of numbers, several times faster than inserting rows.

The file format is documented and stable (sqlite.org/fileformat2.html). A table is a b-tree keyed by row number: leaf
pages hold the rows and refer to nothing, so they are written first, from the second page on. SQLite then makes its
own part of the file behind them, and at the end the leaves are attached to the roots of their tables.
Only tables whose columns are all numbers are written this way.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.native.codec import codec

PAGE = 65536
_LEAF, _INTERIOR = 0x0D, 0x05
_LEAF_HEADER, _INTERIOR_HEADER = 8, 12
_ROWS_AT_ONCE = 1 << 16
MANY_ROWS = 20_000
_MOST_COLUMNS = 64  # of the kernel
# Serial types of the record format by width in bytes; constants 0 and 1 need no bytes at all.
_INTEGERS = {1: 1, 2: 2, 4: 4, 8: 6}
_REAL, _ZERO, _ONE = 7, 8, 9

Bytes = npt.NDArray[np.uint8]
Buffer = bytearray | memoryview


@dataclass(frozen=True)
class _Field:
    """How one column is stored: serial type and the bytes of its values; both empty where the value is null."""

    serial: int
    width: int
    values: npt.NDArray[np.generic]
    null: npt.NDArray[np.bool_] | None


@dataclass
class PagedTable:
    """Leaf pages of one table, already written: the first one's number, and the last row number on each."""

    name: str
    first_page: int
    last_rows: list[int] = field(default_factory=list)


def is_paged(frame: pl.DataFrame) -> bool:
    """Whether the frame can and should be written as pages: numbers only, and more than fit on one page."""
    return frame.height >= MANY_ROWS and all(dtype.is_numeric() or dtype == pl.Boolean for dtype in frame.schema.values())


def write_leaves(name: str, frame: pl.DataFrame, key: str | None, file: BinaryIO) -> PagedTable:
    """Write the leaf pages of a table after the existing ones; the first page of the file is left free.

    Args:
        name: the table.
        frame: its columns in the order of its declaration.
        key: the column declared INTEGER PRIMARY KEY, which is the row number itself; it must not repeat.
        file: a new database that holds leaf pages only.
    """
    if key is not None:
        frame = frame.sort(key)
        rows = frame[key].cast(pl.Int64).to_numpy()
        frame = frame.with_columns(pl.lit(None, pl.Int64).alias(key))
    else:
        rows = np.arange(1, frame.height + 1, dtype=np.int64)
    table = PagedTable(name, file.seek(max(PAGE, file.seek(0, 2))) // PAGE + 1)
    functions = codec()
    if functions is not None and frame.width <= _MOST_COLUMNS:
        _write_by_kernel(functions, frame, rows, table, file)
        return table
    for start in range(0, frame.height, _ROWS_AT_ONCE):
        fields = [_field(column) for column in frame.slice(start, _ROWS_AT_ONCE)]
        for page, last in _leaves(*_cells(fields, rows[start : start + _ROWS_AT_ONCE], int(rows[-1]))):
            file.write(page)
            table.last_rows += rows[start + last - 1].tolist()
    return table


class _Column(ctypes.Structure):
    """As in native/codec/pages.cpp."""

    _fields_ = (
        ("is_real", ctypes.c_int32),
        ("unused", ctypes.c_int32),
        ("values", ctypes.c_void_p),
        ("valid", ctypes.c_void_p),
        ("valid_offset", ctypes.c_int64),
    )


def _write_by_kernel(
    functions: ctypes.CDLL, frame: pl.DataFrame, rows: npt.NDArray[np.int64], table: PagedTable, file: BinaryIO
) -> None:
    """Write the pages that `_leaves` would make."""
    rows = np.ascontiguousarray(rows)
    # A record has at most nine bytes for a column and some for its length and number; a page is more than half full.
    most = 2 + _ROWS_AT_ONCE * (10 * frame.width + 24) // (PAGE // 2)
    pages, ends = np.empty(most * PAGE, np.uint8), np.empty(most, np.int64)
    for start in range(0, frame.height, _ROWS_AT_ONCE):
        # Few rows at a time become arrays of one piece: those of a whole table would be a second copy of it, in fresh memory.
        arrays = [_array(column) for column in frame.slice(start, _ROWS_AT_ONCE)]
        count = functions.write_leaves(
            _columns(arrays),
            ctypes.c_int32(len(arrays)),
            ctypes.c_void_p(rows.ctypes.data + start * rows.itemsize),
            ctypes.c_int64(0),
            ctypes.c_int64(len(arrays[0])),
            ctypes.c_int64(int(rows[-1])),
            ctypes.c_void_p(pages.ctypes.data),
            ctypes.c_int64(most),
            ctypes.c_void_p(ends.ctypes.data),
        )
        if count < 0:
            raise ValueError(f"{table.name} does not fit the pages reserved for it")
        file.write(pages.data[: count * PAGE])
        table.last_rows += rows[start + ends[:count] - 1].tolist()


def _columns(arrays: list[Any]) -> ctypes.Array[_Column]:
    columns = (_Column * len(arrays))()
    for column, array in zip(columns, arrays, strict=True):
        if array.null_count < len(array):
            valid, values = array.buffers()
            column.is_real, column.values = str(array.type) == "double", values.address + 8 * array.offset
            if array.null_count:
                column.valid, column.valid_offset = valid.address, array.offset
    return columns


def _array(column: pl.Series) -> Any:
    """The column as one Arrow array of eight bytes a value."""
    wanted = pl.Float64 if column.dtype.is_float() else pl.Int64
    return (column if column.dtype == wanted else column.cast(wanted)).rechunk().to_arrow()


def put_first_page(file: BinaryIO, empty: bytes) -> None:
    """Turn a file of leaves into a database without tables, of which SQLite knows only the size."""
    pages = file.seek(0, 2) // PAGE
    file.seek(0)
    file.write(empty)
    _put_size(file, pages)


def attach(file: BinaryIO, tables: list[tuple[PagedTable, int]]) -> None:
    """Attach leaves to the root pages of their (still empty) tables; the database must not be open elsewhere.

    Args:
        file: the database, open for reading and writing.
        tables: the tables, each with the number of its root page.
    """
    pages = file.seek(0, 2) // PAGE
    roots = []
    for table, root in tables:
        children = list(enumerate(table.last_rows, table.first_page))
        while len(children) > _FANOUT:
            # Even shares: a page that leads to one child only would be malformed.
            count = -(-len(children) // _FANOUT)
            groups = [children[len(children) * at // count : len(children) * (at + 1) // count] for at in range(count)]
            file.write(b"".join(_interior(group) for group in groups))
            children = [(pages + 1 + number, group[-1][1]) for number, group in enumerate(groups)]
            pages += len(groups)
        roots.append((root, children))
    for root, children in roots:
        file.seek((root - 1) * PAGE)
        file.write(_interior(children))
    _put_size(file, pages)


def _put_size(file: BinaryIO, pages: int) -> None:
    file.seek(28)
    file.write(struct.pack(">I", pages))


def _field(column: pl.Series) -> _Field:
    null = column.is_null().to_numpy() if column.null_count() else None
    if column.null_count() == len(column):
        return _Field(0, 0, np.zeros(len(column), np.int8), null)
    if column.dtype.is_float():
        return _Field(_REAL, 8, column.fill_null(0.0).cast(pl.Float64).to_numpy().astype(">f8"), null)
    whole = column.cast(pl.Int64).fill_null(strategy="min")
    low, high = int(whole.min() or 0), int(whole.max() or 0)
    if low == high and low in (0, 1):
        return _Field(_ONE if low else _ZERO, 0, np.zeros(len(column), np.int8), null)
    width = next(width for width in _INTEGERS if -(1 << (8 * width - 1)) <= low and high < 1 << (8 * width - 1))
    return _Field(_INTEGERS[width], width, whole.to_numpy().astype(f">i{width}"), null)


def _cells(fields: list[_Field], rows: npt.NDArray[np.int64], last: int) -> tuple[Bytes, npt.NDArray[np.int64] | int]:
    """The rows end to end, and the length of each (one number when all are equal); `last` is the table's last row number.

    A row is: length of the record, row number, length of the record's header, serial types, values.
    """
    header = 1 + len(fields)
    longest = header + sum(item.width for item in fields)
    length_bytes, row_bytes = _varint_width(longest), _varint_width(last)
    names = [f"f{number}" for number in range(len(fields))]
    layout = np.dtype(
        [("length", "u1", (length_bytes,)), ("row", "u1", (row_bytes,)), ("header", "u1"), ("serials", "u1", (len(fields),))]
        + [(name, item.values.dtype) for name, item in zip(names, fields, strict=True) if item.width]
    )
    cells = np.empty(len(rows), layout)
    cells["header"] = header
    cells["serials"] = np.array([item.serial for item in fields], np.uint8)
    _put_varint(cells["row"], rows)
    records = np.full(len(cells), longest, np.int64)
    dropped = []
    for number, (name, item) in enumerate(zip(names, fields, strict=True)):
        if item.width:
            cells[name] = item.values
        if item.null is not None:
            cells["serials"][item.null, number] = 0
            records -= item.null * item.width
            dropped.append((name, item.null))
    _put_varint(cells["length"], records)
    flat = cells.view(np.uint8).reshape(len(cells), layout.itemsize)
    if (records == longest).all():
        return flat.reshape(-1), layout.itemsize
    kept = np.ones(flat.shape, np.bool_)
    for name, null in dropped:
        if layout.fields and name in layout.fields:
            at = layout.fields[name][1]
            kept[null, at : at + layout.fields[name][0].itemsize] = False
    return flat[kept], records + length_bytes + row_bytes


def _varint_width(largest: int) -> int:
    return max(1, -(-largest.bit_length() // 7))


def _put_varint(place: Bytes, values: npt.NDArray[Any]) -> None:
    """Seven bits a byte, most significant first, the top bit set on all but the last; all of one width."""
    width = place.shape[1]
    if values.max(initial=0) < 1 << 31:
        values = values.astype(np.uint32)
    for byte in range(width):
        bits = (values >> (7 * (width - 1 - byte))) & 0x7F
        place[:, byte] = bits | (0x80 if byte < width - 1 else 0)


def _leaves(cells: Bytes, lengths: npt.NDArray[np.int64] | int) -> Iterator[tuple[Buffer, npt.NDArray[np.int64]]]:
    """Full pages one after the other, with the number of rows written when each page ends."""
    if isinstance(lengths, int):
        yield from _even_leaves(cells, lengths)
        return
    ends = np.cumsum(lengths)
    filled = ends + 2 * np.arange(1, len(ends) + 1)  # each row also takes a pointer of two bytes
    row = begin = 0
    while row < len(ends):
        used = filled[row - 1] if row else 0
        stop = int(np.searchsorted(filled, used + PAGE - _LEAF_HEADER, side="right"))
        content = cells[begin : ends[stop - 1]]
        pointers = PAGE - len(content) + np.concatenate([[0], ends[row : stop - 1] - begin])
        page = bytearray(PAGE)
        page[:_LEAF_HEADER] = struct.pack(">BHHHB", _LEAF, 0, stop - row, (PAGE - len(content)) % PAGE, 0)
        page[_LEAF_HEADER : _LEAF_HEADER + 2 * (stop - row)] = pointers.astype(">u2").tobytes()
        page[PAGE - len(content) :] = content.tobytes()
        yield page, np.array([stop])
        row, begin = stop, int(ends[stop - 1])


def _even_leaves(cells: Bytes, length: int) -> Iterator[tuple[Buffer, npt.NDArray[np.int64]]]:
    """Pages of rows of one length: every full page has the same layout, so all of them are built at once."""
    total = len(cells) // length
    each = (PAGE - _LEAF_HEADER) // (length + 2)
    for rows in ({each: total // each, total % each: 1} if total % each else {each: total // each}).items():
        in_page, pages = rows
        if not pages or not in_page:
            continue
        done = 0 if in_page == each else total - in_page
        content = PAGE - in_page * length
        block = np.zeros((pages, PAGE), np.uint8)
        block[:, :_LEAF_HEADER] = np.frombuffer(struct.pack(">BHHHB", _LEAF, 0, in_page, content % PAGE, 0), np.uint8)
        pointers = (content + length * np.arange(in_page)).astype(">u2")
        block[:, _LEAF_HEADER : _LEAF_HEADER + 2 * in_page] = pointers.view(np.uint8)
        block[:, content:] = cells[done * length : (done + pages * in_page) * length].reshape(pages, -1)
        yield block.data, done + in_page * np.arange(1, pages + 1)


_FANOUT = (PAGE - _INTERIOR_HEADER) // (2 + 4 + 9)


def _interior(children: list[tuple[int, int]]) -> bytes:
    """A page that leads to `children`: page number and last row number of each."""
    cells = [struct.pack(">I", page) + _varint(last) for page, last in children[:-1]]
    content = b"".join(cells)
    start = PAGE - len(content)
    offsets = accumulate(map(len, cells[:-1]), initial=start) if cells else ()
    header = struct.pack(">BHHHBI", _INTERIOR, 0, len(cells), start % PAGE, 0, children[-1][0])
    pointers = struct.pack(f">{len(cells)}H", *offsets)
    return (header + pointers).ljust(start, b"\0") + content


def _varint(value: int) -> bytes:
    """Seven bits a byte, most significant first, the top bit set on all but the last."""
    groups = [value & 0x7F]
    while value := value >> 7:
        groups.append(value & 0x7F | 0x80)
    return bytes(reversed(groups))
