# SPDX-License-Identifier: Apache-2.0
"""Rows of text as numbers of ready-made pieces.

The text of a slice of rows is one gather from a table of all pieces, which costs a fifth of what it takes to format
every value and join the texts row by row. So values are turned into few pieces: distinct texts, small whole numbers,
groups of four digits; and neighbouring pieces are joined beforehand where few combinations occur.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from stepscope.render.number_forms import GROUP

Codes = npt.NDArray[np.integer]
Flags = npt.NDArray[np.bool_]

MOST_COMBINATIONS = 1 << 16
ROWS_PER_ENTRY = 8  # a table must be this much shorter than its column to be worth changing


@dataclass(frozen=True)
class Coded:
    """One piece per row: the number of its text."""

    codes: Codes
    texts: pl.Series

    @property
    def tables(self) -> list[pl.Series]:
        return [self.texts]

    def numbers(self, rows: slice) -> list[Codes]:
        return [self.codes[rows]]

    def with_missing(self, absent: Flags, text: str) -> Coded:
        """The same with `text` in the rows that have no value."""
        codes = self.codes.astype(np.uint32)
        codes[absent] = len(self.texts)
        return Coded(codes, pl.concat([self.texts, pl.Series([text], dtype=pl.String)]))

    def between(self, before: str, after: str) -> Coded:
        return replace(self, texts=_between(before, self.texts, after))


@dataclass(frozen=True)
class Digits:
    """The last digits of numbers, four to a piece: padded with zeros, or without where no digits come before (`bare`)."""

    values: Codes
    bare: Flags | None
    missing: Flags | None
    tables: list[pl.Series]

    def numbers(self, rows: slice) -> list[Codes]:
        rest = self.values[rows]
        bare = None if self.bare is None else self.bare[rows]
        groups: list[Codes] = []
        for place in range(len(self.tables) - 1, -1, -1):
            unit = GROUP**place
            group = rest // unit if place else rest
            rest = rest - group * unit if place else rest
            if bare is None:
                groups.append(group)
            else:
                groups.append(group + bare.astype(np.uint32) * GROUP)
                bare = bare & (group == 0)
        if self.missing is not None:
            groups[-1][self.missing[rows]] = 2 * GROUP
        return groups

    def between(self, before: str, after: str) -> Digits:
        tables = list(self.tables)
        tables[0] = _between(before, tables[0], "")
        tables[-1] = _between("", tables[-1], after)
        return replace(self, tables=tables)


Pieces = Coded | Digits


@dataclass(frozen=True)
class Rows:
    """Rows whose text is available slice by slice."""

    columns: Sequence[Pieces]
    first: Sequence[int]  # where the table of each piece begins among all texts
    texts: pa.Array
    height: int

    def text(self, start: int, stop: int) -> memoryview:
        """The text of these rows, end to end."""
        import pyarrow.compute as pc  # takes long to load, and the kernels need none of it

        stop = min(stop, self.height)
        places = np.empty((stop - start, len(self.first)), dtype=np.int32)
        at = 0
        for column in self.columns:
            for numbers in column.numbers(slice(start, stop)):
                np.add(numbers, np.int32(self.first[at]), out=places[:, at], dtype=np.int32, casting="unsafe")
                at += 1
        wanted = pa.Array.from_buffers(pa.int32(), places.size, [None, pa.py_buffer(places)])
        found = pc.take(self.texts, wanted, boundscheck=False)
        _, ends, data = found.buffers()
        return memoryview(data)[: memoryview(ends).cast("B").cast("q")[len(found)]] if data else memoryview(b"")


def one_per_row(texts: pl.Series) -> Coded:
    return Coded(np.arange(len(texts), dtype=np.uint32), texts)


def compact(codes: Codes, size: int) -> tuple[Codes, Codes]:
    """Numbers without gaps for those below `size` that occur, and the original of each."""
    seen = np.zeros(size, dtype=np.bool_)
    seen[codes] = True
    if seen.all():
        return codes, np.arange(size)
    used = np.flatnonzero(seen)
    place = np.zeros(size, dtype=np.uint16 if len(used) <= 1 << 16 else np.uint32)
    place[used] = np.arange(len(used))
    return place[codes], used


def assemble(parts: Sequence[str | Pieces], height: int) -> Rows:
    """The rows whose text is all the parts one after the other."""
    columns = _with_literals(_merge_neighbours(parts), height)
    tables: list[pl.Series] = []
    begins: dict[int, int] = {}
    first, total = [], 0
    for table in (table for column in columns for table in column.tables):
        if id(table) not in begins:
            begins[id(table)] = total
            tables.append(table)
            total += len(table)
        first.append(begins[id(table)])
    texts = pl.concat(tables, rechunk=True).to_arrow(compat_level=pl.CompatLevel.oldest())
    return Rows(columns, first, texts.cast(pa.large_string()), height)


def _merge_neighbours(parts: Sequence[str | Pieces]) -> list[str | Pieces]:
    """The parts with neighbours merged; there is at most one literal between two of the others."""
    done: list[str | Pieces] = []
    for part in parts:
        last = done[-1] if done else None
        if isinstance(part, Coded) and len(part.texts) == 1:
            part = str(part.texts[0])
        if isinstance(part, str):
            if isinstance(last, str):
                done[-1] = last + part
            elif part:
                done.append(part)
            continue
        gap = last if isinstance(last, str) else ""
        before = done[-2] if gap and len(done) > 1 else last
        if isinstance(before, Coded) and isinstance(part, Coded) and len(before.texts) * len(part.texts) <= MOST_COMBINATIONS:
            del done[-2 if gap else -1 :]
            part = _pair(before, gap, part)
        done.append(part)
    return done


def _pair(left: Coded, gap: str, right: Coded) -> Coded:
    count = len(right.texts)
    both = left.codes * np.uint32(count) + right.codes
    codes, used = compact(both, len(left.texts) * count)
    texts = _between("", left.texts.gather(used // count), gap) + right.texts.gather(used % count)
    return Coded(codes, texts)


def _with_literals(parts: Sequence[str | Pieces], height: int) -> list[Pieces]:
    """Put what all rows share into the shorter table beside it, or make it a piece of its own."""
    columns: list[Pieces] = []
    waiting = ""
    for number, part in enumerate(parts):
        if isinstance(part, str):
            before = len(columns[-1].tables[-1]) if columns else height
            following = parts[number + 1] if number + 1 < len(parts) else None
            after = height if following is None or isinstance(following, str) else len(following.tables[0])
            if min(before, after) * ROWS_PER_ENTRY > height:
                columns.append(Coded(np.zeros(height, dtype=np.uint8), pl.Series([part])))
            elif before <= after:
                columns[-1] = columns[-1].between("", part)
            else:
                waiting = part
            continue
        columns.append(part.between(waiting, "") if waiting else part)
        waiting = ""
    return columns


def _between(before: str, texts: pl.Series, after: str) -> pl.Series:
    if not (before or after):
        return texts
    return pl.select(pl.concat_str(pl.lit(before), texts, pl.lit(after))).to_series()
