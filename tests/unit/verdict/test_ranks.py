# SPDX-License-Identifier: Apache-2.0
"""Several ranks that meet in collectives: who is late, and what that costs the others."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest
from verdict_simulator import BASE_NS, COMMUNICATION, COMPUTE, Machine

from stepscope.tables import Tables
from stepscope.verdict import verdict, what_if, what_if_ranks

STEPS, LAYERS = 8, 5
Problem = Callable[[Machine, int], None]


def _rank(machine: Machine, problem: Problem | None):
    """A training loop that yields when it reaches a collective, and gets back when the last rank did."""
    for step in range(STEPS):
        began = machine.now
        machine.spend(50)
        if problem:
            problem(machine, step)
        for turn in range(2 * LAYERS):
            ready = machine.operator("MatMulV2", 9.0, 300.0)
            machine.operator("Add", 9.0, 50.0)
            if turn < LAYERS:
                continue
            machine.now += 5
            start = max(machine.now + machine.latency, machine.free[COMMUNICATION] + 2, ready + 2)
            end = machine.free[COMMUNICATION] = (yield start) + 120
            named = {"name": "hcom_allReduce__1", "op_type": "hcom_allReduce_", "group": "g", "bytes": 4 << 20}
            launched = {"launch_ns": BASE_NS + int(machine.now * 1000), "launch_tid": 1}
            machine.add("collectives", start, end, device=0, **named, **launched)
        machine.free[COMPUTE] = max(machine.free[COMPUTE], machine.free[COMMUNICATION])
        for _ in range(4):
            machine.operator("ApplyAdamW", 9.0, 90.0)
        machine.add("steps", began, machine.now, step=step, inflated=False)


def ranks(count: int, problems: dict[int, Problem] | None = None, slower: dict[int, float] | None = None):
    """Tables of all ranks, and how long a step took them, ns."""
    problems, slower = problems or {}, slower or {}
    machines = [Machine(seed=50 + rank, slower={"MatMulV2": slower.get(rank, 1.0)}) for rank in range(count)]
    loops = [_rank(machine, problems.get(rank)) for rank, machine in enumerate(machines)]
    reached = [next(loop) for loop in loops]
    while reached:
        last = max(reached)
        reached = [start for loop in loops if (start := _sent(loop, last)) is not None]
    every = [
        tables.replace(meta=tables.facts.replace(rank=rank).table()) for rank, tables in enumerate(m.tables() for m in machines)
    ]
    return every, 1000 * max(max(machine.free.values()) for machine in machines) / STEPS


def _sent(loop, last: float) -> float | None:
    try:
        return loop.send(last)
    except StopIteration:
        return None


def loading(machine: Machine, step: int) -> None:
    start, end = machine.spend(9000)
    machine.add("ops", start, end, pid=1, tid=1, name="enumerate(DataLoader)#x.__next__", scope=7)


@pytest.fixture(scope="module")
def usual():
    return ranks(4)


def test_nothing_is_said_of_ranks_that_meet_in_time(usual):
    assert [one.rule for one in verdict(usual[0]).findings if one.severity != "info"] == []


def test_a_late_rank_costs_what_the_others_wait_without_computing(usual):
    tables, step = ranks(4, {2: loading})
    found = {one.rule: one for one in verdict(tables).findings}
    true = step - usual[1]
    assert (found["peer-wait"].params["late_rank"], found["data-wait"].ranks) == (2, (2,))
    assert found["peer-wait"].saved_ns / true == pytest.approx(0.85, abs=0.2)
    assert found["data-wait"].saved_ns / true == pytest.approx(1.0, abs=0.2)
    # Collectives in a row behind the late rank could hide again once it is in time.
    assert "exposed-communication" not in found


def test_ranks_that_are_late_in_turns_have_no_late_rank():
    tables, _ = ranks(4, dict.fromkeys(range(4), loading))
    loud = [one.rule for one in verdict(tables).findings if one.severity in ("high", "medium")]
    assert loud == ["data-wait"]


def test_a_rank_with_more_work_is_named(usual):
    tables, step = ranks(4, slower={1: 1.4})
    found = {one.rule: one for one in verdict(tables).findings}
    assert (found["rank-imbalance"].rank, found["peer-wait"].params["late_rank"]) == (1, 1)
    assert found["rank-imbalance"].saved_ns / (step - usual[1]) == pytest.approx(1.0, abs=0.25)


def test_ranks_without_common_collectives_are_not_compared(usual):
    apart = [
        Tables({"steps": one.steps, "ops": one.ops, "kernels": one.kernels, "api_calls": one.api_calls, "meta": one.meta})
        for one in usual[0]
    ]
    assert all(one.collectives.height == 0 for one in apart)
    assert [one.rule for one in verdict(apart).findings if one.rule == "peer-wait"] == []


def test_mending_a_late_rank_is_worth_what_all_ranks_gain(usual):
    tables, step = ranks(4, {2: loading})
    joined = what_if_ranks(tables, without=["data"])
    true = (step - usual[1]) / 1e6
    assert [one.saved_ms / true for one in joined] == pytest.approx([1.0] * 4, abs=0.25)
    assert all(one.joined for one in joined)
    # On their own the others have nothing to mend.
    assert what_if(tables[0], without=["data"]).saved_ms == pytest.approx(0.0, abs=0.1)


def test_ranks_that_nothing_changes_for_end_when_they_did(usual):
    assert [one.saved_ms for one in what_if_ranks(usual[0])] == pytest.approx([0.0] * 4)


def test_shorter_collectives_are_shorter_for_all_their_ranks():
    """One collective behind each other: half of the transfer goes, the wait for the last rank stays."""
    tables, _ = ranks(3, slower={0: 1.5})
    whole, half = (what_if_ranks(tables, scale=[f"collective={factor}"]) for factor in (0.0, 0.5))
    for none, some in zip(whole, half, strict=True):
        assert 0 <= some.saved_ms <= none.saved_ms <= none.now_ms * 0.2


def test_a_change_has_to_match_on_one_rank_only(usual):
    other = usual[0][1]
    renamed = other.kernels.with_columns(name=pl.lit("Own").cast(pl.Categorical()), op_type=pl.lit("Own").cast(pl.Categorical()))
    first, second = what_if_ranks([usual[0][0], other.replace(kernels=renamed)], scale=["kernel~Own=0.5"])
    assert second.joined
    assert first.saved_ms >= 0
