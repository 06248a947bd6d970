# SPDX-License-Identifier: Apache-2.0
"""A SQLite file that is whole or absent: filled under another name in bulk, renamed when complete."""

from __future__ import annotations

import errno
import os
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import adbc_driver_manager
import adbc_driver_sqlite.dbapi as sqlite
import polars as pl

from stepscope.errors import CaptureError
from stepscope.export.atomic import FILE_MODE, explained, refuse_symlink
from stepscope.export.sqlite_pages import PagedTable, attach, is_paged, spool
from stepscope.tables.ascend_db_schema import DbTable

# The file is thrown away when anything fails, so it needs no journal; large pages make bulk inserts fastest.
_PRAGMAS = ("page_size = 65536", "journal_mode = OFF", "synchronous = OFF", "locking_mode = EXCLUSIVE")


class SqliteFile:
    """A database being filled. Large tables of numbers are spooled as pages and put in at the end, then come the indexes."""

    def __init__(self, connection: Any, leaves: BinaryIO):
        self._connection = connection
        self._leaves = leaves
        self._paged: list[PagedTable] = []
        self._indexes: list[str] = []
        self.tables: list[str] = []

    def fill(self, table: DbTable, frame: pl.DataFrame) -> None:
        """Create the table and insert the frame, whose columns are a part of the table's; an empty frame makes no table."""
        if not frame.height:
            return
        unknown = set(frame.columns) - set(table.names)
        if unknown:
            raise KeyError(f"{table.name} has no columns {sorted(unknown)}")
        self.run(table.ddl)
        self.tables.append(table.name)
        if table.index:
            self._indexes.append(table.index)
        if is_paged(frame):
            key = next((column.name for column in table.columns if column.key), None)
            whole = frame.select(
                pl.col(name) if name in frame.columns else pl.lit(None, pl.Int64).alias(name) for name in table.names
            )
            self._paged.append(spool(table.name, whole, key, self._leaves))
            return
        if table.names != tuple(frame.columns):
            frame = frame.select(name for name in table.names if name in frame.columns)
        with self._connection.cursor() as cursor:
            cursor.adbc_ingest(table.name, frame.to_arrow(compat_level=pl.CompatLevel.oldest()), mode="append")

    def run(self, statement: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)

    def commit(self) -> None:
        self.run("COMMIT")

    def complete(self, path: Path) -> None:
        """Put the pages in and make the indexes, once nobody else has the file open."""
        connection = sqlite3.connect(path)
        try:
            for pragma in _PRAGMAS:
                connection.execute(f"PRAGMA {pragma}")
            roots = dict(connection.execute("SELECT name, rootpage FROM sqlite_master"))
            if self._paged:
                connection.close()
                with path.open("r+b") as file:
                    attach(file, [(table, roots[table.name]) for table in self._paged], self._leaves)
                connection = sqlite3.connect(path)
            for statement in self._indexes:
                connection.execute(statement)
            connection.commit()
        finally:
            connection.close()


@contextmanager
def building(path: Path) -> Iterator[SqliteFile]:
    """A new database that takes the place of `path` when the block ends well; else nothing changes on disk."""
    refuse_symlink(path)
    try:
        number, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
    except OSError as error:
        raise explained(error, path) from error
    os.close(number)
    partial = Path(name)
    try:
        with tempfile.TemporaryFile(dir=path.parent) as leaves:
            with _connected(partial) as connection:
                file = SqliteFile(connection, leaves)
                yield file
                file.commit()
            file.complete(partial)
        partial.chmod(FILE_MODE)
        partial.replace(path)
    except (adbc_driver_manager.Error, sqlite3.Error) as error:
        raise _refused(error, path) from error
    except OSError as error:
        raise explained(error, path) from error
    finally:
        _remove([partial, *(partial.with_name(partial.name + suffix) for suffix in ("-journal", "-wal", "-shm"))])


@contextmanager
def _connected(path: Path) -> Iterator[Any]:
    connection = sqlite.connect(str(path), autocommit=True)
    try:
        with connection.cursor() as cursor:
            for statement in (*(f"PRAGMA {pragma}" for pragma in _PRAGMAS), "BEGIN"):
                cursor.execute(statement)
        yield connection
    finally:
        connection.close()


def _refused(error: Exception, path: Path) -> CaptureError:
    if "full" in str(error):
        return explained(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), path)
    kept = "the file of that name from before is unchanged" if path.exists() else "no file of that name was left behind"
    return CaptureError(f"cannot write {path.name}", where=str(path.parent), cause=f"SQLite says: {error}; {kept}")


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
