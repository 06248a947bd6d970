# SPDX-License-Identifier: Apache-2.0
"""Chrome traces of any program, by the phases of their events."""

from __future__ import annotations

import json

import pytest

from stepscope.capture import open_capture
from stepscope.errors import CaptureError
from stepscope.formats.trace_events.read import read


def event(phase, name, ts, **more):
    return {"ph": phase, "name": name, "cat": "app", "pid": 1, "tid": 2, "ts": ts, **more}


def written(folder, events, *, wrapped=True):
    path = folder / "trace.json"
    path.write_text(json.dumps({"traceEvents": events} if wrapped else events))
    return path


def issues(tables):
    return {(row["issue"], row["detail"]): row["count"] for row in tables.quality.to_dicts()}


SPANS = [
    event("X", "paint", 10, dur=5),
    event("B", "frame", 1),
    event("B", "layout", 2),
    event("E", "layout", 4),
    event("E", "frame", 9),
]


@pytest.mark.parametrize("wrapped", [True, False], ids=["object", "list"])
def test_spans_of_a_browser_open_as_what_they_are(tmp_path, wrapped):
    capture = open_capture(written(tmp_path, SPANS, wrapped=wrapped))
    assert capture.ops.select("name", "start_ns", "end_ns", "pid", "tid", "parent").rows() == [
        ("frame", 1000, 9000, 1, 2, None), ("layout", 2000, 4000, 1, 2, 0), ("paint", 10000, 15000, 1, 2, None)
    ]  # fmt: skip
    assert (capture.facts.source, capture.kernels.height, capture.quality.height) == ("chrome trace", 0, 0)


def test_marks_and_counters(tmp_path):
    events = [
        event("i", "vsync", 3, s="t"),
        event("b", "load", 1, id="0x7"),
        event("b", "load", 2, id="0x8"),
        event("e", "load", 5, id="0x8", tid=9),
        event("e", "load", 6, id="0x7"),
        event("C", "heap", 4, args={"used": 12}),
    ]
    tables = read(written(tmp_path, events)).check()
    assert tables.marks.select("message", "kind", "start_ns", "end_ns", "end_tid").rows() == [
        ("load", "start/end", 1000, 6000, 2), ("load", "start/end", 2000, 5000, 9), ("vsync", "marker", 3000, 3000, 2)
    ]  # fmt: skip
    assert tables.counters.select("name", "series", "value").rows() == [("heap", "used", 12.0)]


def test_halves_without_the_other_are_counted(tmp_path):
    events = [
        event("E", "before", 1), event("B", "a", 2), event("E", "a", 3), event("B", "open", 4), event("b", "x", 5, id=1),
        event("X", "no time", None, dur=1), event("?", "what", 6),
    ]  # fmt: skip
    tables = read(written(tmp_path, events)).check()
    assert tables.ops["name"].to_list() == ["a"]
    assert issues(tables) == {
        ("start-without-end", "B"): 1, ("end-without-start", "E"): 1, ("start-without-end", "asynchronous"): 1,
        ("event-without-time", ""): 1, ("unknown-kind", "ph ?"): 1,
    }  # fmt: skip


def test_processes_and_threads_with_names_get_numbers(tmp_path):
    events = [event("X", "a", 1, dur=1, pid="gpu 1", tid="main"), event("X", "b", 2, dur=1, pid="browser 1", tid=7)]
    ops = read(written(tmp_path, events)).ops
    assert len(set(ops["pid"].to_list())) == 2
    assert ops["tid"].to_list() == [8, 7]


def test_nothing_to_show_is_the_first_reader_s_error(tmp_path):
    path = written(tmp_path, [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "x"}}])
    with pytest.raises(CaptureError, match="no event of the PyTorch profiler"):
        open_capture(path).load()
    with pytest.raises(CaptureError, match="no span, mark or counter") as caught:
        read(path)
    assert caught.value.cause == "1 of phase M"
