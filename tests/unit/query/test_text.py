# SPDX-License-Identifier: Apache-2.0
"""Answers as table, csv, JSON lines, Parquet and Markdown."""

from __future__ import annotations

import io

import polars as pl
import pytest

from stepscope.query.text import rendered

FRAME = pl.DataFrame({"name": ["a|b", "\x1b[31mred", None], "ms": [0.13974999999999999, 1e-7, float("nan")], "n": [1, 20, 3]})


TABLE = """\
name            ms   n
-----------  -----  --
a|b          0.140   1
\\x1b[31mred  1e-07  20
               nan   3
"""
CSV = "name,ms,n\na|b,0.13974999999999999,1\n\x1b[31mred,1e-7,20\n,NaN,3\n"  # exact, for programs
JSON = """\
{"name":"a|b","ms":0.13974999999999999,"n":1}
{"name":"\\u001b[31mred","ms":1e-7,"n":20}
{"name":null,"ms":null,"n":3}
"""
MARKDOWN = """\
| name | ms | n |
| --- | ---: | ---: |
| a\\|b | 0.140 | 1 |
| \\\\x1b\\[31mred | 1e-07 | 20 |
|  | nan | 3 |
"""


@pytest.mark.parametrize(("form", "text"), [("table", TABLE), ("csv", CSV), ("json", JSON), ("md", MARKDOWN)])
def test_text(form: str, text: str):
    assert rendered(FRAME, form).decode() == text


def test_parquet():
    assert pl.read_parquet(io.BytesIO(rendered(FRAME.drop("ms"), "parquet"))).equals(FRAME.drop("ms"))


def test_long_cells_are_cut_in_tables_only():
    frame = pl.DataFrame({"name": ["x" * 500]})
    assert len(rendered(frame, "table").decode().splitlines()[2]) == 60
    assert rendered(frame, "csv").decode() == "name\n" + "x" * 500 + "\n"
