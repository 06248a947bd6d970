"""A part of the proof (`make cluster-proof` runs all of it): faults are found, healthy clusters are left in peace."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import polars as pl
import pytest
from thorough import THOROUGH

from stepscope.cluster.digest import Digests
from stepscope.cluster.simulate import captures

_spec = importlib.util.spec_from_file_location("cluster_proof", Path(__file__).with_name("proof.py"))
assert _spec is not None
proof = importlib.util.module_from_spec(_spec)
sys.modules["cluster_proof"] = proof
_spec.loader.exec_module(proof)


@pytest.mark.slow  # simulates and analyses 20 clusters
def test_faults_are_found_and_healthy_clusters_are_not_blamed():
    result = proof.prove(14, 6)
    assert result.alarms == 0, result.lines
    assert result.first == 1.0, result.lines
    assert result.nobody_else == 1.0, result.lines
    assert result.cause >= 0.9, result.lines


KINDS = ("frequency", "data_loading", "allocation", "dispatch", "link")
# Cases with an odd number have hosts that run ahead of their devices. Each kind in one form, in a thorough run in both.
ON_DISK = [(kind, *(("kineto", 5), ("db", 4))[(place + turn) % 2]) for turn in (0, 1) for place, kind in enumerate(KINDS)]


@pytest.mark.parametrize(("kind", "form", "seed"), ON_DISK if THOROUGH else ON_DISK[: len(KINDS)])
def test_the_same_through_captures_on_disk(kind, form, seed):
    link = ("ppF", (1, 5)) if kind == "link" else ("", ())
    plan = proof.Plan("megatron", tp=2, pp=2, dp=2, micro=2, layers=1)
    added = 1.5e6 if kind == "dispatch" else 6e6
    fault = proof.Fault(kind, 1, 1.4 if kind == "frequency" else 12.0, added, link=link)
    score = proof.judge(proof.Case(plan, fault, 3, seed, 20.0), form)
    assert score.first, score.text
    assert score.cause, score.text
    assert not score.others, score.text
    assert abs(score.error) < 0.25, score.text


def test_shards_that_prefetch_through_databases():
    """Gathers and reductions of one group are launched at once and run in another order on each rank."""
    plan = proof.Plan("hsdp", dp=8, micro=2, layers=2, shard=4)
    score = proof.judge(proof.Case(plan, proof.Fault("more_work", 5, 1.4), 3, 4, 20.0), "db")
    assert (score.first, score.cause, score.others) == (True, True, False), score.text
    assert abs(score.error) < 0.25, score.text


@pytest.mark.parametrize("latency", [8_000.0, 20_000.0])
def test_launches_just_before_the_device_is_there(latency, monkeypatch):
    """A call that queues on its lane is launched while the device still waits for another one: that is not the host's time."""
    monkeypatch.setattr(captures, "LAUNCH_NS", latency)
    plan = proof.Plan("moe", dp=16, micro=6, layers=1, base_ns=400_000.0)
    fault = proof.Fault("group", 9, 5.0, link=("ep", tuple(range(8, 16))))
    score = proof.judge(proof.Case(plan, fault, 3, 4, 20.0), "kineto")
    assert (score.first, score.cause, score.others) == (True, True, False), score.text
    assert abs(score.error) < 0.25, score.text


@pytest.mark.parametrize("name", ["<built-in function collect>", "gc.collect", "Garbage collection"])
def test_garbage_collections_by_name(name, monkeypatch):
    made = captures._span

    def renamed(category, old, *rest):
        return made(category, name if old == "gc: collect" else old, *rest)

    monkeypatch.setattr(captures, "_span", renamed)
    plan = proof.Plan("ddp", dp=8, micro=2, layers=1)
    score = proof.judge(proof.Case(plan, proof.Fault("gc", 3, ns=6e6), 3, 4, 20.0), "kineto")
    assert "ms gc " in score.named[0], score.text


@pytest.mark.parametrize(
    ("ms", "recorded", "named"),
    [
        pytest.param(4, True, [3], id="a-checkpoint"),
        pytest.param(4, False, [], id="a-pause-of-which-nothing-is-known"),
        pytest.param(60, False, [3], id="longer-than-a-step"),
    ],
)
def test_a_single_pause(ms, recorded, named):
    plan = proof.Plan("ddp", dp=8, micro=2, layers=1)
    digests = proof.digests_of(proof.record(plan, 5, 4, proof.Fault("checkpoint", 3, ns=ms * 1e6, every=5)))
    if not recorded:
        other = pl.col("w_other") + pl.col("w_checkpoint")
        unknown = digests["cluster_calls"].with_columns(w_other=other, w_checkpoint=pl.lit(0, pl.Int64))
        digests = Digests({**digests.frames, "cluster_calls": unknown})
    found = [one for one in proof.analyse(digests).findings if one.kind == "slow_rank"]
    assert [one.ranks for one in found] == ([named] if named else [])
    assert all(one.pattern == "one_off" for one in found)


@pytest.mark.parametrize("form", ["digests", "db"])
def test_a_slow_group_beside_one_that_lacks_a_rank(form):
    """A call without one of its members still bounds the transfer, so that the group which is whole is not its own measure."""
    plan = proof.Plan("moe", dp=16, micro=2, layers=1)
    fault = proof.Fault("group", 13, 5.0, link=("ep", tuple(range(8, 16))))
    score = proof.judge(proof.Case(plan, fault, 3, 4, 20.0, missing=(6,)), form)
    assert (score.first, score.cause, score.others) == (True, True, False), score.text
    assert abs(score.error) < 0.25, score.text


def test_a_slow_host_that_is_a_stage_with_shapes_of_its_own():
    """No kernel of it runs elsewhere; that its cores have a lower frequency tells it from a stage with more to do."""
    plan = proof.Plan("megatron", tp=1, pp=2, dp=8, micro=2, layers=1, stage_weight=(1.25, 1.3))
    score = proof.judge(proof.Case(plan, proof.Fault("host", 15, 1.25), 3, 4, 20.0), "db")
    assert (score.first, score.cause, score.others) == (True, True, False), score.text
    assert abs(score.error) < 0.25, score.text


def test_a_host_inside_operators_is_on_its_way_to_the_next_launch(monkeypatch):
    """Also where its launches reach the device late, as through a task queue."""
    monkeypatch.setattr(captures, "LAUNCH_NS", 30_000.0)
    monkeypatch.setitem(captures._HOST_CAUSES, "data_loading", ("cpu_op", "aten::mul"))
    plan = proof.Plan("ddp", dp=8, micro=2, layers=1)
    score = proof.judge(proof.Case(plan, proof.Fault("data_loading", 3, ns=6e6), 3, 4, 20.0), "kineto")
    assert "ms dispatch " in score.named[0], score.text
