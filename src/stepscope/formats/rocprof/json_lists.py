# SPDX-License-Identifier: Apache-2.0
"""Lists of records in one large JSON document, found by counting brackets and read without a Python object per record."""

from __future__ import annotations

import re
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl

from stepscope.formats.chrome.borders import brackets, flat
from stepscope.formats.chrome.inflate import Note
from stepscope.formats.chrome.repair import repair_lines
from stepscope.tables import issues

_LINE_END, _BLANK = b"\n "
Fields = Mapping[str, "pl.DataType | Fields"]


class Document:
    """The bytes of a JSON document and the depth at every bracket of it; a document that is cut off has open brackets."""

    def __init__(self, data: bytes, note: Note):
        self.text = flat(data)
        self._note = note
        self._at, self._steps = brackets(self.text)
        self._depth = np.cumsum(self._steps, dtype=np.int32)

    @property
    def is_whole(self) -> bool:
        return len(self._depth) > 0 and int(self._depth[-1]) == 0

    def places(self, key: str, opening: bytes) -> list[int]:
        """Where the values of a key begin, those that are lists (`[`) or objects (`{`), in the order of the document."""
        pattern = re.compile(rb'"%s"\s*:\s*%s' % (re.escape(key.encode()), re.escape(opening)))
        found = [match.end() - 1 for match in pattern.finditer(self.text)]
        return [place for place in found if self._number(place) is not None]

    def end(self, place: int) -> int:
        """Where the value that begins at a bracket ends; the end of the text when it is not closed."""
        number = self._number(place)
        closing = self._closing(number) if number is not None else None
        return int(self._at[closing]) + 1 if closing is not None else len(self.text)

    def value(self, place: int) -> Any:
        """A small value, parsed; None when it is damaged."""
        try:
            return orjson.loads(self.text[place : self.end(place)])
        except orjson.JSONDecodeError:
            self._note(issues.UNREADABLE_EVENT, 1, "not valid JSON")
            return None

    def records(self, place: int, fields: Fields) -> pl.DataFrame:
        """The objects of the list that begins at a place: a column for each field, nested ones as `outer.inner`.

        Values that do not fit their type become null. Objects that are not JSON are left out and counted.
        """
        starts, ends = self._elements(place)
        if not len(starts):
            return self.no_records(fields)
        lines = self._lines(starts, ends)
        frame = _parsed(lines, fields)
        if frame is None:
            repaired = repair_lines(lines, self._note)
            frame = _parsed(repaired, fields) if repaired else None
        if frame is None:
            self._note(issues.UNREADABLE_EVENT, len(starts), "refused by the JSON parser")
            frame = pl.DataFrame(schema=_texts(fields))
        return _flattened(frame, fields)

    def no_records(self, fields: Fields) -> pl.DataFrame:
        return _flattened(pl.DataFrame(schema=_texts(fields)), fields)

    def elements(self, place: int) -> list[int]:
        """Where the objects of the list that begins at a place begin; the last may be cut off."""
        number = self._number(place)
        assert number is not None, "no bracket begins here"
        inside = slice(number + 1, self._closing(number))
        depth = self._depth[inside] - self._depth[number]
        return [int(start) for start in self._at[inside][(depth == 1) & (self._steps[inside] == 1)]]

    def count(self, place: int) -> int:
        """Objects in the list that begins at a place."""
        return len(self._elements(place)[0])

    def _number(self, place: int) -> int | None:
        number = int(np.searchsorted(self._at, place))
        return number if number < len(self._at) and int(self._at[number]) == place and self._steps[number] == 1 else None

    def _closing(self, number: int) -> int | None:
        below = np.flatnonzero(self._depth[number:] < self._depth[number])
        return number + int(below[0]) if len(below) else None

    def _elements(self, place: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        number = self._number(place)
        assert number is not None, "no bracket begins here"
        closing = self._closing(number)
        inside = slice(number + 1, closing)
        at, steps, depth = self._at[inside], self._steps[inside], self._depth[inside] - self._depth[number]
        ends = at[(depth == 0) & (steps == -1)] + 1
        starts = at[(depth == 1) & (steps == 1)]
        if closing is None:
            self._note(issues.TRUNCATED_RECORD, int(len(starts) > len(ends)), "the last of a list")
        return starts[: len(ends)], ends

    def _lines(self, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> bytes:
        """One object per line: what lies between two of them is overwritten with line ends."""
        first = int(starts[0])
        codes = np.frombuffer(bytearray(self.text[first : int(ends[-1])]), np.uint8)
        gaps = starts[1:] - ends[:-1]
        offsets = np.arange(int(gaps.sum())) - np.repeat(np.cumsum(gaps) - gaps, gaps)
        between = np.repeat(ends[:-1], gaps) + offsets - first
        codes[between] = np.where(offsets == 0, _LINE_END, _BLANK)
        return codes.tobytes()


def _texts(fields: Fields) -> dict[str, pl.DataType]:
    """Everything as text: a value of an unexpected type is then no reason to refuse a record."""
    return {name: pl.Struct(_texts(kind)) if isinstance(kind, Mapping) else pl.String() for name, kind in fields.items()}


def _parsed(lines: bytes, fields: Fields) -> pl.DataFrame | None:
    try:
        return pl.read_ndjson(BytesIO(lines), schema=_texts(fields))
    except pl.exceptions.PolarsError:
        return None


def _flattened(frame: pl.DataFrame, fields: Fields) -> pl.DataFrame:
    return frame.select(leaf for name, kind in fields.items() for leaf in _leaves(pl.col(name), name, kind))


def _leaves(value: pl.Expr, name: str, kind: pl.DataType | Fields) -> list[pl.Expr]:
    if isinstance(kind, Mapping):
        return [leaf for inner, deeper in kind.items() for leaf in _leaves(value.struct.field(inner), f"{name}.{inner}", deeper)]
    return [value.cast(kind, strict=False).alias(name)]
