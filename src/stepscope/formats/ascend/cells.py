# SPDX-License-Identifier: Apache-2.0
"""Reads wanted columns of a csv file by name, whatever else the file holds, and counts what is damaged."""

from __future__ import annotations

import csv
import mmap
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

import numpy as np
import polars as pl

from stepscope.formats import NONE32, bytes_read
from stepscope.formats.ascend.columns import DEVICE, NS_PER_US, Column, Kind
from stepscope.render.csv_file import NOT_KNOWN
from stepscope.tables import TEXT, issues, lost

Quality = list[pl.DataFrame]

_DTYPE: dict[str, pl.DataType] = {
    "text": TEXT, "shapes": TEXT, "count": pl.Int64(), "number": pl.Float64(), "time": pl.String(),
}  # fmt: skip
_RESULT: dict[str, pl.DataType] = {
    "text": TEXT, "shapes": TEXT, "count": pl.Int64(), "number": pl.Float64(), "time": pl.Int64(),
}  # fmt: skip
_MISSING = [NOT_KNOWN, ""]
_LINE_BLOCK = 1 << 18  # fits the cache, which is what makes counting fast
_PIECE_BYTES = 8 << 20  # and as much again while the last line is completed: more comes from the kernel each time, in fresh pages
_NEW_LINE = ord("\n")
_MEND_LINES = 20_000
# What lies beyond is damage, not a length or size, and would not fit 64 bits once it is added up: 104 days of
# nanoseconds, 8 PiB. A moment may be 146 years from 1970.
_MOST, _LATEST_NS = float(1 << 53), 1 << 62
_MOST_DEVICE = (1 << 31) - 1


@dataclass(frozen=True)
class _Chosen:
    index: int
    name: str
    to: str
    kind: Kind
    factor: float
    needed: bool

    @property
    def column(self) -> str:
        return f"column_{self.index + 1}"


@dataclass(frozen=True)
class Further:
    """Columns beyond the named ones: which of them are wanted, and as what."""

    wanted: Callable[[str], bool]
    rename: Callable[[str], tuple[str, float]] = field(default=lambda name: (name, 1.0))


def read_cells(
    paths: Iterable[Path], columns: Sequence[Column], *, quality: Quality, further: Further | None = None
) -> pl.DataFrame:
    """One frame of the wanted columns from all files, in order; a column that no file has is null."""
    schema = {item.key: _RESULT[item.kind] for item in columns}
    frames = [pl.DataFrame(schema=schema)]
    frames += [frame for path in paths if (frame := _read_file(path, columns, further, quality)) is not None]
    return pl.concat(frames, how="diagonal")


def header(path: Path) -> list[str]:
    """Names of the columns; empty when the file has none."""
    try:
        with path.open("rb") as stream:
            line = stream.readline()
    except OSError:
        return []
    return _names(line)


