# SPDX-License-Identifier: Apache-2.0
"""Questions in SQL over the tables of a capture: SQLite in a file of its own, read-only, without any other file."""

from __future__ import annotations

import re
import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp
from threading import Lock
from typing import Any
from weakref import finalize

import adbc_driver_sqlite.dbapi as adbc
import polars as pl

from stepscope.tables import Tables
from stepscope.tables.union import with_keys
from stepscope.web.problems import Problem, bad_parameter

SECONDS = 10.0
MOST_ROWS = 10_000
MOST_TEXT = 10_000
_PERMITTED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, getattr(sqlite3, "SQLITE_RECURSIVE", 33)}
_FORBIDDEN = ("load_extension", "readfile", "writefile", "edit", "fts3_tokenizer")
_LIMIT_LENGTH = 0  # SQLITE_LIMIT_LENGTH
_STEPS = 10_000  # instructions between two looks at the clock


class Database:
    """Tables as a database, each written when a query first names it."""

    def __init__(self, tables: Tables):
        self._tables = tables
        folder = mkdtemp(prefix="stepscope-sql-")  # readable for its owner only
        self._removed = finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.path = Path(folder) / "tables.db"
        self._written: set[str] = set()
        self._lock = Lock()

    def query(self, text: str, limit: int, clock: Callable[[], float] = time.monotonic) -> tuple[list[str], list[list[Any]], bool]:
        """Columns, rows and whether there are more."""
        with self._lock:
            self._write({name for name in self._tables if re.search(rf"\b{name}\b", text, re.IGNORECASE)})
        connection = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)
        try:
            connection.set_authorizer(_authorized)
            until = clock() + SECONDS
            connection.set_progress_handler(lambda: int(clock() > until), _STEPS)
            if hasattr(connection, "setlimit"):  # from Python 3.11 on
                connection.setlimit(_LIMIT_LENGTH, 50_000_000)
            cursor = connection.execute(text)
            rows = cursor.fetchmany(limit + 1)
            columns = [column[0] for column in cursor.description or ()]
        except sqlite3.Error as problem:
            if str(problem) == "interrupted":
                raise Problem(422, "parameter", f"the query took longer than {SECONDS:.0f} s", hint="ask for less") from None
            raise Problem(
                422, "parameter", "the query cannot be run", detail=str(problem)[:500], hint="only SELECT is possible"
            ) from None
        except sqlite3.Warning as problem:
            raise Problem(
                422, "parameter", "the query cannot be run", detail=str(problem), hint="one statement at a time"
            ) from None
        finally:
            connection.close()
        return columns, [[_cell(value) for value in row] for row in rows[:limit]], len(rows) > limit

    def _write(self, names: set[str]) -> None:
        new = sorted(names - self._written)
        if not new and self.path.exists():
            return
        with adbc.connect(str(self.path)) as connection, connection.cursor() as cursor:
            cursor.execute("create table if not exists about (schema text)")
            for name in new:
                frame = with_keys(name, self._tables[name])
                plain = frame.with_columns(
                    *(pl.col(key).cast(pl.String) for key, dtype in frame.schema.items() if isinstance(dtype, pl.Categorical)),
                    *(pl.col(key).cast(pl.Int64) for key, dtype in frame.schema.items() if dtype in (pl.Boolean, pl.UInt8)),
                    *(pl.col(key).reinterpret(signed=True) for key, dtype in frame.schema.items() if dtype == pl.UInt64),
                )
                cursor.adbc_ingest(name, plain.to_arrow(compat_level=pl.CompatLevel.oldest()), mode="create")
            connection.commit()
        self._written |= set(new)


def _authorized(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    if action not in _PERMITTED or (action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _FORBIDDEN):
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


def _cell(value: Any) -> Any:
    if isinstance(value, bytes):
        return value[:1000].hex()
    return value


def sql(database: Database, body: object) -> dict[str, Any]:
    """The answer of `POST sql`."""
    if not isinstance(body, dict) or not isinstance(body.get("query"), str) or not body["query"].strip():
        raise bad_parameter("query", "text of a SELECT")
    if len(body["query"]) > MOST_TEXT:
        raise bad_parameter("query", f"at most {MOST_TEXT:,} characters")
    limit = body.get("limit", 1000)
    if type(limit) is not int or not 1 <= limit <= MOST_ROWS:
        raise bad_parameter("limit", f"from 1 to {MOST_ROWS}")
    began = time.perf_counter()
    columns, rows, more = database.query(body["query"], limit)
    return {"columns": columns, "rows": rows, "truncated": more, "seconds": time.perf_counter() - began}
