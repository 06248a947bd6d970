# SPDX-License-Identifier: Apache-2.0
"""`stepscope query`: formats, files, ranks and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from raw_capture import capture
from stepscope.cli import main

pytestmark = pytest.mark.slow  # each process starts an interpreter and the columnar engine


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return capture(tmp_path_factory.mktemp("query"))


def run(capfd: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main(["query", *map(str, arguments)])
    said = capfd.readouterr()
    return code, said.out, said.err


def test_rows_as_table_and_json_lines(folder: Path, capfd: pytest.CaptureFixture[str]):
    assert run(capfd, folder, "select count(*) as calls from ops") == (0, "calls\n-----\n    1\n", "")
    code, out, err = run(capfd, folder, "select id, rank, kind from queue order by id", "--json", "--limit", 1)
    assert (code, err) == (0, "only the first 1 rows: --limit\n")
    assert [json.loads(line) for line in out.splitlines()] == [{"id": 0, "rank": 0, "kind": "enqueue"}]


def test_a_file_with_the_question_and_one_for_the_rows(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    question, rows = tmp_path / "q.sql", tmp_path / "rows.parquet"
    question.write_text("-- operators\nselect rank, name from ops;\n")
    code, out, err = run(capfd, folder, "-f", question, "--out", rows, "--rank", 0)
    assert (code, out, err) == (0, "", f"wrote {rows}: 1 rows\n")
    assert pl.read_parquet(rows)["rank"].to_list() == [0]


def test_the_plan(folder: Path, capfd: pytest.CaptureFixture[str]):
    code, out, _ = run(capfd, folder, "select name from ops", "--explain", "--format", "csv")
    assert code == 0
    assert "name" in out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["drop table ops"], 2, "the query is not allowed"),
        (["select * from read_csv('/etc/passwd')"], 2, "reads files"),
        (["select nothing from ops"], 2, "nothing"),
        (["select 1 as one", "--rank", "7"], 3, "no capture of rank 7"),
        ([], 2, "a path and a question are needed"),
        (["-f", "/nowhere/q.sql"], 2, "cannot be read"),
        (["select 1 as one", "--limit", "0"], 2, "from 1 to 10000"),
        (["select 1 as one", "--timeout", "never"], 2, "seconds"),
    ],
)
def test_what_is_wrong_is_said(folder: Path, capfd: pytest.CaptureFixture[str], arguments: list[str], code: int, said: str):
    try:
        found = main(["query", str(folder), *arguments])
    except SystemExit as ended:
        found = ended.code
    assert found == code
    assert said in capfd.readouterr().err


def test_a_path_without_a_capture(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    code, _, err = run(capfd, tmp_path / "nowhere", "select 1 as one")
    assert (code, err.splitlines()[0]) == (3, "error: no such file or folder")
