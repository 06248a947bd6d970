# SPDX-License-Identifier: Apache-2.0
"""Damaged Chrome traces of any program: counted, or an error that helps."""

from __future__ import annotations

import json
import random

import pytest

from stepscope.errors import CaptureError
from stepscope.formats.trace_events.read import read

PHASES = ["X", "B", "E", "i", "b", "e", "C", "s"]
EVENTS = [
    {"ph": PHASES[number % 8], "name": f"n{number % 5}", "cat": "c", "id": number % 3, "pid": 1, "tid": number % 2,
     "ts": number * 1.5, "dur": 2, "args": {"v": number}}
    for number in range(200)
]  # fmt: skip
WHOLE = json.dumps({"traceEvents": EVENTS}).encode()


def refusal(path):
    """The error that a file is refused with; None when it is read."""
    try:
        read(path).check()
    except CaptureError as error:
        return error
    return None


@pytest.mark.parametrize("seed", range(15))
def test_cut_and_flipped(tmp_path, seed):
    chance = random.Random(seed)
    damaged = bytearray(WHOLE[: chance.randrange(len(WHOLE))] if seed % 3 == 0 else WHOLE)
    for _ in range(30):
        if damaged:
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
    path = tmp_path / "trace.json"
    path.write_bytes(damaged)
    error = refusal(path)
    assert error is None or (error.where and error.fix)


@pytest.mark.parametrize("value", [None, "x", -1, 1e300, 1 << 70, [], {}], ids=str)
def test_values_of_another_type(tmp_path, value):
    path = tmp_path / "trace.json"
    for key in EVENTS[0]:
        changed = [{**event, key: value} if number % 2 else event for number, event in enumerate(EVENTS)]
        path.write_text(json.dumps({"traceEvents": changed}))
        error = refusal(path)
        assert error is None or (error.where and error.fix)
