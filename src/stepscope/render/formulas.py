# SPDX-License-Identifier: Apache-2.0
"""Cells of csv that a spreadsheet would run as a formula: names come from scripts, and some begin like one."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterable
from pathlib import Path

from stepscope.render.atomic import replacing

MARK = "'"  # spreadsheets take what follows as text
FORMULA = r"^[=+\-@\t\r]"  # text that they would take for a formula

# A quoted cell as a whole, so that a comma inside it is not taken for the border of a cell; of the others only those that begin
# like a formula. Without quotes a carriage return is the end of a line.
_CELL = re.compile(rb'(?:^|(?<=[,\n]))(?:"([^"]*(?:""[^"]*)*)"|([=+\-@\t][^,\r\n]*))')
_HARMLESS = re.compile(rb"\s*(?:[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*)?")  # a number, or nothing at all
_FORMULA_BYTES = re.compile(FORMULA.encode())


def mark_formulas(paths: Iterable[Path]) -> None:
    """Write csv files again with a mark before each text cell that begins like a formula; numbers stay as they are."""
    for path in paths:
        if path.stat().st_size:
            with path.open("rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as content:
                _rewrite(path, content, [place for cell in _CELL.finditer(content) for place in _places(cell)])


def _places(cell: re.Match[bytes]) -> Iterable[int]:
    group = 2 if cell[1] is None else 1
    text = cell[group]
    if _FORMULA_BYTES.match(text) and not _HARMLESS.fullmatch(text):
        yield cell.start(group)


def _rewrite(path: Path, content: mmap.mmap, places: list[int]) -> None:
    if not places:
        return
    with replacing(path) as new:
        for start, end in zip([0, *places], [*places, len(content)], strict=True):
            new.write(MARK.encode() if start else b"")
            new.write(content[start:end])
