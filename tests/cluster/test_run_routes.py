# SPDX-License-Identifier: Apache-2.0
"""The routes about all ranks of a run, over simulated captures whose truth is known."""

from __future__ import annotations

import pytest
from werkzeug.test import Client

from stepscope.cluster.simulate import Fault, Plan, record
from stepscope.cluster.simulate.captures import write_captures
from stepscope.tables.cluster import CAUSES
from stepscope.web.app import App
from stepscope.web.catalogue import Catalogue

SLOW = 3  # of 8 ranks in 2 stages × 2 × 2
ADDED_MS = 6.0


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    plan = Plan("megatron", tp=2, pp=2, dp=2, micro=3, layers=1, per_host=4)
    recording = record(plan, 3, 4, Fault("data_loading", SLOW, ns=ADDED_MS * 1e6), offset_ms=5.0)
    write_captures(folder, recording, "kineto")
    catalogue = Catalogue([folder], clock=lambda: 0.0)
    yield Client(App(catalogue))
    catalogue.close()


def get(client, path, status=200, **query):
    answer = client.get(f"/api/v1/{path}", query_string={"wait": 30, **query})
    assert answer.status_code == status, answer.get_data()[:500]
    return answer.json


def spans(row):
    return list(zip(*(row["work"][name] for name in ("start", "end", "kind")), strict=True))


def test_the_finding_and_the_worker_of_each_rank(client):
    answer = get(client, "cluster")
    top = answer["findings"][0]
    assert (top["kind"], top["ranks"], top["cause"]) == ("slow_rank", [SLOW], "data_loading")
    assert str(SLOW) in top["who"]["en"]
    assert top["why"]["zh"]
    assert top["severity"] == "high", "6 ms of a step"
    assert [row["rank"] for row in answer["ranks"]] == list(range(8))
    assert len({row["worker"] for row in answer["ranks"]}) == 8
    assert [row["stage"] for row in answer["ranks"]] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert len(answer["lines"]["en"]) == len(answer["lines"]["zh"]) <= 25


def test_heat_map_shows_the_excess_of_the_slow_rank_in_every_step(client):
    answer = get(client, "cluster/heat", value="excess")
    assert answer["ranks"] == list(range(8))
    assert len(answer["steps"]) == 3
    for column in zip(*answer["rows"], strict=True):
        assert column.index(max(column)) == SLOW
        assert max(column) == pytest.approx(ADDED_MS * 1e3, rel=0.1)
    grouped = get(client, "cluster/heat", value="step", group="host")
    assert grouped["bands"] == [{"name": "host0", "first": 0, "count": 4}, {"name": "host1", "first": 4, "count": 4}]
    assert sorted(grouped["ranks"]) == list(range(8))
    assert grouped["least"] > 0
    assert get(client, "cluster/heat", 422, value="mood")["error"]["code"] == "parameter"


def test_ranks_on_one_clock(client):
    answer = get(client, "cluster/timeline")
    assert answer["refused"] == []
    assert len(answer["ranks"]) == 8
    whole = {row["rank"]: row for row in answer["ranks"]}
    wait = answer["kinds"].index("wait")
    for row in whole.values():
        work = row["work"]
        assert all(start < end for start, end in zip(work["start"], work["end"], strict=True))
        assert all(end <= start + 2 for end, start in zip(work["end"], work["start"][1:], strict=False))
    waited = {rank: sum(end - start for start, end, kind in spans(row) if kind == wait) for rank, row in whole.items()}
    assert min(waited, key=waited.get) == SLOW
    # Members of a call end together on the common clock.
    shared = next(
        call
        for call, op in zip(whole[0]["calls"]["call"], whole[0]["calls"]["op"], strict=True)
        if answer["ops"][op] == "allreduce"
    )
    call = get(client, "cluster/call", call=shared)
    ends = [member["end"] for member in call["members"]]
    assert len(ends) == call["expected"] == len(call["group"]) > 1
    assert max(ends) - min(ends) < 100_000
    assert get(client, "cluster/call", 404, call=10**9)["error"]["code"] == "unknown_call"
    # A window of few pixels is thinned, and keeps to its bounds.
    middle = answer["length_ns"] // 2
    part = get(client, "cluster/timeline", ranks="1,3", pixels=5, **{"from": middle, "to": middle + 20_000_000})
    assert [row["rank"] for row in part["ranks"]] == [1, 3]
    assert all(row["work"]["thinned"] and len(row["work"]["start"]) <= 5 for row in part["ranks"])
    drawn = [span for row in part["ranks"] for span in spans(row)]
    assert all(middle <= start < end <= middle + 20_000_001 for start, end, _ in drawn)


def test_matrix_of_pairs(client):
    answer = get(client, "cluster/matrix")
    pairs = {(link["src"], link["dst"]) for link in answer["links"]}
    assert pairs == {(low, low + 4) for low in range(4)} | {(low + 4, low) for low in range(4)}
    assert all(link["bytes"] == 3 * 3 * (8 << 20) for link in answer["links"])  # 3 steps × 3 micro-batches
    assert all(1 < link["bandwidth"] < 150 for link in answer["links"])
    assert get(client, "cluster/matrix", transport="p2p")["links"] == answer["links"]


def test_pipeline(client):
    answer = get(client, "cluster/pipeline", ranks="0,4")
    assert [stage["rank"] for stage in answer["stages"]] == [0, 4]
    assert answer["micro"] == 3
    assert answer["ideal_bubble"] == pytest.approx(1 / 4)
    first, last = answer["stages"]
    assert first["kind"].count("send") == last["kind"].count("recv") == 3
    assert {"forward", "bubble"} <= set(first["kind"])
    assert 0 < answer["bubble"] < 1
    # What is not computing, whatever for: it compares with the ideal, which receives alone do not.
    heat = {value: get(client, "cluster/heat", value=value) for value in ("computing", "step")}
    column = heat["step"]["steps"].index(answer["step"])
    computing, length = (
        [heat[value]["rows"][heat[value]["ranks"].index(rank)][column] for rank in (0, 4)] for value in ("computing", "step")
    )
    assert [stage["idle"] for stage in answer["stages"]] == pytest.approx(
        [1 - part / whole for part, whole in zip(computing, length, strict=True)], abs=1e-3
    )
    assert answer["bubble"] < answer["idle"] > answer["ideal_bubble"]


def test_what_if(client):
    slow = get(client, "cluster/whatif", ranks=SLOW)
    finding = get(client, "cluster")["findings"][0]
    assert slow["saved_ms"] == pytest.approx(finding["saving_ms"], abs=1e-3)
    assert get(client, "cluster/whatif", ranks=SLOW, causes="data_loading")["saved_ms"] == pytest.approx(slow["saved_ms"], rel=0.1)
    assert get(client, "cluster/whatif", ranks=SLOW, causes="gc")["saved_ms"] == pytest.approx(0, abs=0.05)
    assert get(client, "cluster/whatif")["saved_ms"] == 0
    everything = get(client, "cluster/whatif", causes=",".join(CAUSES))
    assert everything["saved_ms"] >= slow["saved_ms"] - 0.01
    assert len(everything["steps"]) == 3
    assert get(client, "cluster/whatif", 422, ranks=99)["error"]["detail"].endswith("not 99")


def test_a_run_of_one_rank_has_no_such_answer(tmp_path):
    write_captures(tmp_path, record(Plan("ddp", dp=2), 2, 1), "kineto", missing=[1])
    catalogue = Catalogue([tmp_path], clock=lambda: 0.0)
    assert get(Client(App(catalogue)), "cluster", 404)["error"]["code"] == "missing_data"
    catalogue.close()
