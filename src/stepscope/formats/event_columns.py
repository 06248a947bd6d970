# SPDX-License-Identifier: Apache-2.0
"""Columns straight from the bytes of many similar JSON objects, without a parser per object.

Programs write events from a few templates. Two events of one template differ only in their values; the bytes between
the values are the same. So one event of a template is parsed, the others are compared with it byte by byte (eight at
a time), and their values are taken from where the quotes stand. Objects with backslashes or lists, and templates that
few events share, are left to the caller.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl
import pyarrow as pa

_Ints = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint64]

_NEWLINE, _QUOTE, _BACKSLASH, _BRACKET = b'\n"\\['
_PADDING = b"\n" * 16  # so that eight bytes can be read at any place
_ROUNDS = 64  # templates tried per number of quotes
_SCALAR = re.compile(rb"[-+.0-9A-Za-z]+")
_INLINE = 12  # longest text inside an Arrow view
_MASKS = np.array([(1 << (8 * size)) - 1 for size in range(8)] + [(1 << 64) - 1], np.uint64)


@dataclass(frozen=True)
class TextColumns:
    """Values as text, null where an object has no such key; `odd` are the numbers of the lines that were not read."""

    frame: pl.DataFrame
    height: int
    odd: _Ints


def text_columns(lines: bytes, wanted: Sequence[str]) -> TextColumns | None:
    """Read one JSON object per line; None when the bytes are no UTF-8.

    Args:
        lines: objects, one per line.
        wanted: keys; `args.x` is the key x of the object under args. Each that occurs becomes a column of text.
    """
    page = _Page(lines)
    columns: dict[str, _Views] = {}
    odd = [page.unfit]
    for rows in page.by_quotes():
        for _ in range(_ROUNDS):
            if not len(rows):
                break
            template = _Template.of(page.line(rows[0]))
            if template is None:
                odd.append(rows[:1])
                rows = rows[1:]
                continue
            found, places = template.find(page, rows)
            for value, begin, end in template.spans(places):
                if value.key in wanted:
                    columns.setdefault(value.key, _Views(page)).put(rows[found], begin, end, value.quoted)
            rows = np.delete(rows, found)
        odd.append(rows)
    try:
        frame = pl.DataFrame([column.series(key) for key, column in columns.items()])
    except pl.exceptions.PolarsError:
        return None
    return TextColumns(frame, page.height, np.sort(np.concatenate(odd)))


class _Page:
    """The bytes, and where lines and quotes begin."""

    def __init__(self, lines: bytes):
        self.data = lines + _PADDING
        self.ascii = lines.isascii()
        self.codes = np.frombuffer(self.data, np.uint8)
        codes = self.codes[: len(lines)]
        breaks = np.flatnonzero(codes == _NEWLINE)
        self.starts = np.concatenate([np.zeros(1, np.int64), breaks + 1])
        self.ends = np.concatenate([breaks, np.array([len(lines)])])
        self.height = len(self.starts)
        self.quotes = np.flatnonzero(codes == _QUOTE)
        self.first_quote = np.searchsorted(self.quotes, self.starts)
        strange = np.concatenate([np.flatnonzero(codes == code) for code in (_BACKSLASH, _BRACKET)])
        self.unfit = np.unique(np.searchsorted(self.ends, strange))
        # Eight (four) bytes as one number, at every place.
        self.words: _Words = np.ndarray((len(lines) + 8,), "<u8", self.data, strides=(1,))
        self.half_words: npt.NDArray[np.uint32] = np.ndarray((len(lines) + 12,), "<u4", self.data, strides=(1,))

    def line(self, row: int) -> bytes:
        return self.data[self.starts[row] : self.ends[row]]

    def by_quotes(self) -> Iterable[_Ints]:
        """The fit rows, those with the same number of quotes together."""
        fit = np.delete(np.arange(self.height), self.unfit)
        counts = np.diff(self.first_quote, append=len(self.quotes))[fit]
        order = np.argsort(counts, kind="stable")
        yield from np.split(fit[order], np.flatnonzero(np.diff(counts[order])) + 1)

    def equal(self, at: _Ints, text: bytes) -> npt.NDArray[np.bool_]:
        """Where these bytes stand at the given places."""
        same = np.ones(len(at), np.bool_)
        for begin in range(0, len(text), 8):
            piece = text[begin : begin + 8]
            word = self.words[at + begin]
            if len(piece) < 8:
                word &= _MASKS[len(piece)]
            same &= word == np.uint64(int.from_bytes(piece, "little"))
        return same

    def scalar(self, begin: _Ints, end: _Ints) -> npt.NDArray[np.bool_]:
        """Whether bare values are numbers or words; a bracket, comma or blank at an end means another shape of object."""
        return (end > begin) & _IN_SCALAR[self.codes[begin]] & _IN_SCALAR[self.codes[end - 1]]


@dataclass(frozen=True)
class _Value:
    """A value between two fixed stretches of bytes: text between quotes, or a bare number or word."""

    key: str
    quoted: bool


@dataclass(frozen=True)
class _Template:
    """An object as fixed stretches of bytes with one value between each two.

    A stretch is found by its first quote; the first one by the start of the line, a last one without quote by its end.
    """

    fixed: tuple[bytes, ...]
    values: tuple[_Value, ...]

    @staticmethod
    def of(line: bytes) -> _Template | None:
        try:
            if not isinstance(orjson.loads(line), dict):
                return None
        except orjson.JSONDecodeError:
            return None
        return _split(line)

    def find(self, page: _Page, rows: _Ints) -> tuple[_Ints, list[_Ints]]:
        """Which of the rows are of this template, and where each fixed stretch begins in them."""
        found = np.arange(len(rows))
        places: list[_Ints] = []
        first, begins, ends = page.first_quote[rows], page.starts[rows], page.ends[rows]
        quote = 0
        for number, text in enumerate(self.fixed):
            lead = text.find(b'"')
            if number == 0:
                at = begins.copy()
            elif lead >= 0:
                at = page.quotes[first + quote] - lead
            else:
                at = ends - len(text)
            reach = at + len(text)
            fits = (at >= (places[-1] if places else 0)) & (reach <= ends if number < len(self.values) else reach == ends)
            fits[fits] = page.equal(at[fits], text)
            if number and not self.values[number - 1].quoted:
                fits &= page.scalar(places[-1] + len(self.fixed[number - 1]), at)
            places.append(at)
            if not fits.all():
                found, first, begins, ends = found[fits], first[fits], begins[fits], ends[fits]
                places = [place[fits] for place in places]
            quote += text.count(b'"')
        return found, places

    def spans(self, places: list[_Ints]) -> Iterable[tuple[_Value, _Ints, _Ints]]:
        for number, value in enumerate(self.values):
            yield value, places[number] + len(self.fixed[number]), places[number + 1]


_IN_SCALAR = np.zeros(256, np.bool_)
_IN_SCALAR[list(b"-+.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")] = True


def _split(line: bytes) -> _Template | None:
    """Cut a valid object without backslashes or lists into fixed stretches and values."""
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
            values.append(_Value(".".join([*path, key]), quoted=False))
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


_VIEW = np.dtype([("size", "<u4"), ("head", "<u4"), ("tail", "<u8")])  # an Arrow string view


class _Views:
    """One column: a view of the page per line."""

    def __init__(self, page: _Page):
        self.page = page
        self.views = np.zeros(page.height, _VIEW)
        self.present = np.zeros(page.height, np.bool_)

    def put(self, rows: _Ints, begin: _Ints, end: _Ints, quoted: bool) -> None:
        size = end - begin
        longest = int(size.max(initial=0))
        view = np.zeros(len(rows), _VIEW)
        view["size"] = size
        # Bytes behind the end of a short text must be zero.
        view["head"] = self.page.half_words[begin] & _MASKS[np.minimum(size, 4)].astype(np.uint32)
        if longest > 4:
            view["tail"] = self.page.words[begin + 4] & _MASKS[np.minimum(np.maximum(size - 4, 0), 8)]
        if longest > _INLINE:
            view["tail"] = np.where(size > _INLINE, begin.astype(np.uint64) << np.uint64(32), view["tail"])
        self.views[rows] = view
        self.present[rows] = True if quoted else self.page.codes[begin] != ord("n")  # null

    def series(self, name: str) -> pl.Series:
        buffers = [_bits(self.present), pa.py_buffer(self.views), pa.py_buffer(self.page.data)]
        kind = pa.string_view() if self.page.ascii else pa.binary_view()
        text = pl.Series(name, pa.Array.from_buffers(kind, len(self.views), buffers))
        return text if self.page.ascii else text.cast(pl.String())


def _bits(flags: npt.NDArray[np.bool_]) -> pa.Buffer | None:
    return None if flags.all() else pa.py_buffer(np.packbits(flags, bitorder="little"))
