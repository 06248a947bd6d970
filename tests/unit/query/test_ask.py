# SPDX-License-Identifier: Apache-2.0
"""`stepscope.query`: paths, captures, tables and lists of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from verdict_simulator import Loop

import stepscope
from raw_capture import capture
from stepscope.analysis.link.capture import link
from stepscope.query import QueryError, ask
from stepscope.tables import Tables
from stepscope.tables.sealed_folder import MANIFEST

pytestmark = pytest.mark.slow  # each process starts an interpreter and the columnar engine


def simulated(rank: int) -> Tables:
    tables = link(Loop(steps=2).run().tables())
    return tables.replace(meta=tables.facts.replace(rank=rank).table())


def test_ranks_of_tables():
    ranks = [simulated(0), simulated(1)]
    found = stepscope.query(ranks, "select rank, count(*) as n from v_steps group by rank order by rank")
    assert found.rows() == [(0, 2), (1, 2)]
    both = "select k.rank, o.name from kernels k join ops o on k.op = o.id and k.rank = o.rank"
    with pytest.warns(UserWarning, match="cut after 3 rows"):
        assert stepscope.query(ranks, both, limit=3).height == 3
    assert len(ask._copies) == 2
    del ranks
    assert ask._copies == {}  # the copies go with the tables


def test_a_path_and_its_capture(tmp_path: Path):
    folder = capture(tmp_path)
    sql = "select count(*) as n from ops"
    assert stepscope.query(folder, sql).item() == 1
    opened = stepscope.open(folder)
    assert stepscope.query(opened, sql).item() == 1
    assert stepscope.query(str(tmp_path), "describe ops")["column"].to_list()[:2] == ["id", "rank"]
    shown = stepscope.query(opened, "show tables")
    assert shown.filter(name="ops")["rows"].item() == 1


def test_a_damaged_store_is_not_asked(tmp_path: Path):
    folder = capture(tmp_path)
    opened = stepscope.open(folder)
    store = opened.stored()
    assert store is not None
    (store / "ops.arrow").write_bytes(b"damaged")
    assert (store / MANIFEST).exists()
    assert stepscope.query(folder, "select count(*) as n from ops").item() == 1


@pytest.mark.parametrize(
    "sql", ["drop table ops", "select * from read_csv('/etc/passwd')", "select * from kernals", "describe nothing"]
)
def test_what_is_wrong_is_said(tmp_path: Path, sql: str):
    with pytest.raises(QueryError) as refused:
        stepscope.query(simulated(0), sql)
    assert "do this: " in str(refused.value)
