# SPDX-License-Identifier: Apache-2.0
"""Waiting for ranks that were not recorded, and for a rank in the only step."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from stepscope.cluster.analyse import analyse
from stepscope.cluster.digest import Digests
from stepscope.cluster.match import Matches, match
from stepscope.cluster.outside import latest_rank, wait_outside
from stepscope.cluster.simulate import Plan, digests_of, record
from stepscope.cluster.simulate.programs import Fault

PLAN = Plan("ddp", dp=4, layers=2, per_host=4)


@pytest.fixture(scope="module")
def digests() -> Digests:
    return digests_of(record(PLAN, 3, 1))


def without(digests: Digests, *missing: int) -> Digests:
    return digests.filter([rank for rank in digests.ranks if rank not in missing])


def waiting(digests: Digests, ns: int) -> Digests:
    """Every rank waits so long in every call."""
    calls = digests["cluster_calls"].with_columns(wait_ns=pl.when(pl.col("group").is_null()).then(0).otherwise(ns))
    steps = digests["cluster_steps"].with_columns(exposed_ns=pl.lit(10**12))
    return Digests({**digests.frames, "cluster_calls": calls, "cluster_steps": steps})


def test_where_every_recorded_rank_waits_it_is_for_one_that_was_not_recorded(digests):
    calls = digests["cluster_calls"].drop_nulls("group").filter((pl.col("rank") == 0) & (pl.col("step") == 1)).height
    few = waiting(without(digests, 3), 7_000)
    steps = sorted(few["cluster_steps"]["step"].unique())
    assert wait_outside(few, match(few), steps) == 7_000 * calls
    assert wait_outside(waiting(digests, 7_000), match(digests), steps) == 0, "all are there"
    hidden = Digests({**few.frames, "cluster_steps": few["cluster_steps"].with_columns(exposed_ns=pl.lit(100))})
    assert wait_outside(hidden, match(hidden), steps) == 100, "no more than what is not hidden"


def test_the_wait_is_said_when_it_is_a_share_of_the_step(digests):
    few = without(digests, 3)
    step_ns = float(np.median(analyse(few).step_ns))
    assert analyse(waiting(few, 1)).wait_outside_ns == 0
    found = analyse(waiting(few, int(step_ns / 10)))
    assert found.wait_outside_ns > 0.02 * step_ns
    assert found.as_dict()["wait_outside_ms"] == pytest.approx(found.wait_outside_ns / 1e6, abs=1e-6)


def test_a_rank_waits_no_longer_than_its_steps_take():
    """A pipeline of which one rank is not recorded: both its neighbours wait for it, at the same time."""
    plan = Plan("megatron", tp=2, pp=4, dp=2)
    few = digests_of(record(plan, 4, 1, Fault("dispatch", 5, ns=200_000)), (5,))
    found = analyse(few)
    assert 0.1 * np.median(found.step_ns) < found.wait_outside_ns < np.median(found.step_ns)
    assert [one.kind for one in found.findings] == [], "that they wait is no imbalance among those that were recorded"


def test_members_of_a_group_without_a_list_are_known_by_its_links(digests):
    """Two of four ranks that nobody lists; they send to all four."""
    few = without(digests, 2, 3)
    key = few["cluster_groups"]["group"][0]
    schema = few["cluster_links"].schema
    rows = [(rank, 1, key, rank, peer, "HCCS", 5, 1, 1.0, 1.0) for rank in (0, 1) for peer in range(4) if peer != rank]
    links = pl.DataFrame(rows, schema=schema, orient="row")
    unlisted = few["cluster_groups"].with_columns(listed=pl.lit(None, few["cluster_groups"].schema["listed"]))
    ranks = few["cluster_ranks"].with_columns(world_size=pl.lit(None, pl.Int64))
    known = {**few.frames, "cluster_groups": unlisted, "cluster_ranks": ranks, "cluster_links": links}
    found = analyse(Digests(known))
    assert (found.expected, found.missing) == (4, [2, 3])
    # Where they send under other numbers, how many there are is known, and not which.
    shifted = links.with_columns(src=3 - pl.col("src"), dst=3 - pl.col("dst"))
    other = analyse(Digests({**known, "cluster_links": shifted}))
    assert (other.expected, other.missing) == (4, [])


def test_the_latest_rank_stays_in_its_calls_the_shortest(digests):
    start = pl.when(pl.col("rank") == 2).then(pl.col("end_ns") - 10).otherwise(pl.col("end_ns") - 110)
    calls = digests["cluster_calls"].with_columns(start_ns=start)
    late = Digests({**digests.frames, "cluster_calls": calls})
    count = calls.drop_nulls("group").filter((pl.col("rank") == 0) & (pl.col("step") == 1)).height
    assert latest_rank(match(late), 1) == (2, 100.0 * count)


@pytest.mark.parametrize("ranks", [2, 3, 8, 9])
def test_the_middle_is_that_of_all_others_also_of_those_that_share_no_call(ranks):
    """Against a loop over all pairs; each call has some of the ranks."""
    chance = np.random.default_rng(ranks)
    for _ in range(20):
        calls = [chance.choice(ranks, chance.integers(2, ranks + 1), replace=False) for _ in range(chance.integers(1, 7))]
        lengths = [chance.permutation(100)[: len(members)] for members in calls]
        lost = {rank: dict.fromkeys(set(np.concatenate(calls).tolist()) - {rank}, 0) for rank in range(ranks)}
        latest = set()
        for members, length in zip(calls, lengths, strict=True):
            late = int(members[length.argmin()])
            latest.add(late)
            for rank, took in zip(members.tolist(), length.tolist(), strict=True):
                if rank != late:
                    lost[late][rank] += took - int(length.min())
        rows = [
            {"rank": int(rank), "call": call, "step": 0, "op": "allReduce", "start_ns": 0, "end_ns": int(took)}
            for call, members in enumerate(calls)
            for rank, took in zip(members, lengths[call], strict=True)
        ]
        expected = max((float(np.median(list(lost[late].values()))), -late) for late in latest)
        unasked = np.empty(0, dtype=np.int64)
        found = latest_rank(Matches(pl.DataFrame(rows), [], unasked, unasked, unasked), 0)
        assert found == (-expected[1], expected[0])
