# SPDX-License-Identifier: Apache-2.0
"""Which tables a SQLite file has, so that a reader knows its files whatever they are called. Loads nothing large."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from urllib.parse import quote

SUFFIXES = (".db", ".sqlite", ".sqlite3")


def table_names(path: Path) -> frozenset[str]:
    """Names of the tables; none where they cannot be read. Never raises, and leaves nothing beside the file."""
    import sqlite3  # only commands that are given a database need it

    try:
        with closing(sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1", uri=True)) as database:
            database.text_factory = lambda data: data.decode("utf-8", "replace")
            return frozenset(name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'"))
    except (sqlite3.Error, ValueError):
        return frozenset()
