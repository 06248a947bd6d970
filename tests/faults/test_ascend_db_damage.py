# SPDX-License-Identifier: Apache-2.0
"""Databases that are not whole: what is left is read, the loss is counted, and nothing usable is an error that helps."""

from __future__ import annotations

import subprocess
import sys

import pytest
from database_files import API, TASK, Text, make_db, task

from stepscope.errors import CaptureError
from stepscope.formats.ascend.db.read import read
from stepscope.tables import Facts


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        pytest.param(b"", "the file is empty", id="empty"),
        pytest.param(b"Name,Start Time(us)\n" * 9, "begins with", id="text-file"),
        pytest.param(b"SQLite format 3\x00" + b"\xff" * 4000, None, id="only-the-magic"),
    ],
)
def test_not_a_database(tmp_path, content, cause):
    path = tmp_path / "ascend_pytorch_profiler_0.db"
    path.write_bytes(content)
    with pytest.raises(CaptureError) as caught:
        read(path, Facts())
    assert caught.value.where == str(path)
    assert caught.value.fix
    assert cause is None or cause in str(caught.value.cause)


def test_absent(tmp_path):
    with pytest.raises(CaptureError, match="cannot open a database"):
        read(tmp_path / "gone.db", Facts())


def test_database_of_something_else(tmp_path):
    with pytest.raises(CaptureError, match="without any table of a profiler"):
        read(
            make_db(tmp_path / "a.db", {"people": ("name", [("x",)]), "STRING_IDS_": ("id", []), "STRING_IDS": ("a", [])}), Facts()
        )


HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.readline()
"""


def test_locked(tmp_path):
    path = make_db(tmp_path / "a.db", {"TASK": (TASK, [task(1, 2, connection=1, number=1, kind="X")])})
    # Locks are those of a process, so another one must hold it.
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(CaptureError) as caught:
            read(path, Facts())
        other.communicate(b"\n")
    assert "wait" in str(caught.value.fix)


def test_truncated_file_is_refused_with_advice(tmp_path):
    rows = [task(number, number + 1, connection=number, number=number, kind="X") for number in range(5000)]
    path = make_db(tmp_path / "a.db", {"TASK": (TASK, rows)})
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(CaptureError) as caught:
        read(path, Facts())
    assert "malformed" in str(caught.value.cause)
    assert "again" in str(caught.value.fix)


def test_rows_before_a_damaged_page_are_read(tmp_path):
    rows = [task(number, number + 1, connection=number, number=number, kind="X") for number in range(5000)]
    path = make_db(tmp_path / "a.db", {"STEP_TIME": ("id, startNs, endNs", [(7, 1, 9)]), "TASK": (TASK, rows)})
    content = bytearray(path.read_bytes())
    middle = len(content) // 2 // 4096 * 4096
    content[middle : middle + 4096] = bytes(4096)
    path.write_bytes(content)
    tables = read(path, Facts()).check()
    assert tables.steps.height == 1
    assert 1000 < tables.kernels.height < 5000
    assert tables.kernels["start_ns"].to_list() == list(range(tables.kernels.height))
    assert "damaged-table" in tables.quality["issue"].cast(str).to_list()


def test_cut_tail_never_crashes(tmp_path):
    rows = [(number, number + 1, 5, None, Text(f"op{number}"), -1, 0, None, None, None, 50001) for number in range(3000)]
    whole = make_db(tmp_path / "a.db", {"PYTORCH_API": (API, rows), "STEP_TIME": ("id, startNs, endNs", [(7, 1, 9)])}).read_bytes()
    path = tmp_path / "cut.db"
    for tenth in range(1, 10):
        path.write_bytes(whole[: len(whole) * tenth // 10])
        try:
            tables = read(path, Facts()).check()
        except CaptureError:
            continue
        assert tables.quality.height > 0


def test_flipped_bytes_never_crash(tmp_path):
    rows = [task(number, number + 1, connection=number, number=number, kind=f"kind{number % 7}") for number in range(500)]
    whole = make_db(tmp_path / "a.db", {"TASK": (TASK, rows)}).read_bytes()
    path = tmp_path / "flipped.db"
    outcomes = set()
    for place in range(100, len(whole), 997):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            outcomes.add(read(path, Facts()).check().kernels.height)
        except CaptureError:
            outcomes.add(None)
    assert 500 in outcomes


def test_further_columns_and_tables_are_left_alone(tmp_path):
    rows = [(*task(1, 2, connection=1, number=1, kind="X"), 3)]
    path = make_db(tmp_path / "a.db", {"TASK": (TASK + ", depth", rows), "status_info": ("a", [(1,)])})
    tables = read(path, Facts()).check()
    assert tables.kernels.height == 1
    assert not tables.quality.height


def test_missing_columns_are_null(tmp_path):
    path = make_db(tmp_path / "a.db", {"TASK": ("startNs, endNs, globalTaskId", [(1, 2, 3)])})
    kernel = read(path, Facts()).check().kernels.row(0, named=True)
    assert (kernel["start_ns"], kernel["stream"], kernel["name"]) == (1, None, None)


def test_missing_time_columns_are_counted(tmp_path):
    path = make_db(
        tmp_path / "a.db", {"TASK": ("startNs, globalTaskId", [(1, 3)]), "STEP_TIME": ("id, startNs, endNs", [(7, 1, 9)])}
    )
    tables = read(path, Facts())
    assert tables.steps.height == 1
    assert tables.quality["issue"].cast(str).to_list() == ["missing-columns"]
    assert tables.quality["detail"].to_list() == ["TASK has no endNs"]


def test_rows_without_times_are_counted(tmp_path):
    rows = [(1, 2, 3), (None, 2, 4)]
    tables = read(make_db(tmp_path / "a.db", {"TASK": ("startNs, endNs, globalTaskId", rows)}), Facts())
    assert tables.kernels.height == 1
    assert tables.quality.select("issue", "count").rows() == [("incomplete-row", 1)]


def test_text_that_is_not_utf8(tmp_path):
    strings = [(0, b"good"), (1, b"\xff\xfe")]
    path = make_db(
        tmp_path / "a.db",
        {
            "TASK": (TASK, [(1, 2, 0, 1, 1, 77, 0, 0, 0, 0, 0), (3, 4, 0, 2, 2, 77, 1, 0, 0, 0, 0)]),
            "STRING_IDS": ("id INTEGER PRIMARY KEY, value", strings),
        },
    )
    tables = read(path, Facts()).check()
    assert tables.kernels["name"].cast(str).to_list() == ["good", None]
    assert tables.quality.select("issue", "count").rows() == [("text-not-utf8", 1)]


def test_no_string_table(tmp_path):
    path = make_db(tmp_path / "a.db", {"TASK": (TASK, [task(1, 2, connection=1, number=1, kind="X")]), "STRING_IDS": ("other", [])})
    tables = read(path, Facts()).check()
    assert tables.kernels["name"].to_list() == [None]
    assert "missing-names" in tables.quality["issue"].cast(str).to_list()


def test_damaged_analysis_beside_it_does_not_stop_reading(tmp_path):
    (tmp_path / "analysis.db").write_bytes(b"nonsense")
    tables = read(make_db(tmp_path / "a.db", {"TASK": (TASK, [task(1, 2, connection=1, number=1, kind="X")])}), Facts())
    assert tables.kernels.height == 1
    assert tables.quality["issue"].cast(str).to_list() == ["unreadable-file"]
