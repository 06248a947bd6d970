# SPDX-License-Identifier: Apache-2.0
"""How far the reading of a capture's files is: it grows file by file and block by block, and ends with all bytes."""

from __future__ import annotations

import gzip
import json

import pytest

from stepscope.capture import open_capture
from stepscope.formats import bytes_read
from stepscope.formats.chrome.events import read_events

EVENTS = [{"ph": "X", "cat": "cpu_op", "name": f"op{at}", "pid": 1, "tid": 1, "ts": at, "dur": 1, "args": {}} for at in range(5000)]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_a_trace_tells_block_by_block(tmp_path, packed):
    text = json.dumps({"traceEvents": EVENTS}).encode()
    path = tmp_path / "w.json"
    path.write_bytes(gzip.compress(text) if packed else text)
    size = path.stat().st_size
    told = []
    with bytes_read.watched([path], lambda *one: told.append(one)):
        for _ in read_events(path, {}, quality=[], chunk_bytes=40_000):
            pass
    places = [place for _, place, _ in told]
    assert len(set(places)) > (1 if packed else 5), "it moves"
    assert places == sorted(places)
    assert told[-1] == ("w.json", size, size)


def test_nobody_is_told_afterwards(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    told = []
    with bytes_read.watched([path, tmp_path / "absent"], lambda *one: told.append(one)):
        bytes_read.note(path, 2)
        bytes_read.note(path, 1)  # read a second time
        bytes_read.note(tmp_path / "absent")
        bytes_read.note(path)
    bytes_read.note(path)
    assert told == [("a", 2, 5), ("a", 2, 5), ("a", 5, 5)]


@pytest.mark.parametrize("form", ["text", "db"])
def test_files_of_a_capture_are_all_noted(golden, form, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # no store of another test
    capture = open_capture(golden / "ascend_pt" / form / "level2" / "rank0_ascend_pt", source=form)
    told = []
    with bytes_read.watched(capture.source_files(), lambda *one: told.append(one)):
        capture.load(keep=False)
    total = told[-1][2]
    assert max(read for _, read, _ in told) > 0.5 * total, "nearly everything; a few small files are read otherwise"
    assert len({read for _, read, _ in told}) > 3
