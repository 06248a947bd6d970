# SPDX-License-Identifier: Apache-2.0
"""A table drawn on a terminal: the names get the room, and lesser columns go where it is too narrow."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.markup import escape
from rich.table import Table

Columns = dict[str, list[str]]

NAME_ROOM = 34  # with less, operators of one library begin to look alike
LEAST_ROOM = 8
_FUNCTION = re.compile(r"(?:void )?([^()]+(?:\(anonymous namespace\)[^()]*)*)\(.*\)")
BORDER = 3  # a line and two blanks for each column


def draw(columns: Columns, *, numeric: Collection[str], title: str = "", lesser: Sequence[str] = ()) -> list[str]:
    """Print the table and return the columns that were left out.

    Args:
        columns: cells as text, by name.
        numeric: columns that are aligned to the right. The widest other one holds the names.
        title: above the table.
        lesser: columns to leave out, the first of them first.
    """
    console = Console()
    columns = {column: cells if column in numeric else [_readable(cell) for cell in cells] for column, cells in columns.items()}
    name = max((column for column in columns if column not in numeric), key=lambda column: _width(column, columns), default=None)
    shown = fit(columns, name, console.width, lesser)
    table = Table(title=title or None, title_justify="left", header_style="bold")
    for column in shown:
        table.add_column(column, justify="right" if column in numeric else "left", no_wrap=column in numeric, overflow="fold")
    for row in zip(*shown.values(), strict=True):
        table.add_row(*map(escape, row))
    console.print(table)
    return [column for column in columns if column not in shown]


def fit(columns: Columns, name: str | None, width: int, lesser: Sequence[str]) -> Columns:
    """Leave lesser columns out until the names have room, then shorten what is still too long in its middle."""
    shown = dict(columns)
    widths = {column: _width(column, columns) for column in columns}
    wanted = min(widths[name], NAME_ROOM) if name else 0
    for column in lesser:
        if _room(shown, widths, name, width) >= wanted:
            break
        if column != name:
            shown.pop(column, None)
    if name:
        room = max(_room(shown, widths, name, width), LEAST_ROOM)
        shown[name] = [_shorten(text, room) for text in shown[name]]
    return shown


def _room(shown: Columns, widths: dict[str, int], name: str | None, width: int) -> int:
    others = sum(BORDER + widths[column] for column in shown if column != name)
    return width - 1 - others - (BORDER if name else 0)


def _width(column: str, columns: Columns) -> int:
    return max(map(cell_len, [column, *columns[column]]))


def _readable(name: str) -> str:
    """A C++ function without its result and its parameters, which are longer than all that tells it apart."""
    function = _FUNCTION.fullmatch(name)
    return function[1] if function else name


def _shorten(text: str, room: int) -> str:
    """Both ends tell a name apart from its neighbours; of a path, the end tells more."""
    if cell_len(text) <= room:
        return text
    tail = text[-(room * 2 // 3 if "/" in text else room // 3) :]
    return f"{set_cell_size(text, room - 1 - cell_len(tail))}…{tail}"
