# SPDX-License-Identifier: Apache-2.0
"""Columns straight from the bytes of many similar JSON objects, without a parser per object.

Programs write events from a few templates. Two events of one template differ only in their values; the bytes between
the values are the same. So one event of a template is parsed, the others are compared with it byte by byte (eight at
a time), and their values are taken from between the quotes. Objects with backslashes, and templates that few events
share, are left to the caller. A value that a sample of the events shares counts as part of the template; a list is one
value, its JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from stepscope.formats.chrome.borders import Events
from stepscope.formats.chrome.page import Ints, Page
from stepscope.formats.chrome.templates import ROUNDS, Template, Templates


class TextColumns:
    """Values of the lines of one page, null where an object has no such key."""

    def __init__(self, page: Page, columns: Mapping[str, _Column], odd: Ints):
        self.height = page.height
        self.odd = odd  # numbers of the lines that were not read
        self.odd_lines = b"\n".join([page.events.line(row) for row in odd])
        self._columns = columns

    def names(self) -> list[str]:
        return list(self._columns)

    def count(self, key: str) -> int:
        return self._columns[key].count()

    def text(self, key: str) -> pl.Series:
        return self._columns[key].text().alias(key)

    def cast(self, key: str, convert: Callable[[pl.Series], pl.Series]) -> pl.Series:
        """The values, converted before they are put into their lines: absent ones cost nothing, shared ones are converted once."""
        return self._columns[key].cast(convert).alias(key)


def text_columns(events: Events, wanted: Sequence[str], templates: Templates) -> TextColumns | None:
    """Read JSON objects; None when their texts are not UTF-8.

    Args:
        events: the objects.
        wanted: keys; `args.x` is the key x of the object under args. Each that occurs becomes a column of text.
        templates: those of earlier events of the same file; learns those of these.
    """
    page = Page(events)
    columns = _Columns(page, frozenset(wanted))
    odd = [page.unfit]
    for quotes, rows in page.by_quotes():
        used: list[Template] = []
        for template in templates.likely(quotes):
            if not len(rows):
                break
            rows = _put_matching(template.narrow(page, rows), rows, columns, used)
        for _ in range(ROUNDS):
            if not len(rows):
                break
            found = Template.of(events.line(rows[0]))
            if found is None:
                odd.append(rows[:1])
                rows = rows[1:]
            else:
                rows = _put_matching(found.narrow(page, rows), rows, columns, used)
        odd.append(rows)
        templates.remember(quotes, used)
    return TextColumns(page, columns.by_key, np.sort(np.concatenate(odd))) if columns.are_text() else None


def _put_matching(template: Template, rows: Ints, columns: _Columns, used: list[Template]) -> Ints:
    """Put the rows of a template into the columns; return the others."""
    found, places = template.find(columns.page, rows)
    if not len(found):
        return rows
    used.append(template)
    columns.put(template, rows[found], places)
    return rows[~_at(found, len(rows))] if len(found) < len(rows) else rows[:0]


def _at(places: Ints, height: int) -> npt.NDArray[np.bool_]:
    flags = np.zeros(height, np.bool_)
    flags[places] = True
    return flags


class _Columns:
    """The columns wanted of one page."""

    def __init__(self, page: Page, wanted: frozenset[str]):
        self.page, self.wanted = page, wanted
        self.by_key: dict[str, _Column] = {}

    def put(self, template: Template, rows: Ints, places: list[Ints]) -> None:
        for value, begin, end in template.spans(places):
            if value.key in self.wanted:
                self._column(value.key).put(rows, begin, end, value.quoted)
        for value, text in template.shared:
            if value.key in self.wanted and (value.quoted or text != b"null"):
                self._column(value.key).put_same(rows, text)

    def _column(self, key: str) -> _Column:
        if key not in self.by_key:
            self.by_key[key] = _Column(self.page)
        return self.by_key[key]

    def are_text(self) -> bool:
        """Whether all values are UTF-8."""
        try:
            return self.page.ascii or all(column.values() is not None for column in self.by_key.values())
        except pl.exceptions.PolarsError:
            return False


# An Arrow string view is four bytes of length and twelve of text, zeros behind a shorter one; of a longer text it is the
# length, four bytes of text, and eight that say where the whole text is. By length, up to "longer":
_INLINE = 12
_BEHIND_LENGTH, _BYTE = np.uint64(32), np.uint64(0xFF)
_HEAD = np.array([((1 << 8 * min(size, 4)) - 1) << 32 for size in range(_INLINE + 2)], np.uint64)
_TAIL = np.array([(1 << 8 * max(size - 4, 0)) - 1 for size in range(_INLINE + 1)] + [0], np.uint64)


@dataclass(frozen=True)
class _Piece:
    """Values of some rows, one for each or one for all."""

    rows: Ints
    views: npt.NDArray[np.void]
    present: npt.NDArray[np.bool_]


class _Column:
    """Views of the page, those of one template after those of another."""

    def __init__(self, page: Page):
        self.page = page
        self.pieces: list[_Piece] = []
        self.needs_page = False  # a column of short texts must not keep the page in memory

    def put(self, rows: Ints, begin: Ints, end: Ints, quoted: bool) -> None:
        size = (end - begin).view(np.uint64)
        # Four bytes before the text make room for its length; no value is closer to the start of the page.
        view = self.page.bytes_at(begin - 4, 16)
        head, tail = view[:, 0], view[:, 1]
        present = np.ones(len(rows), np.bool_) if quoted else (head >> _BEHIND_LENGTH) & _BYTE != ord("n")  # null
        kept = np.minimum(size, _INLINE + 1)
        head &= _HEAD[kept]
        head |= size
        tail &= _TAIL[kept]
        long = kept > _INLINE
        if long.any():
            self.needs_page = True
            np.copyto(tail, begin.view(np.uint64) << np.uint64(32), where=long)
        self.pieces.append(_Piece(rows, view.view("V16").reshape(len(rows)), present))

    def put_same(self, rows: Ints, text: bytes) -> None:
        self.needs_page |= len(text) > _INLINE
        begin = self.page.data.index(text, self.page.starts[rows[0]]) if len(text) > _INLINE else 0
        tail = (text[4:].ljust(8, b"\0")) if len(text) <= _INLINE else b"\0" * 4 + begin.to_bytes(4, "little")
        view = np.frombuffer(len(text).to_bytes(4, "little") + text[:4].ljust(4, b"\0") + tail, "V16")
        self.pieces.append(_Piece(rows, view, np.ones(1, np.bool_)))

    def count(self) -> int:
        return sum(len(piece.rows) * int(piece.present.sum()) // len(piece.views) for piece in self.pieces)

    def values(self) -> pl.Series:
        """The values of all pieces, one after the other."""
        return self._series(
            np.concatenate([piece.views for piece in self.pieces]), np.concatenate([piece.present for piece in self.pieces])
        )

    def text(self) -> pl.Series:
        views, present = np.zeros(self.page.height, "V16"), np.zeros(self.page.height, np.bool_)
        for piece in self.pieces:
            views[piece.rows], present[piece.rows] = piece.views, piece.present
        return self._series(views, present)

    def cast(self, convert: Callable[[pl.Series], pl.Series]) -> pl.Series:
        converted = convert(self.values())
        if not converted.dtype.is_numeric():
            return convert(self.text())
        # By Arrow, since polars makes a query of each of these steps.
        arrow = converted.to_arrow()
        valid, numbers = _flags(arrow.is_valid()), arrow.fill_null(0).to_numpy(zero_copy_only=False)
        values, present = np.zeros(self.page.height, numbers.dtype), np.zeros(self.page.height, np.bool_)
        begin = 0
        for piece in self.pieces:
            end = begin + len(piece.views)
            values[piece.rows], present[piece.rows] = numbers[begin:end], valid[begin:end]
            begin = end
        kind = pa.from_numpy_dtype(values.dtype)
        return pl.Series(pa.Array.from_buffers(kind, len(values), [_bits(present), pa.py_buffer(values)]))

    def _series(self, views: npt.NDArray[np.void], present: npt.NDArray[np.bool_]) -> pl.Series:
        buffers = [_bits(present), pa.py_buffer(views)] + [pa.py_buffer(self.page.data)] * self.needs_page
        kind = pa.string_view() if self.page.ascii else pa.binary_view()
        text = pl.Series(pa.Array.from_buffers(kind, len(views), buffers))
        return text if self.page.ascii else text.cast(pl.String())


def _flags(arrow: pa.Array) -> npt.NDArray[np.bool_]:
    flags: npt.NDArray[np.bool_] = arrow.to_numpy(zero_copy_only=False)
    return flags


def _bits(flags: npt.NDArray[np.bool_]) -> pa.Buffer | None:
    return None if flags.all() else pa.py_buffer(np.packbits(flags, bitorder="little"))
