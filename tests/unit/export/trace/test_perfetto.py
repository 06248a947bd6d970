"""The trace for Perfetto: exact times, spans that nest, arrows that follow them."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from capture_rows import kernels, op, ops, rows, task
from hypothesis import given
from hypothesis import strategies as st

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


@given(st.lists(st.tuples(st.integers(1, 2), st.integers(0, 30), st.integers(0, 12)), min_size=1, max_size=25))
def test_spans_of_a_lane_never_cross(spans):
    track, start, length = (np.array(side, dtype=np.int64) for side in zip(*spans, strict=True))
    placed = list(zip(track, lanes(track, start, start + length), start, start + length, strict=True))
    for one in placed:
        for other in placed:
            assert one[:2] != other[:2] or not one[2] < other[2] < one[3] < other[3]
