# SPDX-License-Identifier: Apache-2.0
"""Rows as text by the C++ kernel: columns stay where they are, and every value is formatted where its text belongs.

Writes the same bytes as `pieces`, which does it where there is no kernel. Numbers that the kernel has no exact form for are
formatted by polars, column by column.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.render.number_forms import (
    PLAIN,
    SHORTEST,
    SHORTEST_PLAIN_ZERO,
    THOUSANDTHS,
    THOUSANDTHS_TAB,
    WHOLE,
    Form,
)
from stepscope.render.number_pieces import MOST_INT64, MOST_THOUSANDTHS, float_texts, number_texts
from stepscope.render.parts import Fraction, Label, Lines, Numbers, Part, Text, Whole

# The kinds and the layout of native/codec/rows.cpp.
_LITERAL, _WORD = 0, 1
_FORMS = {WHOLE: 2, THOUSANDTHS: 3, THOUSANDTHS_TAB: 4, PLAIN: 5, SHORTEST: 6, SHORTEST_PLAIN_ZERO: 7}
_FLOAT, _FLOAT_PLAIN_ZERO, _LABEL, _TEXT = 8, 9, 10, 11
_WIDTHS = {pl.Int8: 1, pl.Int16: 2, pl.Int32: 4, pl.Int64: 8, pl.UInt8: -1, pl.UInt16: -2, pl.UInt32: -4, pl.UInt64: -8}
_NUMBER_BYTES = 48  # no number takes more
_BUFFER_BYTES = 4 << 20
_MOST_BUFFER_BYTES = 64 << 20


class _Part(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_int32),
        ("width", ctypes.c_int32),
        ("values", ctypes.c_void_p),
        ("valid", ctypes.c_void_p),
        ("valid_offset", ctypes.c_int64),
        ("text", ctypes.c_void_p),
        ("text_length", ctypes.c_int64),
        ("begins", ctypes.c_void_p),
        ("lengths", ctypes.c_void_p),
        ("missing", ctypes.c_void_p),
        ("missing_length", ctypes.c_int64),
    )


class _TextColumn:
    """The codes of a text column, which of them occur, and their texts."""

    def __init__(self, codes: pl.Series):
        self.codes = codes
        self.dtype: pl.DataType = codes.dtype
        self.word: _Part | None = None  # None: all rows are null
        self.used: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self.texts: list[str] = []


class CodecRows:
    """Rows whose text is available slice by slice."""

    def __init__(self, kind: Lines, functions: ctypes.CDLL):
        self.height = kind.frame.height
        self._frame, self._functions = kind.frame, functions
        self._kept: list[Any] = []  # what the parts point to
        self._longest = 0  # bytes of a row
        self._columns = self._text_columns({part.column for part in kind.parts if isinstance(part, Text)})
        parts: list[_Part] = []
        prepared: dict[int, tuple[_Part, int] | bytes] = {}
        literal = b""
        for part in kind.parts:
            # The same part may occur in several places.
            found = prepared.get(id(part))
            if found is None:
                found = prepared[id(part)] = self._prepare(part)
            if isinstance(found, bytes):
                literal += found
                continue
            if literal:
                parts.append(self._literal(literal))
                literal = b""
            parts.append(found[0])
            self._longest += found[1]
        if literal:
            parts.append(self._literal(literal))
        self._parts, self._count = (_Part * len(parts))(*parts), len(parts)

    def text(self, start: int, stop: int) -> memoryview:
        """The text of these rows, end to end."""
        stop = min(stop, self.height)
        texts = []
        while start < stop:
            wanted = self._longest * min(stop - start, max(1, _MOST_BUFFER_BYTES // max(1, self._longest)))
            buffer = _buffer(wanted)
            reached = ctypes.c_int64()
            size = self._functions.render(
                self._parts,
                ctypes.c_int32(self._count),
                ctypes.c_int64(start),
                ctypes.c_int64(stop),
                ctypes.c_void_p(buffer.ctypes.data),
                ctypes.c_int64(len(buffer)),
                ctypes.c_int64(self._longest),
                ctypes.byref(reached),
            )
            texts.append(buffer.data[:size])
            start = reached.value
        return texts[0] if len(texts) == 1 else memoryview(b"".join(texts))

    def _prepare(self, part: Part) -> tuple[_Part, int] | bytes:
        """The part for the kernel and the most bytes it takes, or the text that all rows share."""
        if isinstance(part, str):
            return part.encode()
        if isinstance(part, Text):
            return self._words(self._columns[part.column], part.shape, part.missing)
        if isinstance(part, Whole):
            return self._whole(self._frame[part.column], WHOLE, part.missing)
        if isinstance(part, Numbers):
            return self._whole(part.values, part.form, part.missing)
        if isinstance(part, Fraction):
            if part.values.dtype.is_integer():
                return self._whole(part.values, WHOLE, part.missing)
            return self._fraction(part)
        if isinstance(part, Label):
            return self._label(part)
        texts = self._frame.select(part.cast(pl.String).alias("text")).to_series()
        return (texts[0] or "").encode() if len(texts) == 1 else self._texts(texts)  # a literal has one row

    def _literal(self, text: bytes) -> _Part:
        self._longest += len(text)
        return _Part(kind=_LITERAL, text=self._address(text), text_length=len(text))

    def _label(self, part: Label) -> tuple[_Part, int] | bytes:
        column = self._frame[part.column]
        text = part.text.encode()
        nulls = column.null_count()
        if nulls == len(column):
            return b""
        if not nulls:
            return text
        label = _Part(kind=_LABEL, text=self._address(text), text_length=len(text))
        self._put_validity(label, self._array(column))
        return label, len(text)

    def _text_columns(self, names: set[str]) -> dict[str, _TextColumn]:
        """Text columns with the codes that occur in them and their texts: two queries for all columns."""
        columns = [self._frame[name] for name in sorted(names)]
        columns = [column.cast(pl.Categorical()) if column.dtype == pl.String else column for column in columns]
        found = [_TextColumn(codes) for codes in pl.DataFrame(columns).select(pl.all().to_physical())] if columns else []
        kinds: dict[str, list[_TextColumn]] = {}
        for column, text in zip(columns, found, strict=True):
            self._mark(text)
            kinds.setdefault(repr(column.dtype), []).append(text)
            text.dtype = column.dtype
        for texts in kinds.values():
            used = pl.Series(np.concatenate([text.used for text in texts]), dtype=texts[0].codes.dtype)
            known = iter(used.cat.to(texts[0].dtype).cast(pl.String).to_list()) if len(used) else iter(())
            for text in texts:
                text.texts = list(islice(known, text.used.size))
        return {column.name: text for column, text in zip(columns, found, strict=True)}

    def _mark(self, text: _TextColumn) -> None:
        codes = text.codes
        most = codes.max()
        if not isinstance(most, int):
            return
        word = _Part(kind=_WORD, width=_WIDTHS[codes.dtype.base_type()])
        self._put_values(word, codes)
        seen = np.zeros(most + 1, np.bool_)
        self._functions.mark_codes(
            ctypes.c_void_p(word.values),
            ctypes.c_int32(word.width),
            ctypes.c_void_p(word.valid),
            ctypes.c_int64(word.valid_offset),
            ctypes.c_int64(len(codes)),
            ctypes.c_void_p(seen.ctypes.data),
        )
        text.word, text.used = word, np.flatnonzero(seen)

    def _words(self, column: _TextColumn, shape: Callable[[str], str], missing: str) -> tuple[_Part, int] | bytes:
        """A text column, its texts shaped once."""
        if column.word is None:
            return missing.encode()
        texts = [shape(text).encode() for text in column.texts]
        if len(texts) == 1 and not column.codes.null_count():
            return texts[0]
        word, used, most = _Part.from_buffer_copy(column.word), column.used, int(column.used[-1])
        sizes = np.fromiter(map(len, texts), np.int32, len(texts))
        begins, lengths = np.zeros(most + 1, np.int64), np.zeros(most + 1, np.int32)
        begins[used], lengths[used] = np.cumsum(sizes, dtype=np.int64) - sizes, sizes
        self._kept += [begins, lengths]
        word.text, word.begins, word.lengths = self._address(b"".join(texts)), begins.ctypes.data, lengths.ctypes.data
        return word, max(int(sizes.max()), self._put_missing(word, missing))

    def _whole(self, values: pl.Series, form: Form, missing: str) -> tuple[_Part, int] | bytes:
        least, most = values.min(), values.max()
        if not (isinstance(least, int) and isinstance(most, int)):
            return missing.encode()
        width = _WIDTHS.get(values.dtype.base_type())
        largest = MOST_THOUSANDTHS - 1 if form in (SHORTEST, SHORTEST_PLAIN_ZERO) else MOST_INT64
        fits = width is not None and -largest <= least and most <= largest
        if form not in _FORMS or not (fits or (form == WHOLE and width is not None)):
            return self._texts(number_texts(values, form, missing))
        number = _Part(kind=_FORMS[form], width=width)
        self._put_values(number, values)
        return number, max(_NUMBER_BYTES, self._put_missing(number, missing))

    def _fraction(self, part: Fraction) -> tuple[_Part, int] | bytes:
        values = part.values
        if values.null_count() == len(values):
            return part.missing.encode()
        number = _Part(kind=_FLOAT_PLAIN_ZERO if part.plain_zero else _FLOAT)
        if values.dtype == pl.Float64:
            self._put_values(number, values)
            fit = self._functions.floats_fit(
                ctypes.c_void_p(number.values),
                ctypes.c_void_p(number.valid),
                ctypes.c_int64(number.valid_offset),
                ctypes.c_int64(len(values)),
            )
            if fit:
                return number, max(_NUMBER_BYTES, self._put_missing(number, part.missing))
        return self._texts(float_texts(values, part.missing, plain_zero=part.plain_zero))

    def _texts(self, texts: pl.Series) -> tuple[_Part, int]:
        """A text for each row; nothing for null."""
        array = self._array(texts, oldest=True)
        _, offsets, data = array.buffers()
        kind = np.int64 if str(array.type) == "large_string" else np.int32
        begins = np.frombuffer(offsets, kind, len(array) + 1, array.offset * np.dtype(kind).itemsize).astype(np.int64)
        self._kept.append(begins)
        column = _Part(kind=_TEXT, text=data.address if data else None, begins=begins.ctypes.data)
        self._put_validity(column, array)
        return column, int(np.diff(begins).max(initial=0))

    def _put_values(self, part: _Part, values: pl.Series) -> None:
        array = self._array(values)
        part.values = array.buffers()[1].address + array.offset * (abs(part.width) or 8)
        self._put_validity(part, array)

    def _put_validity(self, part: _Part, array: Any) -> None:
        if array.null_count:
            part.valid, part.valid_offset = array.buffers()[0].address, array.offset

    def _put_missing(self, part: _Part, missing: str) -> int:
        text = missing.encode()
        part.missing, part.missing_length = self._address(text), len(text)
        return len(text)

    def _array(self, values: pl.Series, *, oldest: bool = False) -> Any:
        """The column as one Arrow array, kept as long as the rows."""
        if len(values) != self.height:  # the kernel would read past its end
            raise ValueError(f"{len(values)} values for {self.height} rows")
        if values.n_chunks() > 1:
            values = values.rechunk()
        array = values.to_arrow(compat_level=pl.CompatLevel.oldest() if oldest else None)
        self._kept.append(array)
        return array

    def _address(self, text: bytes) -> int | None:
        """Where the bytes are, kept as long as the rows."""
        self._kept.append(text)
        return ctypes.cast(ctypes.c_char_p(text), ctypes.c_void_p).value


_free: list[npt.NDArray[np.uint8]] = []


def _buffer(size: int) -> npt.NDArray[np.uint8]:
    """Memory for text; fresh pages cost more than what is written to them, so buffers are used again."""
    while _free:
        try:
            buffer = _free.pop()
        except IndexError:  # another thread took it
            break
        if len(buffer) >= size:
            return buffer
    return np.empty(max(size, _BUFFER_BYTES), np.uint8)


def recycle(text: memoryview) -> None:
    """Let the memory of a text that is written be used for others; the caller has no further use of it."""
    if isinstance(text.obj, np.ndarray):
        _free.append(text.obj)
