# SPDX-License-Identifier: Apache-2.0
"""Guarded processes: what they answer, what they cannot do, and how they end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pytest

from stepscope.query import QueryError, engine
from stepscope.query.engine import Engine, Limits, Store, StoreChanged
from stepscope.tables import ALL_TABLES, Tables
from stepscope.tables.store import write_store

pytestmark = pytest.mark.slow  # each process starts an interpreter and the columnar engine

ENDLESS = "with recursive n(i) as (select 1 union all select i + 1 from n) select sum(i) as s from n"
CROSS = "select count(*) as n from gc_pauses a cross join gc_pauses b cross join gc_pauses c cross join gc_pauses d"
COUNT = "select count(*) as n from gc_pauses"
ROWS = {"gc_pauses": 3000}


def pauses(count: int) -> Tables:
    starts = pl.Series("start_ns", range(count), dtype=pl.Int64)
    frame = pl.DataFrame([starts, (starts + 1).alias("end_ns"), pl.Series("pid", [1] * count)])
    return Tables({"gc_pauses": ALL_TABLES["gc_pauses"].conform(frame)})


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("query") / "store"
    write_store(folder, pauses(ROWS["gc_pauses"]), [])
    return Store(folder, rows=ROWS)


@pytest.fixture(scope="module")
def asked(store: Store) -> Iterator[Engine]:
    made = Engine()
    yield made
    made.close()


def test_answers(asked: Engine, store: Store):
    assert asked.ask([store], COUNT).frame.rows() == [(3000,)]
    first = asked.ask([store], "select start_ns, end_ns from gc_pauses order by start_ns desc", 2)
    assert (first.frame.columns, first.frame.rows(), first.more) == (["start_ns", "end_ns"], [(2999, 3000), (2998, 2999)], True)
    assert asked.ask([store], "select * from ops").frame.height == 0
    assert "gc_pauses" in asked.ask([store], "show tables").frame.to_series().to_list()
    assert len(asked._idle) == 1  # the same process answered all


@pytest.mark.parametrize(
    "query",
    ["select", "select nothing from gc_pauses", "select load_extension('x')", "select * from nowhere", "select 1 as a, 2 as a"],
)
def test_wrong_questions_leave_the_process_alone(asked: Engine, store: Store, query: str):
    with pytest.raises(QueryError, match="cannot be run"):
        asked.ask([store], query)
    assert asked.ask([store], COUNT).frame.item() == 3000


def test_no_file_can_be_opened(asked: Engine, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Also where the check of the text is passed: the process has no right to."""
    secret = tmp_path / "secret.csv"
    secret.write_text("a,b\n1,2\n")
    assert pl.SQLContext().execute(f"select * from read_csv('{secret}')", eager=True).rows() == [(1, 2)]
    monkeypatch.setattr(engine, "check", lambda text: text)
    with pytest.raises(QueryError):
        asked.ask([store], f"select * from read_csv('{secret}')")
    with pytest.raises(QueryError):
        asked.ask([store], "delete from gc_pauses; select 1 as x")
    assert asked.ask([store], COUNT).frame.item() == 3000


@pytest.mark.parametrize("query", [ENDLESS, CROSS], ids=["recursion", "cross join"])
def test_a_runaway_is_ended_and_the_next_is_answered(asked: Engine, store: Store, query: str):
    made = Engine(Limits(seconds=0.5))
    with pytest.raises(QueryError, match=r"longer than|more than it may"):
        made.ask([store], query)
    assert made._idle == []
    made.close()
    assert asked.ask([store], COUNT).frame.item() == 3000


def test_memory_is_limited(store: Store):
    made = Engine(Limits(memory=64 << 20, seconds=60.0))
    distinct = "select distinct a.start_ns * 3000 + b.start_ns as k from gc_pauses a cross join gc_pauses b"
    with pytest.raises(QueryError, match=r"more than it may|cannot be run"):
        made.ask([store], f"select count(*) as n from ({distinct}) t")
    made.close()


def test_large_answers_are_cut(asked: Engine, store: Store):
    wide = f"select concat('{'x' * 5000}', start_ns) as text from gc_pauses"
    answer = asked.ask([store], wide, 10_000)
    assert answer.more
    assert 0 < answer.frame.height < 3000
    assert answer.frame.estimated_size() < 11_000_000


def test_many_at_once_all_get_an_answer(store: Store):
    made = Engine(Limits(at_once=2, seconds=60.0))
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda _: made.ask([store], COUNT).frame.item(), range(16)))
    assert found == [3000] * 16
    assert len(made._idle) <= 2
    made.close()
    assert made._idle == []


HUGE = {
    "join": f"select string_agg(a.t) as t from (select concat({','.join(['start_ns'] * 200)}) as t from gc_pauses) a "
    "cross join gc_pauses b cross join gc_pauses c",
    "doubling": "with recursive n(t, i) as (select 'x' as t, 1 as i union all select concat(t, t), i + 1 from n where i < 60) "
    "select length(t) as l from n",
}


@pytest.mark.parametrize("kind", list(HUGE))
def test_huge_strings_are_ended(store: Store, kind: str):
    made = Engine(Limits(seconds=1.0, memory=256 << 20))
    with pytest.raises(QueryError, match=r"longer than|more than it may|cannot be run"):
        made.ask([store], HUGE[kind])
    made.close()


def test_many_runaways_at_once_are_ended_or_refused(store: Store):
    """Two run, two wait, the others are refused at once; the next question is answered."""
    made = Engine(Limits(seconds=1.0, waiting=2))

    def ask(_: int) -> str:
        with pytest.raises(QueryError) as problem:
            made.ask([store], CROSS)
        return "busy" if problem.value.busy else "ended"

    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(ask, range(16)))
    assert found.count("busy") >= 12
    assert found.count("ended") >= 2
    assert made._waiting == 0
    assert made.ask([store], COUNT).frame.item() == 3000
    made.close()


def test_nothing_is_written(asked: Engine, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(engine, "check", lambda text: text)
    before = sorted(path.stat().st_mtime_ns for path in store.folder.iterdir())
    for query in (f"copy gc_pauses to '{tmp_path}/x.csv'", "create table t as select * from gc_pauses", "truncate table gc_pauses"):
        try:
            asked.ask([store], query)
        except QueryError:
            continue
    assert list(tmp_path.iterdir()) == []
    assert sorted(path.stat().st_mtime_ns for path in store.folder.iterdir()) == before
    assert asked.ask([store], COUNT).frame.item() == 3000


def test_a_killed_process_costs_one_question(store: Store):
    made = Engine()
    made.ask([store], COUNT)
    os.kill(made._idle[0]._process.pid, 9)
    made._idle[0]._process.wait()
    assert made.ask([store], COUNT).frame.item() == 3000
    made.close()


def test_another_store_is_not_asked(asked: Engine, store: Store, tmp_path: Path):
    with pytest.raises(StoreChanged):
        Engine().ask([store._replace(rows={"gc_pauses": 5})], COUNT)
    with pytest.raises(StoreChanged):
        asked.ask([Store(tmp_path / "absent")], COUNT)


def test_a_store_that_was_built_again_gets_a_new_process(tmp_path: Path):
    write_store(tmp_path / "s", pauses(5), [])
    made = Engine()
    assert made.ask([Store(tmp_path / "s", rows={"gc_pauses": 5})], COUNT).frame.item() == 5
    write_store(tmp_path / "s", pauses(7), [])
    assert made.ask([Store(tmp_path / "s", rows={"gc_pauses": 7})], COUNT).frame.item() == 7
    made.close()
