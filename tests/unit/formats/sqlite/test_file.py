# SPDX-License-Identifier: Apache-2.0
"""SQLite files of other programs are read, and nothing is left beside them."""

from __future__ import annotations

import shutil
import sqlite3

import pytest

from stepscope.formats.sqlite.file import SqliteFile
from stepscope.render.sqlite_table import DbColumn


def values(path):
    with SqliteFile(path) as file:
        return file.rows("t", [DbColumn("a", "I")])["a"].to_list()


def listing(folder):
    return {item.name: item.read_bytes() for item in folder.iterdir()}


@pytest.fixture
def writer(tmp_path):
    """A program that writes a database in WAL mode and has not ended yet; one row is in the journal only."""
    (tmp_path / "writing").mkdir()
    connection = sqlite3.connect(tmp_path / "writing" / "a.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA wal_autocheckpoint=0")
    connection.execute("CREATE TABLE t (a INTEGER)")
    connection.execute("INSERT INTO t VALUES (1)")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.execute("INSERT INTO t VALUES (2)")
    yield connection
    connection.close()


def test_wal_database_of_a_program_that_ended_leaves_nothing_beside_it(tmp_path, writer):
    writer.close()
    folder = tmp_path / "writing"
    before = listing(folder)
    assert set(before) == {"a.db"}
    assert values(folder / "a.db") == [1, 2]
    assert listing(folder) == before


def test_rows_of_a_journal_without_its_index_are_read_and_nothing_is_left(tmp_path, writer):
    folder = tmp_path / "copied"
    folder.mkdir()
    for name in ("a.db", "a.db-wal"):
        shutil.copy(tmp_path / "writing" / name, folder / name)
    before = listing(folder)
    assert values(folder / "a.db") == [1, 2]
    assert listing(folder) == before


def test_database_that_is_being_written_is_read_through_its_journal(tmp_path, writer):
    folder = tmp_path / "writing"
    assert values(folder / "a.db") == [1, 2]
    assert set(listing(folder)) == {"a.db", "a.db-wal", "a.db-shm"}
    assert writer.execute("SELECT COUNT(*) FROM t").fetchone() == (2,)


def test_damaged_journal_is_no_crash(tmp_path, writer):
    folder = tmp_path / "copied"
    folder.mkdir()
    shutil.copy(tmp_path / "writing" / "a.db", folder / "a.db")
    (folder / "a.db-wal").write_bytes(b"\x00" * 777)
    assert values(folder / "a.db") == [1]  # what the journal held is lost
    assert set(listing(folder)) == {"a.db", "a.db-wal"}
