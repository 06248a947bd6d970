# SPDX-License-Identifier: Apache-2.0
"""Rows of a frame as text: JSON events or csv lines, in slices, on all cores, without an object per row."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import polars as pl

from stepscope.native.codec import codec
from stepscope.render.atomic import ByteSink
from stepscope.render.codec_rows import CodecRows, recycle
from stepscope.render.number_forms import WHOLE
from stepscope.render.number_pieces import fractions, repeats, whole_numbers
from stepscope.render.parts import Fraction, Label, Lines, Numbers, Part, Text, Whole
from stepscope.render.pieces import Coded, Pieces, Rows, assemble, compact, one_per_row

__all__ = ["Fraction", "Label", "Lines", "Numbers", "Part", "Text", "Whole", "render_lines", "write_lines"]

# Few enough rows for the numbers of their pieces and their text to stay in the cache.
SLICE_ROWS = 8_000


def write_lines(handle: ByteSink, kinds: Iterable[Lines]) -> int:
    """Write all lines, one after the other with nothing between; returns their number."""
    count = 0
    for text, rows in render_lines(kinds):
        handle.write(text)
        recycle(text)
        count += rows
    return count


def render_lines(kinds: Iterable[Lines]) -> Iterator[tuple[memoryview, int]]:
    """Text and number of the lines, slice by slice, in order; later slices are rendered while earlier ones are used."""
    workers = max(1, min(8, len(os.sched_getaffinity(0))))
    waiting: deque[Future[tuple[memoryview, int]]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for kind in kinds:
                if not kind.frame.height:
                    continue
                rows = _prepare(kind)
                for start in range(0, rows.height, SLICE_ROWS):
                    waiting.append(pool.submit(_slice, rows, start))
                    if len(waiting) > 2 * workers:
                        yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _slice(rows: Rows | CodecRows, start: int) -> tuple[memoryview, int]:
    stop = min(start + SLICE_ROWS, rows.height)
    return rows.text(start, stop), stop - start


def _prepare(kind: Lines) -> Rows | CodecRows:
    functions = codec()
    if functions is not None:
        return CodecRows(kind, functions)
    pieces: list[str | Pieces] = []
    prepared: dict[int, Sequence[str | Pieces]] = {}
    for part in kind.parts:
        # The same part may occur in several places: its texts are built once.
        if id(part) not in prepared:
            prepared[id(part)] = _pieces(kind.frame, part)
        pieces += prepared[id(part)]
    return assemble(pieces, kind.frame.height)


def _pieces(frame: pl.DataFrame, part: Part) -> Sequence[str | Pieces]:
    """What the part is in every row: pieces, or the text that all rows share."""
    if isinstance(part, str):
        return [part]
    if isinstance(part, Text):
        return [distinct(frame[part.column], part.shape, part.missing)]
    if isinstance(part, Whole):
        return whole_numbers(frame[part.column], WHOLE, part.missing)
    if isinstance(part, Numbers):
        return whole_numbers(part.values, part.form, part.missing)
    if isinstance(part, Fraction):
        if part.values.dtype.is_integer():
            return whole_numbers(part.values, WHOLE, part.missing)
        return fractions(part.values, part.missing, plain_zero=part.plain_zero)
    if isinstance(part, Label):
        is_null = frame[part.column].is_null()
        return [Coded(is_null.to_numpy().astype(np.uint8), pl.Series([part.text, ""]))] if is_null.any() else [part.text]
    texts = frame.select(part.cast(pl.String).alias("text")).to_series()
    return [distinct(texts, str) if repeats(texts) else one_per_row(texts.fill_null(""))]


def distinct(column: pl.Series, shape: Callable[[str], str], missing: str = "") -> str | Coded:
    """A text column with each distinct text shaped once."""
    if column.dtype == pl.String:
        column = column.cast(pl.Categorical())
    physical = column.to_physical()
    most = physical.max()
    if not isinstance(most, int):
        return missing
    # A number that occurs takes the place of null until those rows get their own text.
    codes, used = compact(physical.fill_null(most).to_numpy(), most + 1)
    values = pl.Series(used, dtype=physical.dtype).cat.to(column.dtype).cast(pl.String)
    coded = Coded(codes, pl.Series([shape(text) for text in values.to_list()], dtype=pl.String))
    return coded.with_missing(column.is_null().to_numpy(), missing) if column.null_count() else coded
