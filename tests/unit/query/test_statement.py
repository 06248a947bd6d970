# SPDX-License-Identifier: Apache-2.0
"""Which texts are one question that only reads tables."""

from __future__ import annotations

import pytest

from stepscope.query import QueryError
from stepscope.query.statement import check, parse


@pytest.mark.parametrize(
    "text",
    [
        "select 1",
        "SELECT name FROM ops;",
        "select 'a;b' as x ;  ",
        "select 1 -- ; drop table ops\n",
        "select /* ; delete */ 1",
        "with a as (select 1 as x) select x from a",
        "explain select 1",
        "show tables",
        "select \"delete\" from ops",
        "select 'it''s; read_csv(' as x",
        "select count(*) as load from ops where name like '%set%'",
        "select replace(name, 'a', 'b') as x from ops",
        "select 选择 from ops",
    ],
)  # fmt: skip
def test_questions(text: str):
    assert check(text) == text.rstrip().rstrip(";")


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", ""),
        ("  ; ; ", ""),
        ("-- nothing", ""),
        ("select 1; select 2", "more than one statement"),
        ("delete from ops", "begins with 'delete'"),
        ("drop table ops", "begins"),
        ("attach database 'x' as x", "begins"),
        ("(select 1)", "begins"),
        ("with x as (select 1) insert into ops select * from x", "INSERT changes"),
        ("select 1 into outfile", "INTO changes"),
        ("explain delete from ops", "DELETE changes"),
        ("select * from read_csv('/etc/passwd')", "read_csv reads files"),
        ("select * from READ_PARQUET ('x')", "READ_PARQUET reads files"),
        ("select * from \"read_json\"('x')", '"read_json" reads files'),
        ("select * from read_ipc /* x */ ('x')", "read_ipc reads files"),
        ("select * from scan_csv('x')", "scan_csv reads files"),
    ],
)
def test_what_is_refused(text: str, cause: str):
    with pytest.raises(QueryError) as refused:
        check(text)
    assert cause in refused.value.cause
    assert "SELECT" in refused.value.fix


def test_length_is_limited():
    with pytest.raises(QueryError, match="too long"):
        check("select " + "1," * 10_000 + "1")


@pytest.mark.parametrize(
    ("text", "kind", "subject"),
    [
        ("show tables", "show", ""),
        ("DESCRIBE kernels;", "describe", "kernels"),
        ('desc "v_steps"', "describe", "v_steps"),
        ("show columns from ops", "describe", "ops"),
        ("select 1", "select", ""),
    ],
)
def test_kinds(text: str, kind: str, subject: str):
    statement = parse(check(text))
    assert (statement.kind, statement.subject) == (kind, subject)


def test_names_are_words_and_quoted_words_but_not_text():
    assert parse("select a, 'v_gaps' as x from \"v_steps\" -- findings\n").names == {"select", "a", "as", "x", "from", "v_steps"}