def to_ns(text: pl.Series) -> pl.Series:
    """Exact nanoseconds of decimal microseconds; float64 would lose a quarter of a microsecond (docs/formats/outputs.md 1)."""
    text = text.str.strip_chars()
    if (text.str.slice(-4, 1) == ".").all():  # the usual three digits need no search for the point
        whole, fraction = text.str.head(-4), text.str.tail(3)
    else:
        parts = text.str.splitn(".", 2).struct
        whole, fraction = parts.field("field_0"), parts.field("field_1").fill_null("").str.pad_end(3, "0").str.slice(0, 3)
    us: pl.Series = whole.cast(pl.Int64, strict=False)
    near = us.is_between(-_LATEST_NS // 1000, _LATEST_NS // 1000)
    us = us if near.all() else us.set(~near.fill_null(True), None)
    ns: pl.Series = us * 1000 + fraction.cast(pl.Int64, strict=False)
    return ns


def to_duration_ns(microseconds: pl.Expr) -> pl.Expr:
    """Nanoseconds of decimal microseconds; the rounding removes what the binary product adds (55.161 * 1000)."""
    return (microseconds * 1000.0).round(6)


def _names(line: bytes) -> list[str]:
    return [name.strip() for name in _split(_clean(line.decode("utf-8-sig", errors="replace")))]


def _clean(text: str) -> str:
    return text.replace("\0", "").replace("\r", "")


def _split(line: str) -> list[str]:
    try:
        return next(csv.reader([line]), [])
    except csv.Error:  # a cell of more than 128 KiB
        return []


def _read_file(path: Path, columns: Sequence[Column], further: Further | None, quality: Quality) -> pl.DataFrame | None:
    names = header(path)
    if not any(names):
        readable = os.access(path, os.R_OK)
        quality.append(lost(issues.EMPTY_FILE if readable else issues.UNREADABLE_FILE, path.name, 1, "no header line"))
        return None
    chosen, missing = _choose(names, columns, further)
    if missing:
        quality.append(lost(issues.MISSING_COLUMNS, path.name, 1, f"it has no {', '.join(missing)}"))
        return None
    body = _whole_lines(path, len(names), quality)
    source = path if body is None else body
    raw = _by_kernel(source, len(names), chosen)
    if raw is None:
        lines = _count_lines(source) - 1
        try:
            raw = _parse(source, len(names), {item.column: _DTYPE[item.kind] for item in chosen})
        except pl.exceptions.PolarsError:
            raw = None
        if raw is None or raw.height != max(lines, 0):
            raw = _mend(path.name, path.read_bytes() if body is None else body, names, chosen, quality)
    bytes_read.note(path)
    return _shape(path.name, raw, chosen, columns, quality)


def _choose(names: list[str], columns: Sequence[Column], further: Further | None) -> tuple[list[_Chosen], list[str]]:
    """The columns to read, and the needed ones that are not there."""
    place = {name: index for index, name in reversed(list(enumerate(names)))}
    chosen, missing = [], []
    for item in columns:
        titles = item.names
        found = next((name for name in titles if name in place), None)
        if found is not None:
            chosen.append(_Chosen(place[found], found, item.key, item.kind, titles[found], item.needed))
        elif item.needed:
            missing.append(" / ".join(titles))
    if further is not None:
        used, keys = {item.index for item in chosen}, {item.to for item in chosen}
        for index, name in enumerate(names):
            if index not in used and place[name] == index and further.wanted(name):
                to, factor = further.rename(name)
                if to in keys:  # two titles that differ in their unit alone: the first one counts, as with equal titles
                    continue
                keys.add(to)
                chosen.append(_Chosen(index, name, to, "number", factor, needed=False))
    return sorted(chosen, key=lambda item: item.index), missing


def _whole_lines(path: Path, width: int, quality: Quality) -> bytes | None:
    """The file without a last line that was cut off; None when the file is good as it stands."""
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        end = data.rfind(b"\n") + 1
        tail = data[end:]
        if not tail or end == 0:
            return None
        whole = tail.count(b'"') % 2 == 0 and b"\0" not in tail and len(_names(tail)) == width
        if whole:
            return None
        quality.append(lost(issues.UNREADABLE_LINE, path.name, 1, f"{len(tail)} bytes after the last line end"))
        return data[:end]


def _count_lines(source: Path | bytes) -> int:
    if isinstance(source, bytes):
        return source.count(b"\n") + (not source.endswith(b"\n"))
    count, last = 0, _NEW_LINE
    block = np.empty(_LINE_BLOCK, np.uint8)
    with source.open("rb", buffering=0) as stream:
        while size := stream.readinto(block.data):
            count += int(np.count_nonzero(block[:size] == _NEW_LINE))
            last = int(block[size - 1])
    return count + (last != _NEW_LINE)


def _by_kernel(source: Path | bytes, width: int, chosen: Sequence[_Chosen]) -> pl.DataFrame | None:
    """The columns of all lines; None where there is no kernel, no line, or one that the kernel leaves to the columnar engine."""
    from stepscope.native.codec import codec

    if codec() is None:
        return None
    from stepscope.formats import codec_cells  # whoever only converts times does not need it

    wanted = [(item.index, item.kind) for item in chosen]
    frames = []
    with source.open("rb") if isinstance(source, Path) else BytesIO(source) as stream:
        stream.readline()
        while piece := stream.read(_PIECE_BYTES):
            columns = codec_cells.read_lines(piece + stream.readline(), width, wanted)
            if columns is None:
                return None
            frames.append(pl.DataFrame([column.alias(item.column) for column, item in zip(columns, chosen, strict=True)]))
    return pl.concat(frames) if frames else None


def _parse(source: Path | bytes, width: int, wanted: Mapping[str, pl.DataType]) -> pl.DataFrame:
    # Own names for all columns: the header may repeat a name, and a projection needs unique ones.
    schema = {f"column_{index + 1}": wanted.get(f"column_{index + 1}", pl.String()) for index in range(width)}
    return pl.read_csv(source, has_header=False, skip_rows=1, schema=schema, columns=list(wanted), null_values=_MISSING, glob=False)


def _mend(name: str, body: bytes, names: list[str], chosen: list[_Chosen], quality: Quality) -> pl.DataFrame:
    """Read a damaged file as text, line by line: no line may spoil its neighbours."""
    lines = _clean(body.decode("utf-8", errors="replace")).removesuffix("\n").split("\n")[1:]
    whole = [line for line in lines if line.count('"') % 2 == 0 and "\ufffd" not in line]
    quality.append(lost(issues.UNREADABLE_LINE, name, len(lines) - len(whole), "an open quote, or bytes that are not text"))
    blocks = [_text_cells(whole[first : first + _MEND_LINES], len(names)) for first in range(0, len(whole), _MEND_LINES)]
    raw = pl.concat([_text_cells([], len(names)), *blocks])
    too_many = int(raw["further"].is_not_null().sum())
    quality.append(lost(issues.EXTRA_CELLS, name, too_many, f"more than {len(names)}"))
    return raw.select(item.column for item in chosen)


def _text_cells(lines: list[str], width: int) -> pl.DataFrame:
    """All cells as text, and `further`: the first one beyond the header's width."""
    # An own header line fixes the width, which the parser would else take from the first, perhaps damaged, line.
    columns = [*(f"column_{index + 1}" for index in range(width)), "further"]
    schema = dict.fromkeys(columns, pl.String())
    text = "\n".join([",".join(columns), *lines, ""]).encode()
    try:
        frame = pl.read_csv(text, schema=schema, null_values=_MISSING, truncate_ragged_lines=True)
    except pl.exceptions.PolarsError:  # quotes in the wrong place
        frame = pl.DataFrame(schema=schema)
    if frame.height == len(lines):
        return frame
    rows = [(_split(line) + [""] * len(columns))[: len(columns)] for line in lines]
    return pl.DataFrame(rows, schema=schema, orient="row").with_columns(pl.all().replace(dict.fromkeys(_MISSING)))


def _shape(name: str, raw: pl.DataFrame, chosen: list[_Chosen], columns: Sequence[Column], quality: Quality) -> pl.DataFrame:
    frame = raw.select(_value(item, raw[item.column]).alias(item.to) for item in chosen)
    _count_unread(name, raw, frame, chosen, quality)
    needed = [item.to for item in chosen if item.needed]
    if needed:
        kept = frame.drop_nulls(needed)
        titles = ", ".join(item.name for item in chosen if item.needed)
        quality.append(lost(issues.INCOMPLETE_ROW, name, frame.height - kept.height, f"without one of {titles}"))
        frame = kept
    absent = [item for item in columns if item.key not in frame.columns]
    return frame.with_columns(pl.lit(None, dtype=_RESULT[item.kind]).alias(item.key) for item in absent)


def _value(item: _Chosen, raw: pl.Series) -> pl.Expr:
    column, is_text = pl.col(item.column), raw.dtype == pl.String
    as_text = column.str.strip_chars() if is_text else column
    match item.kind:
        case "time":
            return pl.lit(to_ns(raw)) if is_text else column
        case "shapes":
            return pl.lit(_without_quotes(raw))
        case "text":
            return as_text.cast(TEXT)
        case "count":
            number = as_text.cast(pl.Int64, strict=False)
            if is_text:
                number = number.fill_null(as_text.cast(pl.Float64, strict=False).cast(pl.Int64, strict=False))
            known = number != NONE32
            if item.to == DEVICE.key:
                known &= number.is_between(-_MOST_DEVICE, _MOST_DEVICE)
            return pl.when(known).then(number)
        case "number":
            number = as_text.cast(pl.Float64, strict=False)
            if item.factor == 1.0:
                return pl.when(number.is_finite()).then(number)
            scaled = to_duration_ns(number) if item.factor == NS_PER_US else number * item.factor
            return pl.when(scaled.abs() <= _MOST).then(scaled)  # not for NaN either


def _without_quotes(text: pl.Series) -> pl.Series:
    """Shapes without the quotes that the value carries itself (docs/formats/outputs.md 1); there are few different ones."""
    known = text.unique().drop_nulls()
    bare = known.cast(pl.String).str.strip_chars().str.strip_chars('"').replace(NOT_KNOWN, None)
    shapes: pl.Series = text.replace_strict(known, bare.cast(TEXT), return_dtype=TEXT, default=None)
    return shapes


def _count_unread(name: str, raw: pl.DataFrame, frame: pl.DataFrame, chosen: list[_Chosen], quality: Quality) -> None:
    """Cells that have a text but gave no value; those of needed columns are counted with their row."""
    for item in chosen:
        if item.kind in ("text", "shapes") or item.needed:
            continue
        cells = raw[item.column]
        unread = frame[item.to].null_count() - cells.null_count()  # an empty cell never gives a value
        if unread and item.kind == "count":
            unread -= int((cells == (str(NONE32) if cells.dtype == pl.String else NONE32)).sum())
        if not unread:
            continue
        quality.append(lost(issues.UNREADABLE_VALUE, name, unread, f"column {item.name}"))
