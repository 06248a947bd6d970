# SPDX-License-Identifier: Apache-2.0
"""A SQLite file opened for reading: columns of a table as a frame with fixed types.

Every column is cast in SQL, because SQLite lets each cell have its own type. Nothing is written beside the file: see `_address`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

import adbc_driver_manager
import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from stepscope.errors import CaptureError
from stepscope.formats import bytes_read
from stepscope.formats.sqlite.texts import decoded, nulls
from stepscope.render.sqlite_table import DbColumn
from stepscope.tables import TEXT, issues, lost
from stepscope.tables.issues import Issue

_MAGIC = b"SQLite format 3\x00"
_WRITE_AHEAD = 2  # version number of the file format in bytes 18 and 19 of a file in WAL mode
# Text goes through BLOB: the driver hands strings over unchecked, and invalid UTF-8 would crash the reader of them.
_CAST = {"I": "INTEGER", "S": "INTEGER", "K": "INTEGER", "Z": "INTEGER", "N": "REAL", "R": "REAL", "T": "BLOB"}
_TYPES: dict[str, pl.DataType] = {
    **dict.fromkeys("ISKZ", pl.Int64()),
    **dict.fromkeys("NR", pl.Float64()),
    "T": pl.Binary(),
}
# The driver settles the type of a column on its first batch, and sets memory aside for all rows that a batch may have.
_BATCH_ROWS = "adbc.sqlite.query.batch_rows"
_FEW_ROWS = 1 << 12
_DENSE = 1 << 22  # string ids below are looked up in an array


class SqliteFile:
    """An open database; `quality` collects what could not be read."""

    strings_table = "STRING_IDS"  # id and value of the texts that other tables name by number

    def __init__(self, path: Path):
        self.path = path
        self.quality: list[pl.DataFrame] = []
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        head = _head(path)
        import adbc_driver_sqlite.dbapi as sqlite  # loads half of pyarrow, and writers of databases come by here too

        try:
            self._connection = sqlite.connect(self._address(head))
        except adbc_driver_manager.Error as error:
            self._remove_copy()
            raise _unreadable(path, error) from error
        self.columns = self._columns()
        self._fetched: set[str] = set()
        self._size = path.stat().st_size
        self._strings: _Strings | None = None

    def __enter__(self) -> SqliteFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._connection.close()
        self._remove_copy()

    def has(self, table: str) -> bool:
        return table in self.columns

    def lost(self, issue: Issue, count: int, detail: str = "") -> None:
        if count:
            self.quality.append(lost(issue, self.path.name, count, detail))

    def rows(self, table: str, wanted: Sequence[DbColumn], *, required: Iterable[str] = ()) -> pl.DataFrame:
        """The wanted columns of a table, absent ones as null; string ids are replaced by their text.

        Rows without a value in a `required` column are dropped and counted, as is a damaged table.
        """
        there = self.columns.get(table, ())
        found = [column for column in wanted if column.name in there]
        missing = [name for name in required if name not in there]
        if table not in self.columns or missing or not found:
            if missing and table in self.columns:
                self.lost(issues.MISSING_COLUMNS, 1, f"{table} has no {', '.join(missing)}")
            return _empty(wanted)
        cells = self._fetch(table, found)
        if cells is None:
            return _empty(wanted)
        frame = cells.select(self._shaped(cells, column, column in found) for column in wanted)
        if required:
            whole = frame.drop_nulls(list(required))
            self.lost(issues.INCOMPLETE_ROW, frame.height - whole.height, f"{table}: {', '.join(required)}")
            return whole
        return frame

    def enum(self, name: str, fallback: dict[int, str], *, text: str = "name") -> dict[int, str]:
        """An enumeration as the file has it, over the known one for numbers it lacks."""
        there = {"id", text} <= set(self.columns.get(name, ()))
        rows = self._fetch(name, [DbColumn("id", "I"), DbColumn(text, "T")]) if there else None
        if rows is None:
            return fallback
        names = decoded(rows[text].cast(pl.Binary))
        return {**fallback, **{number: word for number, word in zip(rows["id"], names, strict=True) if number is not None and word}}

    def count(self, table: str) -> int:
        """Rows of a table; 0 where it is absent or damaged."""
        try:
            found = self._query(f'SELECT COUNT(*) AS rows FROM "{table}"', 1).item() if self.has(table) else 0
        except (adbc_driver_manager.Error, OSError):
            return 0
        return int(found)

    def text(self, ids: pl.Series, *, empty: bool = False) -> pl.Series:
        """The texts behind string ids; an empty one counts as none unless `empty` says that it means something."""
        if self._strings is None:
            self._strings = _Strings(self._string_rows())
        return self._strings.of(ids, empty=empty)

    def _address(self, head: bytes) -> str:
        """The address by which SQLite opens the file without making files beside it.

        A file in WAL mode is only read through a `-shm` file beside it, unless SQLite is told that nobody writes it.
        Without a `-wal` file that is true; what a `-wal` file holds can be read from a copy.
        """
        path, immutable = self.path, not os.access(self.path.parent, os.W_OK)
        if len(head) > 19 and _WRITE_AHEAD in head[18:20]:
            journal = path.with_name(f"{path.name}-wal")
            if not journal.is_file() or not journal.stat().st_size:
                immutable = True
            elif not path.with_name(f"{path.name}-shm").is_file():
                path, immutable = self._copied(journal), False
        return f"file:{quote(str(path.absolute()))}?mode=ro{'&immutable=1' if immutable else ''}"

    def _copied(self, journal: Path) -> Path:
        """A copy of the file with its journal, in a folder that goes with the connection."""
        self._copy = tempfile.TemporaryDirectory(prefix="stepscope-", ignore_cleanup_errors=True)
        try:
            for part in (self.path, journal):
                shutil.copyfile(part, Path(self._copy.name) / part.name)
        except OSError as error:
            self._remove_copy()
            raise _unreadable(self.path, error) from error
        return Path(self._copy.name) / self.path.name

    def _remove_copy(self) -> None:
        if self._copy is not None:
            self._copy.cleanup()

    def _columns(self) -> dict[str, tuple[str, ...]]:
        query = (
            "SELECT CAST(m.name AS BLOB) AS tab, CAST(p.name AS BLOB) AS col FROM sqlite_master AS m "
            "JOIN pragma_table_info(m.name) AS p WHERE m.type = 'table'"
        )
        try:
            rows = self._query(query, _FEW_ROWS)
        except (adbc_driver_manager.Error, OSError) as error:
            self.__exit__(None, None, None)
            raise _unreadable(self.path, error) from error
        if not rows.height:
            return {}
        names = rows.select(decoded(rows[name]) for name in ("tab", "col")).drop_nulls()
        grouped = names.group_by("tab", maintain_order=True).agg("col")
        return {table: tuple(columns) for table, columns in grouped.iter_rows()}

    def _fetch(self, table: str, columns: Sequence[DbColumn]) -> pl.DataFrame | None:
        chosen = ", ".join(f'CAST("{column.name}" AS {_CAST[column.kind]}) AS "{column.name}"' for column in columns)
        query = f'SELECT {chosen} FROM "{table}"'
        # How far that is in the file is not known; its tables count alike.
        self._fetched.add(table)
        bytes_read.note(self.path, self._size * len(self._fetched) // max(len(self.columns), 1))
        try:
            return self._query(query, self._most_rows(table, len(columns)))
        except (adbc_driver_manager.Error, OSError) as error:
            left = self._salvaged(query)
            self.lost(issues.DAMAGED_TABLE, 1, f"{table}: {left.height if left is not None else 0} rows before the damage; {error}")
            return left

    def _salvaged(self, query: str) -> pl.DataFrame | None:
        """Rows of a table up to the damage."""
        batches = []
        try:
            with self._connection.cursor() as cursor:
                cursor.adbc_statement.set_options(**{_BATCH_ROWS: "64"})
                cursor.execute(query)
                for batch in cursor.fetch_record_batch():
                    batches.append(pl.DataFrame(pa.Table.from_batches([batch])))
        except (adbc_driver_manager.Error, OSError, pa.ArrowException):
            pass  # the damage itself
        return pl.concat(batches, how="vertical_relaxed") if batches else None

    def _most_rows(self, table: str, columns: int) -> int:
        """At least the rows of a table, so that one batch holds it, without counting them; never more than fit into the file."""
        span = f'SELECT (SELECT MAX(rowid) FROM "{table}") - (SELECT MIN(rowid) FROM "{table}") + 1 AS span'
        try:
            numbered = self._query(span, 1).item()
        except (adbc_driver_manager.Error, OSError):
            numbered = None  # damaged, or without row numbers
        journal = self.path.with_name(f"{self.path.name}-wal")
        size = sum(path.stat().st_size for path in (self.path, journal) if path.is_file())
        # A row has a pointer (2 bytes), its length, its number, the length of its header and a type for each column.
        fitting = size // (5 + columns) + 1
        return min(numbered, fitting) if isinstance(numbered, int) and numbered > 0 else fitting

    def _query(self, query: str, batch_rows: int) -> pl.DataFrame:
        with self._connection.cursor() as cursor:
            cursor.adbc_statement.set_options(**{_BATCH_ROWS: str(batch_rows)})
            cursor.execute(query)
            frame = pl.from_arrow(cursor.fetch_arrow_table())
        assert isinstance(frame, pl.DataFrame)
        return frame

    def _shaped(self, raw: pl.DataFrame, column: DbColumn, found: bool) -> pl.Series:
        if not found:
            return nulls(column.name, _final_type(column), raw.height)
        values: pl.Series = raw[column.name].cast(_TYPES[column.kind])  # a column of nulls has the driver's own type
        if column.is_string_id:
            return self.text(values)
        if column.kind == "T":
            text = decoded(values)
            self.lost(issues.TEXT_NOT_UTF8, text.null_count() - values.null_count(), column.name)
            return text
        return values

    def _string_rows(self) -> pl.DataFrame:
        columns = [DbColumn("id", "I"), DbColumn("value", "T")]
        there = self.columns.get(self.strings_table, ())
        raw = self._fetch(self.strings_table, columns) if {"id", "value"} <= set(there) else None
        if raw is None:
            self.lost(issues.MISSING_NAMES, 1)
            return _empty(columns)
        rows = raw.select(self._shaped(raw, column, True) for column in columns)
        return rows.drop_nulls("id")


class _Strings:
    """Texts by id."""

    def __init__(self, rows: pl.DataFrame):
        ordered = rows.sort("id")
        self._ids = ordered["id"].to_numpy()
        value = pl.col("value")
        self._all = ordered.select(pl.when(value != "N/A").then(value).cast(TEXT).alias("value")).to_series()
        self._texts = ordered.select(pl.when(~value.is_in(["", "N/A"])).then(value).cast(TEXT).alias("value")).to_series()
        low = self._ids[: np.searchsorted(self._ids, _DENSE)]
        self._row_of = np.full(int(low[-1]) + 1 if low.size else 0, -1, dtype=np.int64)
        self._row_of[low] = np.arange(low.size)

    def of(self, ids: pl.Series, *, empty: bool = False) -> pl.Series:
        """Texts of ids; null for those that are missing or have no text."""
        if not self._ids.size or not len(ids):
            return nulls(ids.name, TEXT, len(ids))
        rows = self._rows(ids.fill_null(-1).to_numpy())
        known = pl.Series(rows)
        texts: pl.Series = (self._all if empty else self._texts).gather(known.set(known < 0, None) if rows.min() < 0 else known)
        return texts.alias(ids.name)

    def _rows(self, wanted: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        # Ids of the runtime start at 0 without gaps: looked up directly, ten times faster than searching.
        if wanted.min() >= 0 and wanted.max() < self._row_of.size:
            return self._row_of[wanted]
        place = np.minimum(np.searchsorted(self._ids, wanted), self._ids.size - 1)
        return np.where(self._ids[place] == wanted, place, -1)


def _final_type(column: DbColumn) -> pl.DataType:
    return TEXT if column.is_string_id else pl.String() if column.kind == "T" else _TYPES[column.kind]


def _empty(columns: Iterable[DbColumn]) -> pl.DataFrame:
    return pl.DataFrame(schema={column.name: _final_type(column) for column in columns})


def _head(path: Path) -> bytes:
    """The first bytes of a database."""
    try:
        with path.open("rb") as file:
            start = file.read(32)
    except OSError as error:
        raise CaptureError(
            "cannot open a database", where=str(path), cause=error.strerror, fix="check the path and its permissions"
        ) from error
    if not start.startswith(_MAGIC):
        raise CaptureError(
            "not a SQLite database",
            where=str(path),
            cause=f"the file begins with {start[: len(_MAGIC)]!r}" if start else "the file is empty",
            fix="export the capture again; a profiler that was killed leaves such a file",
        )
    return start


def _unreadable(path: Path, error: Exception) -> CaptureError:
    text = str(error).replace("\n", " ")
    if "locked" in text or "busy" in text:
        fix = "wait until the program that writes the database is done"
    else:
        fix = "copy the file again or export the capture again"
    return CaptureError("cannot read a database", where=str(path), cause=text, fix=fix)
