# SPDX-License-Identifier: Apache-2.0
"""Damaged memory snapshots: read, or an error that helps; never a crash, never code of the file."""

from __future__ import annotations

import pickle
import random

import pytest

from stepscope.errors import CaptureError
from stepscope.formats.memory_snapshot.read import read

TRACE = [
    {"action": "alloc" if number % 2 else "free_completed", "addr": number // 2, "size": number, "stream": 0,
     "time_us": 10**15 + number, "frames": [{"name": "f", "filename": "a.py", "line": number % 3}]}
    for number in range(100)
]  # fmt: skip
SNAPSHOT = {"segments": [{"device": 0, "address": 1, "total_size": 9, "stream": 0, "blocks": []}], "device_traces": [TRACE]}


def refusal(path):
    """The error that a file is refused with; None when it is read."""
    try:
        read(path).check()
    except CaptureError as error:
        return error
    return None


@pytest.mark.parametrize("seed", range(40))
def test_cut_and_flipped(tmp_path, seed):
    chance = random.Random(seed)
    data = bytearray(pickle.dumps(SNAPSHOT, protocol=2 + seed % 4))
    if seed % 4 == 0:
        del data[chance.randrange(len(data)) :]
    for _ in range(seed % 5):
        if data:
            data[chance.randrange(len(data))] = chance.randrange(256)
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(data)
    error = refusal(path)
    assert error is None or (error.where and error.cause and error.fix)


@pytest.mark.parametrize("value", [None, -1, 1 << 70, 2.5, "x", [], {}, (1, 2), [[1]], {"frames": 3}], ids=str)
def test_values_of_another_type(tmp_path, value):
    path = tmp_path / "snapshot.pickle"
    for part in (
        {"segments": value},
        {"device_traces": value},
        {"segments": [value]},
        {"device_traces": [value]},
        {"device_traces": [[value]]},
    ):
        path.write_bytes(pickle.dumps(SNAPSHOT | part))
        error = refusal(path)
        assert error is None or (error.where and error.cause and error.fix)
    for key in TRACE[0]:
        path.write_bytes(pickle.dumps(SNAPSHOT | {"device_traces": [[row | {key: value} for row in TRACE]]}))
        error = refusal(path)
        assert error is None or (error.where and error.cause and error.fix)
    block = {"size": 8, "address": 1, "state": "active_allocated"}
    for key in block:
        path.write_bytes(pickle.dumps({"segments": [{"blocks": [block | {key: value}]}], "device_traces": []}))
        error = refusal(path)
        assert error is None or (error.where and error.cause and error.fix)
