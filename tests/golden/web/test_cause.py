# SPDX-License-Identifier: Apache-2.0
"""Free time of a real capture has a cause: parts of the gap, what the host did, and the task that ended it."""

from __future__ import annotations

import pytest
from viewer.numbers import where

pytestmark = pytest.mark.slow  # a real capture


def test_the_longest_free_time_before_a_task_has_its_cause(npu):
    own = where("level2", 0)
    found = npu.get("trace/search", q="^Free$", mode="regex", limit=1000, **own)["hits"]
    gaps = sorted(found, key=lambda hit: -hit["duration_ns"])
    told = 0
    for hit in gaps[:20]:
        detail = npu.get("trace/slice", id=hit["id"], **own)
        cause = detail["cause"]
        if cause is None:
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
    assert told >= 10


def test_other_slices_have_none(npu):
    own = where("level2", 0)
    (hit, *_) = npu.get("trace/search", q="aten::linear", limit=1, **own)["hits"]
    assert npu.get("trace/slice", id=hit["id"], **own)["cause"] is None
