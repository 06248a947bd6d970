# SPDX-License-Identifier: Apache-2.0
"""Small databases for tests: tables as `{name: (columns, rows)}`; texts in rows become string ids where marked."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Layout = Mapping[str, tuple[str, Sequence[Sequence[Any]]]]


class Text(str):
    """A text that stands in STRING_IDS; the row holds its id."""

    __slots__ = ()


def make_db(path: Path, layout: Layout) -> Path:
    ids: dict[str, int] = {}

    def stored(cell: Any) -> Any:
        return ids.setdefault(str(cell), len(ids)) if isinstance(cell, Text) else cell

    connection = sqlite3.connect(path)
    with connection:
        for name, (columns, rows) in layout.items():
            connection.execute(f"CREATE TABLE {name} ({columns})")
            cells = [[stored(cell) for cell in row] for row in rows]
            if cells:
                connection.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(cells[0]))})", cells)
        if "STRING_IDS" not in layout:
            connection.execute("CREATE TABLE STRING_IDS (id INTEGER PRIMARY KEY, value TEXT)")
            connection.executemany("INSERT INTO STRING_IDS VALUES (?, ?)", [(number, text) for text, number in ids.items()])
    connection.close()
    return path


def rows_of(path: Path, query: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


API = "startNs, endNs, globalTid, connectionId, name, sequenceNumber, fwdThreadId, inputDtypes, inputShapes, callchainId, type"
TASK = "startNs, endNs, deviceId, connectionId, globalTaskId, globalPid, taskType, contextId, streamId, taskId, modelId"
NONE = 4294967295


def task(start: int, end: int, *, connection: int, number: int, kind: str, device: int = 0) -> tuple[Any, ...]:
    return (start, end, device, connection, number, 77, Text(kind), NONE, 2, number, NONE)
