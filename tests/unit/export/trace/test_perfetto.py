"""The trace for Perfetto: exact times, spans that nest, arrows that follow them."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from capture_rows import kernels, op, ops, rows, task
from hypothesis import given
from hypothesis import strategies as st
from viewer.perfetto_engine import imported

from stepscope.errors import CaptureError
from stepscope.export.trace.lanes import lanes
from stepscope.export.trace.perfetto import write_perfetto
from stepscope.tables import Facts, Tables

T = 1_700_000_000_123_456_789
NPU = Facts(device_kind="npu", level="Level1").table()


def trace(path) -> dict:
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_times_are_numbers_exact_to_the_nanosecond(tmp_path, name):
    starts = [0, 1, 999, 1_000, 1_001, 123_456_789_012_345]
    tables = Tables({"meta": NPU, "ops": ops(*(op(f"op{at}", T + at, T + at + 7, tid=10 + at % 7) for at in starts))})
    written = trace(write_perfetto(tables, tmp_path / name))
    assert written["otherData"] == {"baseTimeNanoseconds": str(T)}
    spans = [event for event in written["traceEvents"] if event["ph"] == "X"]
    # Both readers get the nanosecond: those that round and those that cut.
    assert [round(event["ts"] * 1000) for event in spans] == starts
    assert [int(event["ts"] * 1000) for event in spans] == starts
    assert {int(event["dur"] * 1000) for event in spans} == {7}


def test_a_capture_without_events_is_refused(tmp_path):
    with pytest.raises(CaptureError, match="no event"):
        write_perfetto(Tables({"meta": NPU}), tmp_path / "trace.json")
    assert list(tmp_path.iterdir()) == []


def test_crossing_spans_get_a_lane_and_arrows_follow(tmp_path):
    table = ops(op("outer", T, T + 100), op("inner", T + 10, T + 50), op("crossing", T + 60, T + 150))
    flow = {"kind": "fwdbwd", "id": 1, "from_pid": 7, "from_tid": 1, "from_ns": T + 10, "to_pid": 7, "to_tid": 1, "to_ns": T + 60}
    kernel = task(T + 200, T + 300, op=2, pid=7)
    tables = Tables({"meta": NPU, "ops": table, "flows": rows("flows", flow), "kernels": kernels(kernel)})
    events = trace(write_perfetto(tables, tmp_path / "trace.json"))["traceEvents"]
    assert [(event["name"], event["tid"]) for event in events if event.get("cat") == "cpu_op"] == [
        ("outer", 1),
        ("inner", 1),
        ("crossing", 2),
    ]
    assert [(event["ph"], event["tid"]) for event in events if event.get("cat") == "fwdbwd"] == [("s", 1), ("f", 2)]
    assert [(event["ph"], event["tid"]) for event in events if event.get("cat") == "async_npu"] == [("s", 2), ("f", 2)]
    assert [event["args"]["name"] for event in events if event["name"] == "thread_name" and event["pid"] == 7] == [
        "Thread 1",
        "Thread 1 (2)",
    ]


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        pytest.param([(0, 10), (2, 5), (5, 10)], [0, 0, 0], id="nested-and-touching"),
        pytest.param([(0, 10), (5, 15)], [0, 1], id="crossing"),
        pytest.param([(0, 10), (5, 15), (8, 20)], [0, 1, 2], id="each-crosses-the-one-before"),
        pytest.param([(0, 10), (0, 5), (0, 10)], [0, 0, 0], id="same-start"),
        pytest.param([(0, 10), (10, 20), (3, 3)], [0, 0, 0], id="empty-span"),
    ],
)
def test_lanes(spans, expected):
    start, end = (np.array(side, dtype=np.int64) for side in zip(*spans, strict=True))
    assert lanes(np.zeros(len(spans), dtype=np.int64), start, end).tolist() == expected


@pytest.mark.parametrize(
    ("turn", "expected"), [pytest.param([0, 1], [0, 0], id="longer-first"), pytest.param([1, 0], [1, 0], id="shorter-first")]
)
def test_of_spans_that_start_together_the_longer_must_be_written_first(turn, expected):
    start, end = np.array([0, 0], dtype=np.int64), np.array([10, 5], dtype=np.int64)
    assert lanes(np.zeros(2, dtype=np.int64), start, end, np.array(turn, dtype=np.int64)).tolist() == expected


@given(st.lists(st.tuples(st.integers(1, 2), st.integers(0, 30), st.integers(0, 12)), min_size=1, max_size=25))
def test_spans_of_a_lane_never_cross(spans):
    track, start, length = (np.array(side, dtype=np.int64) for side in zip(*spans, strict=True))
    placed = list(zip(track, lanes(track, start, start + length), start, start + length, strict=True))
    for one in placed:
        for other in placed:
            assert one[:2] != other[:2] or not one[2] < other[2] < one[3] < other[3]


def test_arrows_have_numbers_of_their_own_and_stand_on_spans(tmp_path):
    gpu = Facts(device_kind="cuda").table()
    calls = rows(
        "api_calls",
        {"pid": 7, "tid": 1, "start_ns": T + 20, "end_ns": T + 30, "level": "cuda_runtime", "name": "launch", "connection_id": 5},
    )
    launch = {"connection_id": 5, "launch_ns": T + 20, "launch_tid": 1, "op": 0}
    tables = Tables({
        "meta": gpu, "ops": ops(op("aten::mm", T, T + 100)), "api_calls": calls,
        "kernels": kernels(
            task(T + 200, T + 300, **launch), task(T + 300, T + 400, **launch),  # one launch of a graph, two kernels
            task(T + 400, T + 400, **launch),  # nothing is open inside an empty span
            task(T + 10, T + 15, **launch),  # clocks that disagree: before its launch
            task(T + 500, T + 510, connection_id=6, launch_ns=T + 150, launch_tid=1),  # no call recorded there
            task(T + 600, T + 610, op=0),  # known by its operator alone
        ),
        "collectives": rows("collectives", {"device": 0, "start_ns": T + 200, "end_ns": T + 300, "kernel": 0, **launch}),
    })  # fmt: skip
    events = trace(write_perfetto(tables, tmp_path / "trace.json"))["traceEvents"]
    arrows = [event for event in events if event["ph"] in "sf"]
    assert [(arrow["ph"], arrow["name"], int(arrow["ts"] * 1000)) for arrow in arrows] == [
        ("s", "ac2g", 20), ("s", "ac2g", 20), ("s", "torch_to_gpu", 0),
        ("f", "ac2g", 200), ("f", "ac2g", 300), ("f", "torch_to_gpu", 600),
    ]  # fmt: skip
    assert sorted(arrow["id"] for arrow in arrows) == [0, 0, 1, 1, 2, 2]


def test_threads_whose_numbers_perfetto_mistakes_get_others(tmp_path):
    table = ops(op("main", T, T + 10, tid=7), op("negative", T, T + 20, tid=-5), op("none", T + 5, T + 30, tid=0))
    events = trace(write_perfetto(Tables({"meta": NPU, "ops": table}), tmp_path / "trace.json"))["traceEvents"]
    assert {event["name"]: event["tid"] for event in events if event["ph"] == "X"} == {"main": 7, "negative": 8, "none": 9}
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert (names[8], names[9]) == ("Thread -5", "Thread 0")


@pytest.mark.slow  # starts Perfetto's engine
def test_perfettos_engine_takes_every_span_and_arrow(tmp_path):
    table = ops(
        op("outer", T, T + 100, tid=7), op("crossing", T + 60, T + 150, tid=7), op("negative", T, T + 20, tid=-5),
        op("none", T + 5, T + 30, tid=0),
    )  # fmt: skip
    calls = rows("python_calls", {"pid": 7, "tid": 7, "start_ns": T, "end_ns": T + 10, "name": "f"})
    waits = rows("waits", {"device": 0, "start_ns": T + 1, "end_ns": T + 9, "name": "Context Sync"})
    kernel = kernels(task(T + 200, T + 300, op=2, pid=7))
    tables = Tables(
        {"meta": Facts(device_kind="cuda").table(), "ops": table, "python_calls": calls, "waits": waits, "kernels": kernel}
    )
    assert imported(write_perfetto(tables, tmp_path / "trace.json")) == {"slices": 7 + 1, "arrows": 1}
