# SPDX-License-Identifier: Apache-2.0
"""Free time of a real capture has a cause: parts of the gap, what the host did, and the task that ended it."""

from __future__ import annotations

import json

import pytest
from viewer.numbers import where

pytestmark = pytest.mark.slow  # a real capture


def test_the_longest_free_time_before_a_task_has_its_cause(npu):
    own = where("level2", 0)
    found = npu.get("trace/search", q="^Free$", mode="regex", limit=1000, **own)["hits"]
    gaps = sorted(found, key=lambda hit: -hit["duration_ns"])
    told = lines = 0
    for hit in gaps[:20]:
        detail = npu.get("trace/slice", id=hit["id"], **own)
        cause = detail["cause"]
        if not cause["parts"]:
            continue
        told += 1
        assert cause["why"]["en"]
        assert cause["why"]["zh"]
        assert sum(part["ns"] for part in cause["parts"]) == pytest.approx(hit["duration_ns"], rel=0.5)
        if cause["ended_by"]:
            # The task that ended the gap begins where the free time ends.
            assert cause["ended_by"]["start"] >= hit["start_ns"]
            name = npu.get("trace/slice", id=cause["ended_by"]["id"], **own)["name"]
            assert name == cause["ended_by"]["name"]
        for one in cause["operators"]:
            inside = npu.get("trace/slice", id=one["id"], **own)
            assert inside["start_ns"] < hit["start_ns"] + hit["duration_ns"]
            assert 0 < one["ns"] <= hit["duration_ns"]
        lines += bool(cause["place"] and cause["place"]["line"])
    assert told >= 10
    assert lines >= 10, "stacks were recorded: the line of the program is known"


def test_a_collective_names_the_rank_that_came_last(npu, golden):
    """The longest wait inside of it, as the file says: tasks named Notify_Wait with the rank at the other end."""
    own = where("level2", 0)
    (hit,) = npu.get("trace/search", q="hcom_allReduce__271_0_1", limit=5, **own)["hits"]
    cause = npu.get("trace/slice", id=hit["id"], **own)["cause"]
    path = golden / "ascend_pt" / "text" / "level2" / "rank0_ascend_pt" / "ASCEND_PROFILER_OUTPUT" / "trace_view.json"
    waits = [
        event
        for event in json.loads(path.read_bytes())
        if event["ph"] == "X" and event["name"] == "Notify_Wait" and event["args"].get("notify_id") is not None
    ]
    longest = max(waits, key=lambda event: float(event["dur"]))
    assert cause["late"][0]["rank"] == int(longest["args"]["dst rank"])
    assert cause["late"][0]["ns"] == pytest.approx(float(longest["dur"]) * 1000, abs=2)
    assert str(cause["late"][0]["rank"]) in cause["why"]["zh"]


def test_other_slices_have_none(npu):
    own = where("level2", 0)
    (hit, *_) = npu.get("trace/search", q="aten::linear", limit=1, **own)["hits"]
    assert npu.get("trace/slice", id=hit["id"], **own)["cause"] is None
