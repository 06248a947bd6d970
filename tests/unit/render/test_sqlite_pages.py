"""Tables written as pages are what SQLite would have made of the same rows."""

from __future__ import annotations

import sqlite3

import numpy as np
import polars as pl
import pytest

from stepscope.render import sqlite_pages
from stepscope.render.sqlite_file import new_database
from stepscope.render.sqlite_table import DbColumn, DbTable

pytestmark = pytest.mark.usefixtures("both_ways")
ROWS = 30_000
NUMBERS = np.arange(ROWS)


def table(frame: pl.DataFrame, key: str | None = None) -> DbTable:
    kinds = {name: "N" if dtype.is_float() else "I" for name, dtype in frame.schema.items()}
    return DbTable("T", tuple(DbColumn(name, kind, key=name == key) for name, kind in kinds.items()))


def read_back(path, order: str = "rowid") -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return connection.execute(f"SELECT * FROM T ORDER BY {order}").fetchall()
    finally:
        connection.close()


COLUMNS = {
    "one-byte": pl.Series(NUMBERS % 256 - 128),
    "two-bytes": pl.Series(NUMBERS - 15_000),
    "four-bytes": pl.Series(NUMBERS * 70_000 - (1 << 31)),
    "eight-bytes": pl.Series(NUMBERS + 1_736_412_474_714_258_990),
    "extremes": pl.Series(np.where(NUMBERS % 2, np.iinfo(np.int64).max, np.iinfo(np.int64).min)),
    "all-zero": pl.Series(np.zeros(ROWS, np.int64)),
    "all-one": pl.Series(np.ones(ROWS, np.int64)),
    "all-two": pl.Series(np.full(ROWS, 2)),
    "real": pl.Series(NUMBERS / 7),
    "some-null": pl.Series([None if at % 3 else at for at in range(ROWS)], dtype=pl.Int64),
    "real-null": pl.Series([None if at % 5 else at / 3 for at in range(ROWS)], dtype=pl.Float64),
    "one-or-null": pl.Series([None if at % 3 else 1 for at in range(ROWS)], dtype=pl.Int64),
    "null-late": pl.Series([None if at == ROWS - 1 else at for at in range(ROWS)], dtype=pl.Int64),
    "no-value": pl.Series([None] * ROWS, dtype=pl.Int64),
    "unsigned": pl.Series(NUMBERS, dtype=pl.UInt32),
}


@pytest.mark.parametrize("names", [*([name] for name in COLUMNS), list(COLUMNS)], ids=lambda names: "-and-".join(names[:2]))
def test_rows_come_back(tmp_path, names):
    frame = pl.DataFrame({name.replace("-", "_"): COLUMNS[name] for name in names})
    assert sqlite_pages.is_paged(frame)
    with new_database(tmp_path / "t.db") as file:
        file.fill(table(frame), frame)
    assert read_back(tmp_path / "t.db") == frame.rows()


def test_the_key_column_is_the_row_number(tmp_path):
    frame = pl.DataFrame({"name": NUMBERS * 2, "id": (1 << 40) - NUMBERS * 3})
    with new_database(tmp_path / "t.db") as file:
        file.fill(table(frame, key="id"), frame)
    assert read_back(tmp_path / "t.db", "id") == frame.sort("id").rows()


def test_columns_in_pieces_are_put_together_a_few_rows_at_a_time(tmp_path, monkeypatch):
    frame = pl.concat([pl.DataFrame({"a": NUMBERS}), pl.DataFrame({"a": NUMBERS + ROWS})], rechunk=False)
    monkeypatch.setattr(sqlite_pages, "_ROWS_AT_ONCE", 4096)
    lengths, rechunk = [], pl.Series.rechunk
    monkeypatch.setattr(pl.Series, "rechunk", lambda column: lengths.append(len(column)) or rechunk(column))
    with new_database(tmp_path / "t.db") as file:
        file.fill(table(frame), frame)
    assert max(lengths, default=0) <= 4096
    monkeypatch.undo()
    assert read_back(tmp_path / "t.db") == frame.rows()


def test_several_levels_of_pages_and_several_tables(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite_pages, "_FANOUT", 3)
    frame = pl.DataFrame({"a": NUMBERS, "b": NUMBERS + 10**18})
    other = DbTable("U", (DbColumn("x", "I"),))
    small = DbTable("V", (DbColumn("text", "T"),))
    with new_database(tmp_path / "t.db") as file:
        file.fill(table(frame), frame)
        file.fill(small, pl.DataFrame({"text": ["made by SQLite"]}))
        file.fill(other, pl.DataFrame({"x": NUMBERS}))
    assert read_back(tmp_path / "t.db") == frame.rows()
    connection = sqlite3.connect(tmp_path / "t.db")
    assert connection.execute("SELECT count(*), sum(x) FROM U").fetchone() == (ROWS, int(NUMBERS.sum()))
    assert connection.execute("SELECT * FROM V").fetchall() == [("made by SQLite",)]
    connection.close()


def test_others_may_go_on_writing(tmp_path):
    frame = pl.DataFrame({"a": NUMBERS, "b": COLUMNS["some-null"]})
    with new_database(tmp_path / "t.db") as file:
        file.fill(DbTable("T", table(frame).columns, index="CREATE INDEX I ON T (b, a)"), frame)
    connection = sqlite3.connect(tmp_path / "t.db")
    connection.execute("DELETE FROM T WHERE a % 7 = 0")
    connection.execute("INSERT INTO T VALUES (-5, 6)")
    connection.execute("UPDATE T SET b = 1 WHERE a % 2 = 0")
    connection.commit()
    assert connection.execute("SELECT count(*) FROM T").fetchone() == (ROWS - len(range(0, ROWS, 7)) + 1,)
    connection.close()
    read_back(tmp_path / "t.db")


def test_few_rows_and_text_are_left_to_sqlite():
    assert not sqlite_pages.is_paged(pl.DataFrame({"a": [1]}))
    assert not sqlite_pages.is_paged(pl.DataFrame({"a": ["x"] * ROWS}))
