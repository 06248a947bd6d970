# SPDX-License-Identifier: Apache-2.0
"""Columns straight from the bytes of many similar JSON objects, without a parser per object.

Programs write events from a few templates. Two events of one template differ only in their values; the bytes between
the values are the same. So one event of a template is parsed, the others are compared with it byte by byte (eight at
a time), and their values are taken from where the quotes stand. Objects with backslashes, and templates that few events
share, are left to the caller. A value that a sample of the events shares counts as part of the template; a list is one
value, its JSON.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl
import pyarrow as pa

from stepscope.formats.event_borders import Events

_Ints = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint64]

_QUOTE, _BACKSLASH, _OPENING, _CLOSING = b'"\\[]'
_PADDING = b"\n" * 16  # so that a view can be read at any place
_ROUNDS = 64  # templates looked for, and remembered, per number of quotes
_SAMPLE = 32
_FEW_WORDS = 6  # up to so many are compared one by one, more of them all at once
_NOWHERE: _Ints = np.zeros(0, np.int64)
_LIST = b"list"  # no word of JSON
_SCALAR = re.compile(rb"[-+.0-9A-Za-z]+")


class TextColumns:
    """Values of the lines of one page, null where an object has no such key."""

    def __init__(self, page: _Page, columns: Mapping[str, _Column], odd: _Ints):
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
        """The values, converted before they are put to their lines: absent ones cost nothing, shared ones are converted once."""
        return self._columns[key].cast(convert).alias(key)


class Templates:
    """The templates of one file so far: a file repeats them from its first page to its last.

    Several threads may share one; at worst a template is found twice.
    """

    def __init__(self) -> None:
        self._by_quotes: dict[int, list[_Template]] = {}

    def likely(self, quotes: int) -> list[_Template]:
        """Templates of objects with this number of quotes, those first that fitted last."""
        return self._by_quotes.get(quotes, [])

    def remember(self, quotes: int, used: list[_Template]) -> None:
        others = [template for template in self.likely(quotes) if template not in used]
        self._by_quotes[quotes] = [*used, *others][:_ROUNDS]


def text_columns(events: Events, wanted: Sequence[str], templates: Templates) -> TextColumns | None:
    """Read JSON objects; None when their texts are no UTF-8.

    Args:
        events: the objects.
        wanted: keys; `args.x` is the key x of the object under args. Each that occurs becomes a column of text.
        templates: those of earlier events of the same file; learns those of these.
    """
    page = _Page(events)
    columns = _Columns(page, frozenset(wanted))
    odd = [page.unfit]
    for quotes, rows in page.by_quotes():
        used: list[_Template] = []
        for template in templates.likely(quotes):
            rows = _taken(template.narrowed(page, rows), rows, columns, used)
        for _ in range(_ROUNDS):
            if not len(rows):
                break
            found = _Template.of(events.line(rows[0]))
            if found is None:
                odd.append(rows[:1])
                rows = rows[1:]
            else:
                rows = _taken(found.narrowed(page, rows), rows, columns, used)
        odd.append(rows)
        templates.remember(quotes, used)
    return TextColumns(page, columns.by_key, np.sort(np.concatenate(odd))) if columns.are_text() else None


def _taken(template: _Template, rows: _Ints, columns: _Columns, used: list[_Template]) -> _Ints:
    """Put the rows of a template into the columns; return the others."""
    found, places = template.find(columns.page, rows)
    if not len(found):
        return rows
    used.append(template)
    columns.put(template, rows[found], places)
    return rows[~_at(found, len(rows))] if len(found) < len(rows) else rows[:0]


def _at(places: _Ints, height: int) -> npt.NDArray[np.bool_]:
    flags = np.zeros(height, np.bool_)
    flags[places] = True
    return flags


class _Page:
    """The bytes, and where quotes are in them."""

    def __init__(self, events: Events):
        self.events, self.starts, self.ends = events, events.starts, events.ends
        self.data = events.text + _PADDING
        self.ascii = events.text.isascii()
        self.codes = np.frombuffer(self.data, np.uint8)
        self.height = len(self.starts)
        self.quotes = np.flatnonzero(self.codes == _QUOTE)
        self.first_quote = np.searchsorted(self.quotes, self.starts)
        strange = np.flatnonzero(self.codes == _BACKSLASH) if b"\\" in self.data else _NOWHERE
        self.unfit = np.unique(np.searchsorted(self.ends, strange))

    def by_quotes(self) -> Iterable[tuple[int, _Ints]]:
        """The fit rows, those with the same number of quotes together, and that number."""
        fit = np.delete(np.arange(self.height), self.unfit)
        counts = np.diff(self.first_quote, append=len(self.quotes))[fit]
        order = np.argsort(counts, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(counts[order])) + 1):
            yield int(counts[rows[0]]) if len(rows) else 0, fit[rows]

    def bytes_at(self, places: _Ints, size: int) -> _Words:
        """The bytes at each place, eight in one number; one gather of whole stretches is far cheaper than many of words.

        Places ascend. Beyond the end there is the padding, whose line ends stand in no text.
        """
        every = np.ndarray((len(self.data) - size + 1,), f"V{size}", self.data, strides=(1,))
        if len(places) and places[-1] >= len(every):
            places = np.minimum(places, len(every) - 1)
        words: _Words = every[places].view("<u8").reshape(len(places), size // 8)
        return words

    def equal(self, at: _Ints, text: bytes) -> npt.NDArray[np.bool_]:
        """Where these bytes stand at the given places."""
        sought, mask = _words(text)
        words = self.bytes_at(at, 8 * len(sought))
        same: npt.NDArray[np.bool_] = (words[:, -1] & mask) == sought[-1]
        if len(sought) > _FEW_WORDS:
            rest = words[:, :-1] == sought[:-1]
            return same if rest.all() else same & rest.all(axis=1)
        for column, word in enumerate(sought[:-1]):
            same &= words[:, column] == word
        return same

    def scalar(self, begin: _Ints, end: _Ints) -> npt.NDArray[np.bool_]:
        """Whether bare values are numbers, true, false or null; anything else at an end (bracket, comma, the N of NaN) means
        another shape of object."""
        known: npt.NDArray[np.bool_] = _FIRST_OF_SCALAR[self.codes[begin]] & _LAST_OF_SCALAR[self.codes[end - 1]]
        return (end > begin) & known

    def in_brackets(self, begin: _Ints, end: _Ints) -> npt.NDArray[np.bool_]:
        inside: npt.NDArray[np.bool_] = (self.codes[begin] == _OPENING) & (self.codes[end - 1] == _CLOSING)
        return inside & (end > begin)


@lru_cache(maxsize=1024)
def _words(text: bytes) -> tuple[_Words, np.uint64]:
    """Text as words, zeros behind it, and which bits of the last word it fills."""
    words = np.frombuffer(text + b"\0" * (-len(text) % 8), "<u8")
    return words, np.uint64((1 << 8 * ((len(text) - 1) % 8 + 1)) - 1)


@dataclass(frozen=True)
class _Value:
    """A value between two fixed stretches of bytes: text between quotes, a bare number or word, or a list."""

    key: str
    quoted: bool
    is_list: bool = False
    quotes: int = 0  # inside a list


@dataclass(frozen=True)
class _Template:
    """An object as fixed stretches of bytes with one value between each two.

    A stretch is found by its first quote; the first one by the start of the line, a last one without quote by its end.
    """

    fixed: tuple[bytes, ...]
    values: tuple[_Value, ...]
    shared: tuple[tuple[_Value, bytes], ...] = ()  # values that are part of a fixed stretch

    @staticmethod
    def of(line: bytes) -> _Template | None:
        try:
            if not isinstance(orjson.loads(line), dict):
                return None
        except orjson.JSONDecodeError:
            return None
        return _split(line)

    def narrowed(self, page: _Page, rows: _Ints) -> _Template:
        """The template with the values that all events of a sample of the rows share made part of it; itself when few fit."""
        if self.shared or len(rows) < _SAMPLE // 2:
            return self
        found, places = self.find(page, rows[:: max(1, len(rows) // _SAMPLE)])
        if len(found) < _SAMPLE // 2:
            return self
        fixed, values, shared = [self.fixed[0]], [], []
        for number, (value, begin, end) in enumerate(self.spans(places), start=1):
            text = page.data[begin[0] : end[0]]
            if (end - begin == len(text)).all() and (not text or page.equal(begin, text).all()):
                fixed[-1] += text + self.fixed[number]
                shared.append((value, text))
            else:
                fixed.append(self.fixed[number])
                values.append(value)
        return _Template(tuple(fixed), tuple(values), tuple(shared))

    @cached_property
    def stretches(self) -> list[tuple[bytes, int, int]]:
        """Each fixed stretch with the place of its first quote in itself (-1: none) and in the object."""
        found, quotes = [], 0
        for text, value in zip(self.fixed, [*self.values, None], strict=True):
            found.append((text, text.find(b'"'), quotes))
            quotes += text.count(b'"') + (value.quotes if value else 0)
        return found

    def find(self, page: _Page, rows: _Ints) -> tuple[_Ints, list[_Ints]]:
        """Which of the rows are of this template, and where each fixed stretch begins in them.

        All rows have as many quotes as the template. A stretch that is found at its first quote therefore lies inside of the
        row and behind the one before it; only the end of the last one must be looked at.
        """
        found = np.arange(len(rows))
        places: list[_Ints] = []
        first, ends = page.first_quote[rows], page.ends[rows]
        for number, (text, lead, quote) in enumerate(self.stretches):
            if number == 0:
                at = page.starts[rows]
            elif lead >= 0:
                at = page.quotes[first + quote]
                at -= lead
            else:
                at = ends - len(text)
            fits = page.equal(at, text)
            if number == len(self.values):
                fits &= at + len(text) == ends
            if number and not self.values[number - 1].quoted:
                is_value = page.in_brackets if self.values[number - 1].is_list else page.scalar
                fits &= is_value(places[-1] + len(self.fixed[number - 1]), at)
            places.append(at)
            if not fits.all():
                found, first, ends = found[fits], first[fits], ends[fits]
                places = [place[fits] for place in places]
                if not len(found):
                    break
        return found, places

    def spans(self, places: list[_Ints]) -> Iterable[tuple[_Value, _Ints, _Ints]]:
        for number, value in enumerate(self.values):
            yield value, places[number] + len(self.fixed[number]), places[number + 1]


_FIRST_OF_SCALAR, _LAST_OF_SCALAR = np.zeros((2, 256), np.bool_)
_FIRST_OF_SCALAR[list(b"-0123456789tfn")] = True
_LAST_OF_SCALAR[list(b"0123456789el")] = True


def _split(line: bytes) -> _Template | None:
    """Cut a valid object without backslashes into fixed stretches and values."""
    line, lists = _without_lists(line)
    fixed: list[bytes] = []
    values: list[_Value] = []
    path: list[str] = []
    pending = b""
    parts = line.split(b'"')  # gaps at even places, texts at odd ones
    key = ""
    for number, part in enumerate(parts):
        if number % 2:
            if parts[number + 1].lstrip().startswith(b":"):
                key = part.decode(errors="replace")
                pending += b'"' + part + b'"'
            else:
                fixed.append(pending + b'"')
                values.append(_Value(".".join([*path, key]), quoted=True))
                pending = b'"'
            continue
        scalar = _SCALAR.search(part)
        if scalar:
            fixed.append(pending + part[: scalar.start()])
            is_list = scalar.group() == _LIST
            quotes = lists.pop(0).count(b'"') if is_list else 0
            values.append(_Value(".".join([*path, key]), quoted=False, is_list=is_list, quotes=quotes))
            pending = part[scalar.end() :]
        else:
            pending += part
        for code in part:
            if code == ord("{") and number:
                if path:
                    return None  # an object inside args may be wanted as text
                path.append(key)
            elif code == ord("}") and path:
                path.pop()
    return _Template((*fixed, pending), tuple(values))


def _without_lists(line: bytes) -> tuple[bytes, list[bytes]]:
    """The object with a word in the place of each list, and the lists."""
    lists: list[bytes] = []
    kept = b""
    begin, depth, inside_text = 0, 0, False
    for place, code in enumerate(line):
        if code == _QUOTE:
            inside_text = not inside_text
        elif not inside_text and code == _OPENING:
            if depth == 0:
                kept += line[begin:place] + _LIST
                begin = place
            depth += 1
        elif not inside_text and code == _CLOSING:
            depth -= 1
            if depth == 0:
                lists.append(line[begin : place + 1])
                begin = place + 1
    return kept + line[begin:], lists


class _Columns:
    """The columns wanted of one page."""

    def __init__(self, page: _Page, wanted: frozenset[str]):
        self.page, self.wanted = page, wanted
        self.by_key: dict[str, _Column] = {}

    def put(self, template: _Template, rows: _Ints, places: list[_Ints]) -> None:
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
# length, four bytes of text, and eight that tell where the whole stands. By length, up to "longer":
_INLINE = 12
_BEHIND_LENGTH, _BYTE = np.uint64(32), np.uint64(0xFF)
_HEAD = np.array([((1 << 8 * min(size, 4)) - 1) << 32 for size in range(_INLINE + 2)], np.uint64)
_TAIL = np.array([(1 << 8 * max(size - 4, 0)) - 1 for size in range(_INLINE + 1)] + [0], np.uint64)


@dataclass(frozen=True)
class _Piece:
    """Values of some rows, one for each or one for all."""

    rows: _Ints
    views: npt.NDArray[np.void]
    present: npt.NDArray[np.bool_]


class _Column:
    """Views of the page, those of one template after those of another."""

    def __init__(self, page: _Page):
        self.page = page
        self.pieces: list[_Piece] = []
        self.needs_page = False  # a column of short texts must not keep the page in memory

    def put(self, rows: _Ints, begin: _Ints, end: _Ints, quoted: bool) -> None:
        size = (end - begin).view(np.uint64)
        # Four bytes before the text make room for its length; no value stands closer to the start of the page.
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

    def put_same(self, rows: _Ints, text: bytes) -> None:
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
        known, numbers = _flags(arrow.is_valid()), arrow.fill_null(0).to_numpy(zero_copy_only=False)
        values, present = np.zeros(self.page.height, numbers.dtype), np.zeros(self.page.height, np.bool_)
        begin = 0
        for piece in self.pieces:
            end = begin + len(piece.views)
            values[piece.rows], present[piece.rows] = numbers[begin:end], known[begin:end]
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
