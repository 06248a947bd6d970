"""Cells that a spreadsheet would run are marked as text, and nothing else in the file changes."""

from __future__ import annotations

import csv
import io

import pytest

from stepscope.render.formulas import mark_formulas

RISKY = [
    "=1+1",
    "+x",
    "-y",
    "@SUM(A1)",
    '=HYPERLINK("http://x","a")',
    "-1 and more",
    "=a,\r\n=b",
    "\t=1",
    "-",
    "--1",
    "-5.5.5",
]
KEPT = [
    "",
    "a=b",
    "a,=b",
    "a\n=b",
    '"=quoted"',
    "-5",
    "+5",
    "-1.5e-7",
    "-.5",
    "1736412474730135.222\t",
    "-12.5\t",
    "\t",
    "N/A",
    "中=文",
]


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_cells(tmp_path, line_end, quoting):
    rows = [["Name", "Count", ""], *([cell, kept, cell] for cell in RISKY for kept in KEPT), *([kept, kept, kept] for kept in KEPT)]

    def text(rows: list[list[str]]) -> str:
        out = io.StringIO(newline="")
        csv.writer(out, lineterminator=line_end, quoting=quoting).writerows(rows)
        return out.getvalue()

    path = tmp_path / "a.csv"
    path.write_bytes(text(rows).encode())
    mark_formulas([path])
    found = list(csv.reader(io.StringIO(path.read_bytes().decode(), newline="")))
    assert found == [["'" + cell if cell in RISKY else cell for cell in row] for row in rows]
    assert path.read_bytes().decode().replace("'", "") == text(rows)


def test_files_without_formulas_are_not_written_again(tmp_path):
    for name, content in {"empty.csv": b"", "plain.csv": b"Name,Count\r\na,-5\r\n,\r\n"}.items():
        path = tmp_path / name
        path.write_bytes(content)
        before = path.stat()
        mark_formulas([path])
        assert (path.read_bytes(), path.stat().st_ino) == (content, before.st_ino)


def test_a_carriage_return_before_a_formula(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b'"\r=1",\r\n')
    mark_formulas([path])
    assert path.read_bytes() == b'"\'\r=1",\r\n'
