# SPDX-License-Identifier: Apache-2.0
"""Time of several ranks: what is added up, what stays apart, and what a narrow terminal shows."""

from __future__ import annotations

import json

import polars as pl
import pytest
from kineto_events import event, kernel, written

from stepscope.capture import open_all
from stepscope.cli import main
from stepscope.cli.terminal_table import fit
from stepscope.top import TOP, top


@pytest.fixture
def ranks(tmp_path):
    """Rank 0 runs two gemm of 100 us, rank 1 one of 300 us and a copy kernel of 50 us."""
    for rank, kernels in ((0, [("gemm", 100), ("gemm", 100)]), (1, [("gemm", 300), ("copy", 50)])):
        folder = tmp_path / "run"
        folder.mkdir(exist_ok=True)
        events = [event("user_annotation", "ProfilerStep#3", 900, 2000 + rank)]
        for number, (name, length) in enumerate(kernels):
            at = 1000 + 500 * number
            events += [
                event("cpu_op", f"aten::{name}", at, 50, args={"External id": number + 1}),
                event("cuda_runtime", "cudaLaunchKernel", at + 10, 5, args={"correlation": number + 1, "External id": number + 1}),
                kernel(name, at + 20, length, number + 1, number + 1),
            ]
        written(folder, events, f"rank{rank}.pt.trace.json", distributedInfo={"rank": rank, "world_size": 2})
    return tmp_path / "run"


def tables(folder):
    return [capture.tables for capture in open_all(folder)]


def test_kernels_of_all_ranks_are_added_up(ranks):
    rows = {row["name"]: row for row in top(tables(ranks), by="kernel").to_dicts()}
    gemm = rows["gemm"]
    assert (gemm["calls"], gemm["total_ms"], gemm["min_ms"], gemm["max_ms"]) == (3, pytest.approx(0.5), 0.1, 0.3)
    assert gemm["mean_ms"] == pytest.approx(0.5 / 3)
    assert rows["gemm"]["share"] == pytest.approx(0.5 / 0.55)
    assert sum(row["share"] for row in rows.values()) == pytest.approx(1)


def test_one_rank_of_a_list_is_that_rank(ranks):
    first = tables(ranks)[0]
    assert top([first], by="op").equals(top(first, by="op"))


@pytest.mark.parametrize("by", ["op", "kernel", "api", "module", "mark"])
def test_the_sum_of_two_equal_ranks_has_the_same_shares_and_twice_the_time(ranks, by):
    one = tables(ranks)[0]
    alone, both = top(one, by=by), top([one, one], by=by)
    key = list(TOP[by].key)
    joined = alone.with_columns(pl.col(pl.Categorical()).cast(pl.String)).join(both, on=key, suffix="_both", nulls_equal=True)
    assert joined.height == alone.height == both.height
    for column in alone.columns:
        if column in key or not joined.height:
            continue
        times = 1 if column.endswith("share") or column.split("_")[0] in ("min", "max", "mean") else 2
        assert joined[f"{column}_both"].to_list() == pytest.approx((joined[column] * times).to_list()), column


def test_steps_stay_with_their_rank(ranks):
    frame = top(tables(ranks), by="step")
    assert frame.select("rank", "step").rows() == [(0, 3), (1, 3)]
    assert frame["host_ms"].to_list() == [2.0, 2.001]


def test_by_rank_gives_the_mean_step_of_each(ranks):
    frame = top(tables(ranks), by="rank")
    assert frame["rank"].to_list() == [0, 1]
    assert frame["computing_ms"].to_list() == pytest.approx([0.2, 0.35])


def test_a_rank_is_chosen_on_the_command_line(ranks, capsys):
    assert main(["top", str(ranks), "--by", "kernel", "--rank", "1", "--json"]) == 0
    calls = {json.loads(line)["name"]: json.loads(line)["calls"] for line in capsys.readouterr().out.splitlines()}
    assert calls == {"gemm": 1, "copy": 1}


def test_an_absent_rank_is_named_with_those_that_are_here(ranks, capsys):
    assert main(["top", str(ranks), "--rank", "7"]) == 3
    err = capsys.readouterr().err
    assert "no capture of rank 7" in err
    assert "ranks here: 0, 1" in err


def test_two_captures_of_one_rank_are_said(ranks, capsys):
    assert main(["top", str(ranks / "rank0.pt.trace.json"), str(ranks / "rank0.pt.trace.json"), "--json"]) == 0
    assert "several captures of rank 0" in capsys.readouterr().err


def test_names_get_the_room_and_lesser_columns_go():
    columns = {"name": ["a" * 30 + "b" * 30], "calls": ["12"], "min_ms": ["1.000"], "total_ms": ["1,000.000"]}
    assert list(fit(columns, "name", 120, ("min_ms",))) == list(columns)
    narrow = fit(columns, "name", 60, ("min_ms",))
    assert list(narrow) == ["name", "calls", "total_ms"]
    (name,) = narrow["name"]
    assert sum(3 + width for width in (len(name), len("calls"), len("1,000.000"))) + 1 == 60
    assert name.startswith("aaa")
    assert name.endswith("bbb")


def test_a_narrow_terminal_shows_every_row_in_its_width(ranks, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")  # no colours
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    for by in (*TOP, "rank"):
        assert main(["top", str(ranks), "--by", by]) == 0
        assert max(map(len, capsys.readouterr().out.splitlines())) <= 80, by
