# SPDX-License-Identifier: Apache-2.0
"""Views: fixed columns, figures that add up, and ranks told apart."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from verdict_simulator import Loop, Machine

from stepscope.analysis.link.capture import link
from stepscope.analysis.partition import parts
from stepscope.query import relations
from stepscope.query.reference import page
from stepscope.query.relations import Relations
from stepscope.query.statement import parse
from stepscope.query.views import columns
from stepscope.query.views.catalogue import VIEWS
from stepscope.query.views.columns import IDLE, VIEW_TABLES, plain
from stepscope.query.views.view import RankTables
from stepscope.tables import ALL_TABLES, Facts, Tables


def late(machine: Machine, step: int) -> None:
    machine.spend(4000)


def of_rank(loop: Loop, rank: int) -> RankTables:
    tables = link(loop.run().tables())
    return RankTables(tables.replace(meta=tables.facts.replace(rank=rank).table()), f"rank_{rank}")


@pytest.fixture(scope="module")
def ranks() -> list[RankTables]:
    return [of_rank(Loop(steps=5, communication=200.0), 0), of_rank(Loop(steps=5, communication=200.0, at_step=late, seed=5), 3)]


@pytest.fixture(scope="module")
def asked(ranks: list[RankTables]) -> Relations:
    return Relations(ranks, {name: view.frames(ranks) for name, view in VIEWS.items()})


def ask(asked: Relations, sql: str) -> pl.DataFrame:
    return pl.SQLContext(frames=asked.named(parse(sql).names)).execute(sql).collect()


def test_the_columns_are_declared_without_what_computes_them():
    assert list(VIEWS) == list(VIEW_TABLES)
    assert (columns.BUSY, columns.IDLE, columns.HOST) == (parts.BUSY, parts.IDLE, parts.HOST)


@pytest.mark.parametrize("name", list(VIEWS))
def test_each_view_has_its_columns_and_its_example_runs(asked: Relations, name: str):
    frame = asked.named([name])[name].collect()
    assert frame.columns == asked.describe(name)["column"].to_list()
    assert frame.height > 0 or name == "v_modules"
    assert set(frame["rank"].unique()) <= {0, 3}
    found = ask(asked, VIEWS[name].example)
    assert found.width > 1


def test_steps_parts_gaps_and_tasks_add_up(asked: Relations, ranks: list[RankTables]):
    steps = ask(asked, "select rank, step, total_ms from v_steps order by rank, step")
    assert steps.select("rank", "step").rows() == [(one.rank, step) for one in ranks for step in one.case.model.steps]
    by_part = ask(
        asked, "select rank, step, sum(ns) as ns, sum(share) as share from v_parts group by rank, step order by rank, step"
    )
    assert (by_part["ns"] / 1e6).to_list() == pytest.approx(steps["total_ms"].to_list())
    assert by_part["share"].to_list() == pytest.approx([1.0] * steps.height)
    gaps = asked.named(["v_gaps"])["v_gaps"].collect()
    assert gaps.select(pl.sum_horizontal(plain(part, "ns") for part in IDLE) == pl.col("ns")).to_series().all()
    exclusive = ask(asked, "select rank, part, sum(ns) as ns from v_exclusive group by rank, part order by rank, part")
    busy = ask(
        asked, "select rank, part, sum(ns) as ns from v_parts where part not like 'idle%' group by rank, part order by rank, part"
    )
    assert exclusive.equals(busy)


def test_kernels_know_their_operator_and_launch(asked: Relations, ranks: list[RankTables]):
    kernels = ranks[0].tables.kernels
    found = ask(asked, "select * from v_kernels where rank = 0 order by id")
    assert found["id"].to_list() == list(range(kernels.height))
    assert found["launch_delay_ns"].to_list() == (kernels["start_ns"] - kernels["launch_ns"]).to_list()
    names = ranks[0].tables.ops["name"].cast(pl.String).gather(kernels["op"]).to_list()
    assert None not in names
    assert found["op_name"].to_list() == names


def test_operators_sum_to_the_host_time_of_the_outer_ones(asked: Relations):
    found = ask(asked, "select sum(host_self_ns) as own, sum(host_total_ns) as whole from v_ops where parent is null")
    inside = ask(asked, "select sum(host_self_ns) as own from v_ops where parent is not null")
    assert found["own"].item() + (inside["own"].item() or 0) == found["whole"].item()


def test_the_late_rank_is_the_one_that_waits_least(ranks: list[RankTables]):
    long, short = (rank.tables.collectives for rank in ranks)
    shorter = short.with_columns(end_ns=pl.col("start_ns") + 1000, duration_ns=pl.lit(1000.0))
    changed = [RankTables(ranks[0].tables), RankTables(ranks[1].tables.replace(collectives=shorter))]
    frames = VIEWS["v_collectives"].frames(changed)
    assert frames[0]["late_rank"].unique().to_list() == [3]
    assert frames[0]["wait_ns"].to_list() == (long["end_ns"] - long["start_ns"] - 1000).to_list()
    assert frames[1]["wait_ns"].unique().to_list() == [0]
    alone = VIEWS["v_collectives"].frames(changed[:1])[0]
    assert alone["late_rank"].null_count() == alone["wait_ns"].null_count() == alone.height


def test_memory_by_step(asked: Relations, ranks: list[RankTables]):
    found = ask(asked, "select step, max(peak_allocated) as peak from v_memory_steps where rank = 3 group by step order by step")
    peaks = ranks[1].tables.memory_events["total_allocated"]
    assert found["peak"].max() == peaks.max()
    assert found["step"].drop_nulls().is_in(range(5)).all()


@pytest.mark.parametrize("name", list(ALL_TABLES))
def test_tables_are_described_as_they_are(asked: Relations, name: str):
    described = asked.describe(name)
    assert described["column"].to_list() == asked.named([name])[name].collect_schema().names()
    assert described["column"].to_list()[:2] == ["id", "rank"]
    assert described.filter(pl.col("doc").str.len_chars() == 0).height == 0


def test_metrics_that_only_the_capture_names_are_described():
    metrics = pl.DataFrame({"kernel": [0], "mac_ratio": [0.5]}, schema={"kernel": pl.Int64, "mac_ratio": pl.Float64})
    asked = Relations([RankTables(Tables({"kernel_metrics": metrics}))], {})
    assert ("mac_ratio", "number") in asked.describe("kernel_metrics").select("column", "type").rows()


def test_captures_of_one_rank_are_numbered(ranks: list[RankTables]):
    asked = Relations([ranks[0], ranks[0]], {})
    assert asked.numbered
    assert ask(asked, "select capture, count(*) as n from steps group by capture order by capture").rows() == [(0, 5), (1, 5)]
    assert "capture" in asked.describe("steps")["column"].to_list()
    assert not Relations(ranks, {}).numbered


def test_a_capture_of_no_rank_has_none():
    tables = Tables({"meta": Facts().table(), "steps": ALL_TABLES["steps"].conform(pl.DataFrame({"step": [1]}))})
    assert ask(Relations([RankTables(tables)], {}), "select rank, step from steps").rows() == [(None, 1)]


@pytest.mark.parametrize("name", list(VIEWS))
def test_views_of_an_empty_capture_are_empty(name: str):
    frame = VIEWS[name].frames([RankTables(Tables())])[0]
    assert (frame.height, frame.columns) == (name in ("facts", "v_steps"), list(VIEW_TABLES[name].schema))


def test_unknown_names_are_corrected(asked: Relations):
    assert relations.unknown_relation("kernals").startswith("there is no table 'kernals'; did you mean kernels")


def test_the_page_is_up_to_date():
    assert (Path(__file__).parents[3] / "docs" / "views.md").read_text() == page()
