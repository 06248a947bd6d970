# SPDX-License-Identifier: Apache-2.0
"""A few rows of a small SQLite file, for callers with a thousand such files; `SqliteFile` reads everything else."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from stepscope.errors import CaptureError
from stepscope.render.sqlite_table import DbColumn

_CAST = {**dict.fromkeys("ISKZ", "INTEGER"), **dict.fromkeys("NR", "REAL"), "T": "TEXT"}


class QuickFile:
    """An open file; rows come as tuples."""

    def __init__(self, connection: sqlite3.Connection, path: Path):
        self._connection = connection
        self._path = path
        self._columns: dict[str, frozenset[str]] = {}

    def select(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise _unreadable(self._path, error) from error

    def columns(self, table: str) -> frozenset[str]:
        """Names of a table's columns; none when there is no such table."""
        if table not in self._columns:
            rows = self.select("SELECT name FROM pragma_table_info(?)", (table,))
            self._columns[table] = frozenset(str(name) for (name,) in rows)
        return self._columns[table]

    def rows(self, table: str, wanted: Sequence[DbColumn]) -> list[tuple[Any, ...]]:
        """The wanted columns of a table, absent ones as None; no rows when there is no such table."""
        there = self.columns(table)
        if not there:
            return []
        chosen = (f'CAST("{one.name}" AS {_CAST[one.kind]})' if one.name in there else "NULL" for one in wanted)
        return self.select(f'SELECT {", ".join(chosen)} FROM "{table}"')


@contextmanager
def open_quickly(path: Path) -> Iterator[QuickFile]:
    """Open a file for reading without leaving anything beside it.

    Raises:
        CaptureError: it cannot be read, or its newest rows lie in a journal beside it.
    """
    journal = path.with_name(f"{path.name}-wal")
    try:
        if journal.is_file() and journal.stat().st_size:
            raise CaptureError("rows lie in a journal beside the database", where=str(journal), fix="read it as a whole")
        connection = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1", uri=True)
    except (sqlite3.Error, OSError) as error:
        raise _unreadable(path, error) from error
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    with closing(connection):
        yield QuickFile(connection, path)


def _unreadable(path: Path, error: Exception) -> CaptureError:
    cause = str(error) if os.path.exists(path) else "there is no such file"
    return CaptureError("the database cannot be read", where=str(path), cause=cause, fix="export the capture again")
