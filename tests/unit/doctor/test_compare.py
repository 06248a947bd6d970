"""Cell by cell: what counts as equal, and what is said about the rest."""

from __future__ import annotations

import json

import pytest

from stepscope.doctor.compare import FileComparison, compare_folders
from stepscope.doctor.npu import Report, comparison_lines


@pytest.fixture
def folders(tmp_path):
    def write(side, name, content):
        (tmp_path / side).mkdir(exist_ok=True)
        (tmp_path / side / name).write_text(content if isinstance(content, str) else json.dumps(content))

    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
    write.compare = lambda: {item.name: item for item in compare_folders(tmp_path / "ours", tmp_path / "theirs")}
    return write


def test_numbers_are_compared_as_numbers(folders):
    folders("ours", "a.csv", "Name,Time(us)\nMatMul,1.50\nAdd,2\n")
    folders("theirs", "a_20260101000000.csv", "Name,Time(us)\nMatMul,1.5\nAdd,2.000\n")
    assert folders.compare() == {"a.csv": FileComparison("a.csv", 4, 0)}


def test_differences_are_counted_and_named(folders):
    folders("ours", "a.csv", "Name,Time(us),Mine\nMatMul,1.5,x\nAdd,2,y\n")
    folders("theirs", "a.csv", "Name,Time(us),Other\nMatMul,1.6,z\n")
    (found,) = folders.compare().values()
    assert (found.cells, found.different) == (2, 1)
    assert found.remarks == (
        "2 rows of ours, 1 of theirs", "columns only in ours: Mine", "columns only in theirs: Other",
        "row 2 Time(us): 1.5 here, 1.6 there",
    )  # fmt: skip


def test_json_by_its_leaves_and_timelines_by_their_events(folders):
    folders("ours", "communication.json", {"step1": {"size": [1, 2]}})
    folders("theirs", "communication.json", {"step1": {"size": [1, 3], "wait": 4}})
    folders("ours", "trace_view.json", [{"ph": "X", "name": "Add", "ts": "1"}, {"ph": "X", "name": "Add", "ts": "2"}])
    folders("theirs", "trace_view.json", [{"ph": "X", "name": "Add", "ts": "9"}])
    folders("ours", "lonely.csv", "a\n1\n")
    found = folders.compare()
    assert found["communication.json"].remarks == ("/step1/size/1: 2 here, 3 there", "/step1/wait: missing here, 4 there")
    assert found["trace_view.json"].remarks == ("X Add: 2 here, 1 there",)
    assert found["lonely.csv"].remarks == ("missing in the vendor's files",)


def test_files_that_differ_are_problems_of_the_report():
    report = Report()
    lines = comparison_lines([FileComparison("a.csv", 4, 0), FileComparison("b.csv", 2, 1, ("row 2 x: 1 here, 2 there",))], report)
    assert report.problems == ["b.csv differs from the vendor's file"]
    assert lines[2:4] == ["| a.csv | 4 | 0 |", "| b.csv | 2 | 1 |"]
    assert lines[-1] == "- row 2 x: 1 here, 2 there"
    assert "b.csv differs" in report.text()
