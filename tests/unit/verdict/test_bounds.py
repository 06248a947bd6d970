# SPDX-License-Identifier: Apache-2.0
"""What a finding may claim at most: no time that the device computes, that nothing is known of, or that another cause has."""

from __future__ import annotations

import polars as pl
import pytest
from rule_examples import example, facts, rows, run
from verdict_simulator import COMMUNICATION, COMPUTE, Loop, Machine

from stepscope.tables import Tables
from stepscope.verdict import verdict, words


def named(tables: Tables | list[Tables], rule: str):
    return next((one for one in verdict(tables).findings if one.rule == rule), None)


class Blocking(Machine):
    """Every launch returns behind the end of its own kernel, as with CUDA_LAUNCH_BLOCKING."""

    def operator(self, name: str, host: float, device: float, **columns: object) -> float:
        began, issue = self.now, self.now + 0.7 * host
        start = max(issue + self.latency, self.free[COMPUTE] + self.gap)
        end = start + self.vary(device)
        self.free[COMPUTE] = end
        self.call("cudaLaunchKernel", issue, end + 4)
        self.now = end + 4 + 0.3 * host
        self.add("ops", began, self.now, pid=1, tid=1, name=f"aten::{name}", scope=0)
        launched = {"launch_tid": 1, "launch_ns": self.ns(issue), "op_type": name}
        self.add("kernels", start, end, device=0, stream=COMPUTE, kind="compute", name=name, **launched)
        return end

    def ns(self, us: float) -> int:
        from verdict_simulator import BASE_NS

        return BASE_NS + int(us * 1000)


def test_launches_that_wait_for_their_own_kernel_are_named_though_no_wait_is_recorded():
    loop = Loop(seed=3, steps=6, kernel=90.0, host=30.0)
    found = verdict(loop.run(Blocking(loop.seed)).tables()).findings[0]
    assert (found.rule, found.severity) == ("launch-blocking", "high")
    assert named(loop.run().tables(), "launch-blocking") is None


def test_launches_into_a_full_queue_are_no_waits():
    tables = Loop(seed=3, steps=6, kernel=400.0, host=6.0).run().tables()
    assert tables.api_calls.filter(pl.col("end_ns") - pl.col("start_ns") > 50_000).height  # there are such launches
    assert not [one.rule for one in verdict(tables).findings if one.severity in ("high", "medium")]


def test_communication_without_launches_still_costs_what_it_covers():
    tables = run(communication=900.0, blocking=True)
    unlaunched = tables.collectives.with_columns(launch_ns=pl.lit(None, pl.Int64), launch_tid=pl.lit(None, pl.Int64))
    found = named(tables.replace(collectives=unlaunched), "exposed-communication")
    assert found.severity == "high"
    assert found.how == "parts"


def test_communication_hides_behind_nothing_that_comes_before_it():
    """Collectives longer than what computes behind them: the products of forward are over when the first is sent."""
    loop = Loop(seed=5, steps=6, communication=2500.0, blocking=True)
    found = named(loop.run().tables(), "exposed-communication")
    hidden = Loop(seed=5, steps=6, communication=2500.0).run()
    blocked = loop.run()
    true = (max(blocked.free.values()) - max(hidden.free.values())) * 1000 / loop.steps
    assert found.saved_ns / true < 1.5


def test_all_fixes_do_not_make_communication_vanish():
    found = verdict(run(communication=2500.0, blocking=True))
    parts = found.ranks[0].partition
    assert found.together_ns <= parts["total"] - parts["communication"] + 0.05 * parts["total"]


def test_waits_cost_no_more_than_the_device_does_not_compute():
    """Streams that take turns: without waits the replay would let them run side by side, which the device may not."""
    machine = Machine(seed=2)
    for step in range(6):
        began = machine.now
        for layer in range(20):
            stream = COMPUTE if layer % 2 else COMMUNICATION
            issue = machine.now + 5
            start = max(issue + 8, machine.free[stream])
            end = machine.free[stream] = start + 500
            launched = {"launch_tid": 1, "launch_ns": 1_700_000_000_000_000_000 + int(issue * 1000)}
            machine.add("kernels", start, end, device=0, stream=stream, kind="compute", name="MatMulV2", **launched)
            machine.add("ops", issue - 2, issue + 2, pid=1, tid=1, name="aten::mm", scope=0)
            machine.now = end + 6
            machine.call("aclrtSynchronizeStream", issue + 3, machine.now)
        machine.add("steps", began, machine.now, step=step, inflated=False)
    found = verdict(machine.tables())
    parts = found.ranks[0].partition
    assert parts["computing"] > 0.9 * parts["total"]
    assert all(one.saved_ns <= parts["total"] - parts["computing"] for one in found.findings if one.severity != "info")


