# SPDX-License-Identifier: Apache-2.0
"""Verdicts on real captures, and sums that are exact on all of them."""

from __future__ import annotations

import jsonschema
import orjson
import pytest

from stepscope.analysis.partition import device_model, exclusive_time, partition
from stepscope.analysis.replay import build_schedule
from stepscope.capture import open_all
from stepscope.verdict import verdict
from stepscope.verdict.settings import schema

OLDER = (
    "2100_tasks_p1", "2100_tasks_p15", "one_task_p0", "one_task_p1", "one_task_p15", "one_task_p15mem", "one_task_p1cpu",
    "one_task_p1mem", "one_task_p4",
)  # fmt: skip
PLACES = (
    "ascend_pt/text/level0", "ascend_pt/text/level2", "ascend_pt/db/level0", "ascend_pt/db/level2", "prof_raw/a2_elementwise_1task",
    "prof_raw/a2_torch_add_2100tasks", "prof_raw/a2_pypto_mix_aicpu_event", "prof_raw/a310b_addcmul_1task",
    "mindspore/oprange-graph", "mindspore/oprange-pynative", "mindspore/oprange-stack", "mindspore/cpu-official-graph",
    "mindspore/cpu-official-pynative", "mindspore/runtime-profiler-graph/rank_0", "mindspore/runtime-profiler-pynative/rank_0",
    "kineto/gpu_nccl.pt.trace.json.gz", "kineto/gpu_train_control.pt.trace.json.gz", "kineto/gpu_alexnet_sync_events.json.gz",
    "kineto/h100_qwen_0.5b.json.gz", "kineto/mi300_resnet_act_checkpoint.json.gz", "kineto/sglang_decode_graph.json.gz",
    "kineto/gpu_two_ranks", "kineto/gpu_cupti_ranges.json.gz", "kineto/h100_bert_small.json.gz", "kineto/mi300_bert_small.json.gz",
    "kineto/mi300_qwen_0.5b.json.gz", "kineto/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
    "kineto/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz", "nsys/h100_2gpu_1s.sqlite", "rocprof/908_results.json.gz",
    *(f"prof_older/converted/{name}" for name in OLDER),
    "kineto/mtia_inference_rank_0.json.gz", "kineto/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz",
)  # fmt: skip


# Several threads issue to one stream out of order, or all there is is one task of 13 us and a call around it; the verdict
# lowers its confidence there.
LOOSE = {"kineto/mtia_inference_rank_0.json.gz", "prof_older/converted/one_task_p1"}


def tables_of(golden, place):
    return [capture.tables for capture in open_all(golden / place)]


@pytest.mark.parametrize("place", PLACES)
def test_parts_and_exclusive_times_sum_up_and_the_replay_ends_when_the_capture_did(golden, place):
    for tables in tables_of(golden, place):
        model = device_model(tables)
        found = partition(model)  # asserts the sum of every window
        assert found.total_ns == model.end_ns - model.start_ns
        if model.device is None:
            continue
        rows = exclusive_time(model)  # asserts the sum of every part
        assert int(rows["ns"].sum()) == found.sum_ns("computing", "communication", "copy")
        schedule = build_schedule(model)
        assert schedule is None or schedule.error <= (0.1 if place in LOOSE else 0.001)


@pytest.mark.parametrize("place", PLACES)
def test_every_verdict_is_as_its_schema_says(golden, place):
    answered = orjson.loads(orjson.dumps(verdict(tables_of(golden, place)).as_dict()))
    jsonschema.Draft202012Validator(schema()).validate(answered)
    for rank in answered["ranks"]:
        for parts in (rank["partition"], *rank["by_step"]):
            whole = parts.pop("total")
            assert sum(parts.values()) == pytest.approx(whole, abs=1e-4)


def test_ranks_that_wait_for_a_late_one(golden):
    tables = tables_of(golden, "ascend_pt/text/level2")
    first = verdict(tables).findings[0]
    assert (first.rule, first.params["late_rank"], first.ranks) == ("peer-wait", 5, (0, 1))
    assert [round(one.saved_ms) for one in (first, *first.also)] == [92, 89]
    assert first.share == pytest.approx(0.617, abs=0.005)
    second = verdict(tables[0]).findings[1]
    assert (second.rule, round(second.share, 2)) == ("host-dispatch", 0.15)


def test_a_host_bound_training(golden):
    first = verdict(tables_of(golden, "kineto/gpu_nccl.pt.trace.json.gz")).findings[0]
    assert first.rule == "host-dispatch"
    assert first.share == pytest.approx(0.61, abs=0.01)


def test_a_training_with_pageable_copies_and_exposed_communication(golden):
    found = verdict(tables_of(golden, "kineto/gpu_train_control.pt.trace.json.gz"))
    by = {finding.rule: finding for finding in found.findings}
    assert by["sync-stall"].share == pytest.approx(0.147, abs=0.005)
    # A fifth of the step is exposed, the replay saves 6.1 ms of it: the bound stands beside it.
    assert found.ranks[0].partition["communication"] / found.ranks[0].partition["total"] == pytest.approx(0.196, abs=0.005)
    assert by["exposed-communication"].saved_ms == pytest.approx(6.1, abs=0.1)
    assert by["exposed-communication"].upper_ns / 1e6 == pytest.approx(15.1, abs=0.1)


def test_a_training_without_problems_is_silent(golden):
    found = verdict(tables_of(golden, "kineto/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz"))
    assert [finding.rule for finding in found.findings if finding.severity != "info"] == []
