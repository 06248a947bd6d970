"""Slow links: by the bandwidth of pairs, by what slow groups have in common, and by the steps of a group without peers."""

from __future__ import annotations

import polars as pl
import pytest

from stepscope.cluster.analyse import analyse
from stepscope.cluster.digest import Digests
from stepscope.cluster.simulate import Fault, Plan, digests_of, programs, record, recording
from stepscope.cluster.words import who_text
from stepscope.tables.cluster import CLUSTER_TABLES

MOE = Plan("moe", dp=16, micro=2, layers=1)
SECOND = tuple(range(8, 16))
DDP = Plan("ddp", dp=8, micro=2, layers=1)


def _linked(digests: Digests, slow: dict[tuple[int, int], float], steps: int) -> Digests:
    """With records of links: every pair of neighbours of each group, 100 GB/s but for the slow ones."""
    members = dict(digests["cluster_members"].iter_rows())
    rows = []
    for rank, group, listed in digests["cluster_groups"].select("rank", "group", "listed").iter_rows():
        ranks = members[listed]
        for src, dst in zip(ranks, [*ranks[1:], ranks[0]], strict=True):
            speed = 100.0 * slow.get((min(src, dst), max(src, dst)), 1.0) * (1 + 0.01 * ((src * 7 + dst) % 5))
            if rank == src and src != dst:
                rows += [(rank, step, group, src, dst, "HCCS", 8, 4, 4e8, 4e8 / speed) for step in range(steps)]
    names = [column.name for column in CLUSTER_TABLES["cluster_links"].columns]
    frame = CLUSTER_TABLES["cluster_links"].conform(pl.DataFrame(rows, schema=names, orient="row"))
    return Digests({**digests.frames, "cluster_links": frame})


def _links(digests: Digests):
    return [one for one in analyse(digests).findings if one.kind in ("slow_link", "slow_group")]


def test_of_a_slow_group_the_pair_with_the_low_bandwidth_is_named():
    whole = digests_of(record(MOE, 4, 3, Fault("group", 9, 5.0, link=("ep", SECOND))))
    (unknown,) = _links(whole)
    assert (unknown.kind, unknown.ranks, unknown.link) == ("slow_group", list(SECOND), [])
    assert "over which link is unknown" in who_text(unknown, "en")
    (found,) = _links(_linked(whole, {(10, 11): 0.2}, 4))
    assert (found.kind, found.ranks, found.link) == ("slow_link", [10, 11], [10, 11])
    assert found.cost_ns == unknown.cost_ns
    assert {"what": "bandwidth", "ranks": [10, 11], "transport": "HCCS"}.items() <= found.evidence[-1].items()
    assert who_text(found, "en") == "the link between ranks 10, 11 is slow"
    # Several slow pairs with one rank in common are the links of that rank; with none, the link stays unknown.
    (port,) = _links(_linked(whole, {(9, 10): 0.2, (10, 11): 0.2}, 4))
    assert (port.link, who_text(port, "zh")) == ([10], "rank 10 的链路慢")
    (several,) = _links(_linked(whole, {(9, 10): 0.2, (12, 13): 0.2}, 4))
    assert (several.kind, several.link) == ("slow_group", [])


def test_a_slow_pair_of_a_group_that_is_the_whole_run():
    whole = digests_of(record(DDP, 4, 3, Fault("group", 0, 6.0, link=("dp", tuple(range(8))))))
    healthy = record(DDP, 4, 3)
    assert _links(whole) == []  # nothing to compare its only group with
    (found,) = _links(_linked(whole, {(2, 3): 1 / 6}, 4))
    assert (found.kind, found.link, found.confidence) == ("slow_link", [2, 3], "medium")
    lost = float((record(DDP, 4, 3, Fault("group", 0, 6.0, link=("dp", tuple(range(8))))).step_ns - healthy.step_ns).mean())
    assert found.cost_ns == pytest.approx(lost, rel=0.25)


@pytest.mark.parametrize(("share", "samples"), [(0.8, 4), (0.2, 0)], ids=["not-so-slow", "too-few-samples"])
def test_a_link_that_is_not_called_slow(share, samples):
    digests = _linked(digests_of(record(MOE, 4, 3)), {(10, 11): share}, 4)
    few = digests["cluster_links"].with_columns(count=pl.lit(samples, pl.Int64))
    assert _links(Digests({**digests.frames, "cluster_links": few})) == []


def test_a_slow_pair_whose_group_takes_no_longer_than_others_costs_nothing():
    assert _links(_linked(digests_of(record(MOE, 4, 3)), {(10, 11): 0.2}, 4)) == []


def test_the_rank_that_all_slow_groups_have_in_common(monkeypatch):
    usual = programs.transfer_ns

    def slower(plan, call, fault, rng):
        return usual(plan, call, fault, rng) * (5 if 9 in call[2] and len(call[2]) < plan.world else 1)

    monkeypatch.setattr(recording, "transfer_ns", slower)
    (found,) = _links(digests_of(record(Plan("hsdp", dp=32, micro=2, layers=1), 4, 3)))
    assert (found.kind, found.link, found.group) == ("slow_link", [9], None)
    assert who_text(found, "en") == "the links of rank 9 are slow"


def test_a_network_that_is_slow_for_all_ranks_in_some_steps():
    fault = Fault("group", 0, 8.0, every=4, link=("dp", tuple(range(8))))
    (found,) = _links(digests_of(record(DDP, 8, 3, fault)))
    assert (found.kind, found.cause, found.link, found.steps) == ("slow_group", "network", [], [0, 4])
    assert who_text(found, "en") == "the network is slow for all ranks"
    lost = float((record(DDP, 8, 3, fault).step_ns - record(DDP, 8, 3).step_ns).mean())
    assert found.cost_ns == pytest.approx(lost, rel=0.25)
    assert _links(digests_of(record(DDP, 8, 3))) == []


def test_groups_that_are_only_numbered_are_compared():
    """Without a name of its own the framework numbers a group: 1, 2, …"""
    whole = digests_of(record(MOE, 4, 3, Fault("group", 9, 5.0, link=("ep", SECOND))))
    groups = whole["cluster_groups"].with_columns(pg_name=pl.col("group").rank("dense").cast(pl.String))
    (found,) = _links(Digests({**whole.frames, "cluster_groups": groups}))
    assert (found.kind, found.ranks) == ("slow_group", list(SECOND))


def test_what_keeps_a_rank_after_its_last_call_is_not_of_the_step():
    """Stopping the profiler takes some ranks longer than others."""
    whole = digests_of(record(DDP, 6, 3, Fault("frequency", 2, 1.3)))
    steps, calls = whole["cluster_steps"], whole["cluster_calls"]
    mine = (pl.col("rank") == 2) & (pl.col("step") == 5)
    longer = pl.when(mine & pl.col("op").is_null()).then(200_000_000).otherwise(0)
    kept = Digests(
        {
            **whole.frames,
            "cluster_calls": calls.with_columns(w_other=pl.col("w_other") + longer),
            "cluster_steps": steps.with_columns(end_ns=pl.col("end_ns") + pl.when(mine).then(200_000_000).otherwise(0)),
        }
    )
    (found,) = [one for one in analyse(kept).findings if one.kind == "slow_rank"]
    assert (found.ranks, found.pattern, found.cause, found.steps) == ([2], "persistent", "frequency", [0, 1, 2, 3, 4])
