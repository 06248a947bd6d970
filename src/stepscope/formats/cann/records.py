# SPDX-License-Identifier: Apache-2.0
"""Slices of one kind of record as one array; what does not fit is counted, never raised.

Slices are cut at a size limit, so a record may begin in one and end in the next. Storage limits drop the oldest
bytes of aging data, which leaves a cut record at the head; a killed run leaves one at the tail (cann-raw.md 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.formats.cann.folder import Part, Slices
from stepscope.formats.cann.layouts import Layout
from stepscope.tables import lost


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
    return Records(_joined(arrays, layout), aging, tuple(losses))


def _joined(arrays: list[npt.NDArray[Any]], layout: Layout) -> npt.NDArray[Any]:
    """As bytes: joining structs would let numpy move their fields."""
    if len(arrays) == 1:
        return arrays[0]
    return np.concatenate([rows.view(np.uint8) for rows in arrays] or [np.empty(0, np.uint8)]).view(layout.dtype)


def read_bytes(slices: Slices) -> tuple[npt.NDArray[np.uint8], list[pl.DataFrame]]:
    """The bytes of all slices in their order; a slice that cannot be read is left out and counted."""
    parts, losses = [], []
    for path in slices.paths:
        try:
            if path.stat().st_size:
                parts.append(np.memmap(path, np.uint8, "r"))
        except OSError as error:
            losses.append(lost(path.name, "file could not be read", 1, str(error)))
    whole = parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.empty(0, np.uint8)
    return whole, losses


def _group(slices: Slices, layout: Layout) -> tuple[npt.NDArray[Any], list[pl.DataFrame]]:
    data, losses = read_bytes(slices)
    rest = len(data) % layout.size
    if rest:
        head = _head_is_cut(data, rest, layout, slices)
        data = data[rest:] if head else data[: len(data) - rest]
        losses.append(lost(slices.name, "bytes of a cut record", rest, "at the start" if head else "at the end"))
    rows = data.view(layout.dtype)
    if layout.magic is not None:
        sound = rows["magic"] == layout.magic
        broken = len(rows) - int(np.count_nonzero(sound))
        if broken:
            rows = rows.view(f"V{layout.size}")[sound].view(layout.dtype)  # as bytes, see _joined
            losses.append(lost(slices.name, "broken records", broken, f"magic is not {layout.magic:#06x}"))
    return rows, losses


def _head_is_cut(data: npt.NDArray[np.uint8], rest: int, layout: Layout, slices: Slices) -> bool:
    """Whether the odd bytes are at the head: by the magic where there is one, else by what aging does."""
    if layout.magic is None or len(data) < layout.size:
        return slices.aging and slices.first > 0
    whole = len(data) // layout.size * layout.size
    fits_start = _sound(data[:whole], layout)
    return _sound(data[rest : rest + whole], layout) > fits_start


def _sound(data: npt.NDArray[np.uint8], layout: Layout) -> int:
    return int(np.count_nonzero(data.view(layout.dtype)["magic"] == layout.magic))


def text_lines(slices: Sequence[Slices]) -> tuple[list[str], list[pl.DataFrame]]:
    """Lines of text slices; bytes that are no UTF-8 show as replacement characters."""
    lines: list[str] = []
    losses: list[pl.DataFrame] = []
    for group in slices:
        data, bad = read_bytes(group)
        losses += bad
        lines += data.tobytes().decode("utf-8", "replace").splitlines()
    return lines, losses


def unknown_files(part: Part, known: Sequence[str]) -> list[pl.DataFrame]:
    """A quality row for each kind of file that nobody reads, with its bytes."""
    return [
        lost(f"{part.path.name}/data/{name}", "record kind not read", sum(_size(path) for path in paths), "count is bytes")
        for name, paths in part.kinds().items()
        if name not in known
    ]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