def test_gaps_between_small_kernels_that_have_another_cause_are_not_theirs():
    def small(machine: Machine, layer: int) -> None:
        for number in range(40):
            machine.operator("Mul", 14.0, 3.0)
            if number == 20 and layer == 3:
                start, end = machine.spend(30_000)
                machine.add("ops", start, end, pid=1, tid=1, name="enumerate(DataLoader)#x.__next__", scope=7)

    found = {one.rule: one for one in verdict(run(host=14.0, at_layer=small)).findings}
    alone = named(example("small-kernels"), "small-kernels")
    assert found["data-wait"].share > 0.5
    assert found["small-kernels"].saved_ns < 1.3 * alone.saved_ns


def test_a_recurring_sequence_is_a_hint_beside_what_issuing_costs():
    found = {one.rule: one.severity for one in verdict(run(kernel=30.0, host=140.0)).findings}
    assert found["host-dispatch"] == "high"
    assert found.get("repeated-sequence", "info") == "info"


def test_warm_up_is_left_out_of_all_figures():
    usual = verdict(run(steps=8)).ranks[0]
    found = verdict(example("warm-up"))
    assert {one.rule for one in found.findings} == {"warm-up"}
    assert found.ranks[0].steps == usual.steps[1:]
    assert found.ranks[0].partition["total"] == pytest.approx(usual.partition["total"], rel=0.05)


def test_python_is_named_only_where_a_frame_says_so():
    found = verdict(run(at_layer=lambda machine, layer: machine.spend(1600) and None))
    assert found.findings[0].rule == "host-python"
    assert "Python" not in words.answer(found, "en") + words.answer(found, "zh") + found.findings[0].title
    assert "Python" in words.answer(verdict(example("host-python")), "en")


def test_logging_on_the_thread_of_backward_counts():
    def log(machine: Machine, layer: int) -> None:
        start, end = machine.spend(1500)
        machine.add("python_calls", start, end, pid=1, tid=2, name="<built-in function print>", kind="function")

    tables = run(at_layer=log)
    half = pl.int_range(pl.len()) % 2
    two = tables.kernels.with_columns(launch_tid=pl.when(half == 0).then(1).otherwise(2).cast(pl.Int64))
    rules = [one.rule for one in verdict(tables.replace(kernels=two)).findings]
    assert rules[0] == "logging"


def test_operators_that_were_recorded_are_not_said_to_be_missing():
    said = [lack.lack for lack in verdict(run()).ranks[0].cannot_tell]  # it has no range of an optimizer
    assert "ops" not in said


def test_packets_that_the_network_card_sent_again_are_told():
    tables = run()
    at = tables.steps["start_ns"].to_list()
    counts = (
        {"source": "Net Device", "name": "Net Device", "series": "roceNewPktRty", "device": 0, "time_ns": time, "value": value}
        for time, value in zip(at[1:], (3.0, 3.0, 10.0, 12.0, 12.0), strict=True)
    )
    found = named(rows(tables, "counters", *counts), "retransmission")
    assert (found.severity, found.params["count"]) == ("info", 9)


def test_unused_memory_of_a_gpu_is_what_is_not_allocated():
    tables = example("fragmentation")[0]
    without = tables.memory_events.with_columns(total_active=pl.lit(None, pl.Float64), total_allocated=pl.lit(2.0 * 2**30))
    found = named(facts(tables.replace(memory_events=without), device_kind="cuda"), "fragmentation")
    assert found.params["gib"] == pytest.approx(4.0)


def test_what_is_unused_is_counted_where_most_is_used():
    tables = example("fragmentation")[0]
    turn = pl.int_range(pl.len())
    rising = pl.when(turn == pl.len() - 1).then(5.5 * 2**30).otherwise(2.0 * 2**30)
    later = tables.memory_events.with_columns(total_active=rising)  # of 6 GiB
    assert named(tables.replace(memory_events=later), "fragmentation") is None


def test_a_slow_step_of_the_host_that_the_device_hides_is_none():
    def ahead(machine: Machine, step: int) -> None:
        if step == 3:
            machine.spend(1500)

    tables = run(steps=5, layers=1, kernel=400.0, at_step=ahead)
    lengths = (tables.steps["end_ns"] - tables.steps["start_ns"]).to_list()
    parts = verdict(tables).ranks[0].partition
    assert lengths[3] > 2 * sorted(lengths)[2]
    assert parts["computing"] > 0.95 * parts["total"]
    assert named(tables, "slow-steps") is None
