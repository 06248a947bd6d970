# SPDX-License-Identifier: Apache-2.0
"""Slices of one kind of record as one array; what does not fit is counted, never raised.

Slices are cut at a size limit, so a record may begin in one and end in the next. Storage limits drop the oldest
bytes of aging data, which leaves a cut record at the head; a killed run leaves one at the tail (docs/formats/cann.md 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.formats import bytes_read
from stepscope.formats.cann.folder import Part, Slices
from stepscope.formats.cann.layouts import LEVELS, Layout
from stepscope.tables import issues, lost

_SAMPLE = 1024  # records looked at to find where a slice's records begin
_LEVELS = np.array(list(LEVELS))


@dataclass(frozen=True)
class Records:
    """All records of one kind in file order, the aging ones first."""

    rows: npt.NDArray[Any]
    aging: int  # how many of the rows came from aging files
    lost: tuple[pl.DataFrame, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)


def read_records(part: Part | None, layout: Layout) -> Records:
    """Every sound record of a kind in one folder; empty when there is no folder or no file."""
    if part is None:
        return Records(np.empty(0, layout.dtype), 0)
    arrays, losses, aging = [], [], 0
    for slices in sorted(part.slices(layout.file), key=lambda group: not group.aging):
        rows, bad = _group(slices, layout)
        arrays.append(rows)
        losses += bad
        aging += len(rows) if slices.aging else 0
    return Records(concatenate(arrays, layout), aging, tuple(losses))


def concatenate(arrays: list[npt.NDArray[Any]], layout: Layout) -> npt.NDArray[Any]:
    """As bytes: joining structs would let numpy move their fields."""
    if len(arrays) == 1:
        return arrays[0]
    return np.concatenate([rows.view(np.uint8) for rows in arrays] or [np.empty(0, np.uint8)]).view(layout.dtype)


def read_bytes(slices: Slices) -> tuple[npt.NDArray[np.uint8], list[pl.DataFrame]]:
    """The bytes of all slices in their order; a slice that cannot be read is left out and counted."""
    pieces, losses = _pieces(slices)
    return _join_bytes(pieces), losses


def _pieces(slices: Slices) -> tuple[list[npt.NDArray[np.uint8]], list[pl.DataFrame]]:
    pieces: list[npt.NDArray[np.uint8]] = []
    losses = [lost(issues.MISSING_SLICES, slices.name, slices.missing)] if slices.missing else []
    for path in slices.paths:
        bytes_read.note(path)
        try:
            if path.stat().st_size:
                pieces.append(np.memmap(path, np.uint8, "r"))
        except (OSError, ValueError) as error:  # ValueError: emptied since
            losses.append(lost(issues.UNREADABLE_FILE, path.name, 1, str(error)))
    return pieces, losses


def _join_bytes(pieces: list[npt.NDArray[np.uint8]]) -> npt.NDArray[np.uint8]:
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces) if pieces else np.empty(0, np.uint8)


def _group(slices: Slices, layout: Layout) -> tuple[npt.NDArray[Any], list[pl.DataFrame]]:
    pieces, losses = _pieces(slices)
    if layout.magic is None:
        return _without_magic(_join_bytes(pieces), slices, layout, losses)
    data = _join_bytes(pieces)
    if len(data) % layout.size or not (sound := _sound(data.view(layout.dtype), layout)).all():
        data = _realign(pieces, slices, layout, losses)
        sound = _sound(data.view(layout.dtype), layout)
    rows = data.view(layout.dtype)
    broken = len(rows) - int(np.count_nonzero(sound))
    if broken:
        rows = rows.view(f"V{layout.size}")[sound].view(layout.dtype)  # as bytes, see concatenate
        losses.append(lost(issues.DAMAGED_RECORD, slices.name, broken, f"magic is not {layout.magic:#06x}"))
    return rows, losses


def _without_magic(
    data: npt.NDArray[np.uint8], slices: Slices, layout: Layout, losses: list[pl.DataFrame]
) -> tuple[npt.NDArray[Any], list[pl.DataFrame]]:
    """Odd bytes are at the head when older slices were dropped, else at the tail."""
    rest = len(data) % layout.size
    if rest:
        head = slices.first > 0
        data = data[rest:] if head else data[: len(data) - rest]
        losses.append(_cut(slices, [rest], "at the start" if head else "at the end"))
    return data.view(layout.dtype), losses


def _realign(
    pieces: list[npt.NDArray[np.uint8]], slices: Slices, layout: Layout, losses: list[pl.DataFrame]
) -> npt.NDArray[np.uint8]:
    """Whole records only: each slice is joined to the one before where its records continue there, else starts a new run."""
    runs: list[list[npt.NDArray[np.uint8]]] = []
    cut: dict[str, list[int]] = {"at the start": [], "between slices": [], "at the end": []}
    for piece in pieces:
        expected = -sum(map(len, runs[-1])) % layout.size if runs else 0
        begin = _first_record(piece, layout, expected)
        if runs and begin == expected:
            runs[-1].append(piece)
        else:
            cut["between slices" if runs else "at the start"].append(begin)
            runs.append([piece[begin:]])
    kept = []
    for number, run in enumerate(runs, 1):
        data = _join_bytes(run)
        rest = len(data) % layout.size
        cut["at the end" if number == len(runs) else "between slices"].append(rest)
        kept.append(data[: len(data) - rest])
    losses += [_cut(slices, lengths, where) for where, lengths in cut.items() if any(lengths)]
    return _join_bytes(kept)


def _first_record(piece: npt.NDArray[np.uint8], layout: Layout, expected: int) -> int:
    """Where the first whole record of a slice begins: at the offset at which most records look sound."""
    head = piece[: layout.size * _SAMPLE]
    low, high = (layout.magic or 0) & 0xFF, (layout.magic or 0) >> 8
    marks = np.flatnonzero((head[:-1] == low) & (head[1:] == high)) - layout.dtype.fields["magic"][1]  # type: ignore[index]
    counts = np.bincount(marks % layout.size, minlength=layout.size) if len(marks) else np.zeros(layout.size, np.int64)
    likely: list[int] = [expected, *np.argsort(-counts, kind="stable")[:4].tolist()]

    def score(begin: int) -> int:
        whole = (len(head) - begin) // layout.size * layout.size
        rows = head[begin : begin + max(whole, 0)].view(layout.dtype)
        sound = _sound(rows, layout)
        # Bodies may hold the magic too; a head also has a level.
        return int(np.count_nonzero(sound & np.isin(rows["level"], _LEVELS) if "level" in (layout.dtype.names or ()) else sound))

    return max(likely, key=score)


def _sound(rows: npt.NDArray[Any], layout: Layout) -> npt.NDArray[np.bool_]:
    return np.asarray(rows["magic"] == layout.magic)


def _cut(slices: Slices, lengths: Sequence[int], where: str) -> pl.DataFrame:
    """A quality row for the cut records of one place, each with the bytes that are left of it."""
    left = [length for length in lengths if length]
    return lost(issues.TRUNCATED_RECORD, slices.name, len(left), f"{where}: {sum(left):,} B left")


def text_lines(slices: Sequence[Slices]) -> tuple[list[str], list[pl.DataFrame]]:
    """Lines of text slices; bytes that are not UTF-8 show as replacement characters."""
    lines: list[str] = []
    losses: list[pl.DataFrame] = []
    for group in slices:
        data, bad = read_bytes(group)
        losses += bad
        # Only line feeds end a line: names may hold the other characters that splitlines() takes for one.
        lines += (line.removesuffix("\r") for line in data.tobytes().decode("utf-8", "replace").split("\n") if line)
    return lines, losses


def unknown_files(part: Part, readable: Sequence[str]) -> list[pl.DataFrame]:
    """A quality row for each kind of file that nobody reads, with its bytes."""
    return [
        lost(issues.UNKNOWN_FILE, f"{part.path.name}/data/{name}", sum(_size(path) for path in paths))
        for name, paths in part.kinds().items()
        if name not in readable
    ]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
