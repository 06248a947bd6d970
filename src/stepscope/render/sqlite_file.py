# SPDX-License-Identifier: Apache-2.0
"""A SQLite file that is whole or absent: filled under another name in bulk, renamed when complete."""

from __future__ import annotations

import errno
import functools
import os
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO

import adbc_driver_manager
import adbc_driver_sqlite
import polars as pl

from stepscope.errors import CaptureError
from stepscope.render.atomic import FILE_MODE, refuse_symlink, write_error
from stepscope.render.sqlite_pages import PAGE, PagedTable, attach, is_paged, put_first_page, write_leaves
from stepscope.render.sqlite_table import DbTable

# The file is thrown away when anything fails, so it needs no journal; large pages make bulk inserts fastest.
_PRAGMAS = (f"page_size = {PAGE}", "journal_mode = OFF", "synchronous = OFF", "locking_mode = EXCLUSIVE")


class SqliteFile:
    """A database being filled: pages of large tables of numbers first, the other tables after them, then the indexes."""

    def __init__(self, pages: BinaryIO):
        self._pages = pages
        self._ddl: list[str] = []
        self._paged: list[PagedTable] = []
        self._rest: list[tuple[str, pl.DataFrame]] = []  # small beside the paged ones: they can wait in memory
        self._indexes: list[str] = []
        self.tables: list[str] = []

    def fill(self, table: DbTable, frame: pl.DataFrame) -> None:
        """Create the table with the frame's rows, whose columns are a part of the table's; an empty frame makes no table."""
        if not frame.height:
            return
        unknown = set(frame.columns) - set(table.names)
        if unknown:
            raise KeyError(f"{table.name} has no columns {sorted(unknown)}")
        self._ddl.append(table.ddl)
        self.tables.append(table.name)
        if table.index:
            self._indexes.append(table.index)
        if is_paged(frame):
            key = next((column.name for column in table.columns if column.key), None)
            whole = frame.select(
                pl.col(name) if name in frame.columns else pl.lit(None, pl.Int64).alias(name) for name in table.names
            )
            self._paged.append(write_leaves(table.name, whole, key, self._pages))
            return
        self._rest.append((table.name, frame[[name for name in table.names if name in frame.columns]]))

    def complete(self, path: Path) -> None:
        """Let SQLite write the rest after the pages, then attach the pages to it."""
        if self._paged:
            put_first_page(self._pages, _empty_page())
        self._pages.flush()
        with _connect(path) as connection:
            for statement in self._ddl:
                _execute(connection, statement)
            for name, frame in self._rest:
                _insert(connection, name, frame)
            _execute(connection, "COMMIT")
        with closing(sqlite3.connect(path)) as connection:
            roots = dict(connection.execute("SELECT name, rootpage FROM sqlite_master"))
        if self._paged:
            attach(self._pages, [(table, roots[table.name]) for table in self._paged])
            self._pages.flush()
        with closing(sqlite3.connect(path)) as connection:
            for pragma in _PRAGMAS:
                connection.execute(f"PRAGMA {pragma}")
            for statement in self._indexes:
                connection.execute(statement)
            connection.commit()


@contextmanager
def new_database(path: Path) -> Iterator[SqliteFile]:
    """A new database that takes the place of `path` when the block ends well; else nothing changes on disk."""
    refuse_symlink(path)
    try:
        number, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
    except OSError as error:
        raise write_error(error, path) from error
    partial = Path(name)
    try:
        with open(number, "r+b") as pages:
            file = SqliteFile(pages)
            yield file
            file.complete(partial)
        partial.chmod(FILE_MODE)
        partial.replace(path)
    except (adbc_driver_manager.Error, sqlite3.Error) as error:
        raise _database_error(error, path) from error
    except OSError as error:
        raise write_error(error, path) from error
    finally:
        _remove([partial, *(partial.with_name(partial.name + suffix) for suffix in ("-journal", "-wal", "-shm"))])


@functools.cache
def _empty_page() -> bytes:
    """The first page of a database without tables, as SQLite itself makes it."""
    with tempfile.NamedTemporaryFile() as file:
        with closing(sqlite3.connect(file.name)) as connection:
            for pragma in (f"page_size = {PAGE}", "synchronous = OFF", "journal_mode = MEMORY"):  # nothing that must last
                connection.execute(f"PRAGMA {pragma}")
            connection.execute("VACUUM")
        return file.read(PAGE)


# The plain interface of the driver: the one of the database API loads half of pyarrow, which takes a fifth of a small analysis.
@contextmanager
def _connect(path: Path) -> Iterator[adbc_driver_manager.AdbcConnection]:
    with adbc_driver_sqlite.connect(str(path)) as database, adbc_driver_manager.AdbcConnection(database) as connection:
        for statement in (*(f"PRAGMA {pragma}" for pragma in _PRAGMAS), "BEGIN"):
            _execute(connection, statement)
        yield connection


def _execute(connection: adbc_driver_manager.AdbcConnection, query: str) -> None:
    with adbc_driver_manager.AdbcStatement(connection) as statement:
        statement.set_sql_query(query)
        statement.execute_update()


def _insert(connection: adbc_driver_manager.AdbcConnection, table: str, frame: pl.DataFrame) -> None:
    with adbc_driver_manager.AdbcStatement(connection) as statement:
        statement.set_options(**{"adbc.ingest.target_table": table, "adbc.ingest.mode": "adbc.ingest.mode.append"})
        statement.bind_stream(frame.to_arrow(compat_level=pl.CompatLevel.oldest()).to_reader())
        statement.execute_update()


def _database_error(error: Exception, path: Path) -> CaptureError:
    if "full" in str(error):
        return write_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), path)
    kept = "the file of that name from before is unchanged" if path.exists() else "no file of that name was left behind"
    return CaptureError(f"cannot write {path.name}", where=str(path.parent), cause=f"SQLite says: {error}; {kept}")


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
