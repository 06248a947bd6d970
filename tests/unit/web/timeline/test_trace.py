"""The timeline index and the questions that the page asks about it."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
from capture_rows import MAIN, WORKER, api, api_calls, kernels, op, ops, queue, queued, rows, steps, tables, task

from stepscope.analysis.link.capture import link
from stepscope.tables import Facts
from stepscope.web.parameters import Query
from stepscope.web.problems import Problem
from stepscope.web.timeline import index as trace_index
from stepscope.web.timeline.binary_columns import decode
from stepscope.web.views import arrows, slices, trace, trace_export

BASE = 1_000_000


def sample(time, value, name="HBM 0/Read", series="Read(MB/s)"):
    return {"source": "HBM", "name": name, "series": series, "device": 0, "time_ns": BASE + time, "value": value}


def at(record):
    return {key: value + BASE if key.endswith("_ns") else value for key, value in record.items()}


@pytest.fixture(scope="module")
def capture():
    return link(
        tables(
            meta=Facts(device_kind="npu", rank=3).table(),
            ops=ops(
                at(op("ProfilerStep#5", 0, 100)),
                at(op("aten::add", 10, 40, stack="a.py(3): f;b.py(1): g")),
                at(op("aten::empty", 12, 20)),
                at(op("aten::add", 50, 60)),
                at(op("crossing", 30, 45, WORKER)),
                at(op("crossed", 20, 40, WORKER)),
                at(op("nothing", 70, 70, WORKER)),
            ),
            queue=queue(*[[at(record) for record in queued(1, (14, 16), (18, 24))]]),
            api_calls=api_calls(at(api(19, 23, 7))),
            kernels=kernels(at(task(60, 90, connection_id=7))),
            steps=steps((5, BASE, BASE + 100)),
            counters=rows("counters", *[sample(time, float(time % 7)) for time in (5, 15, 25, 95)]),
        )
    )


@pytest.fixture(scope="module")
def index(capture):
    return trace_index.build(capture)


def ids(index, name):
    number = index.names.index(name)
    return np.flatnonzero(index.slices["name"] == number).tolist()


def test_meta(index, capture):
    meta = trace.meta(index, capture)
    assert (meta["base_ns"], meta["length_ns"], meta["raw_start_us"]) == ("1000000", 100, "1000.000")
    assert [process["name"] for process in meta["processes"]][:4] == ["Python", "CANN", "Ascend Hardware", "HBM"]
    assert meta["processes"][0]["badge"] == "PTA"
    assert {process["rank"] for process in meta["processes"]} == {3}
    python = [track for track in meta["tracks"] if track["process"] == 0]
    assert [(track["label"], len(track["rows"]), track["slices"], track["overlapping"]) for track in python] == [
        ("Thread 1", 4, 5, 0),
        ("Thread 2", 2, 3, 1),
        ("Thread 9", 1, 1, 0),
    ]
    (counter,) = [track for track in meta["tracks"] if track["kind"] == "counter"]
    assert (counter["label"], counter["unit"], counter["samples"], counter["min"], counter["max"]) == (
        "HBM 0/Read",
        "MB/s",
        4,
        1.0,
        5.0,
    )
    assert {flow["category"]: flow["count"] for flow in meta["flows"]} == {"async_npu": 1, "HostToDevice": 1, "async_task_queue": 1}
    assert meta["steps"][0]["step"] == 5
    assert meta["slices"] == index.count == sum(row["slices"] for row in meta["rows"])
    assert json.dumps(meta)


def test_parents_and_self_times(index):
    (step,), (first, _), (inner,) = (ids(index, name) for name in ("ProfilerStep#5", "aten::add", "aten::empty"))
    parent, own = index.slices["parent"], index.slices["self"]
    assert (parent[inner], parent[first], parent[step]) == (first, step, trace_index.NONE)
    assert (own[inner], own[first], own[step]) == (6, 22, 60)  # 8 - enqueue 2, 30 - 8, 100 - 30 - 10


def test_kept_index_is_the_same(index, tmp_path):
    trace_index.save(index, tmp_path / "index", "key")
    kept = trace_index.load(tmp_path / "index", "key")
    assert kept is not None
    assert (kept.names, kept.tracks, kept.row_bounds) == (index.names, index.tracks, index.row_bounds)
    assert all(np.array_equal(kept.slices[key], index.slices[key]) for key in index.slices)
    assert trace_index.load(tmp_path / "index", "other") is None
    assert trace_index.load(tmp_path / "nothing", "key") is None
    (tmp_path / "index" / "name.npy").unlink()
    assert trace_index.load(tmp_path / "index", "key") is None


def test_slice_detail(index, capture):
    first = ids(index, "aten::add")[0]
    found = slices.slice_detail(index, capture, Query(id=first))
    assert (found["name"], found["start_ns"], found["duration_ns"], found["self_ns"]) == ("aten::add", 10, 30, 22)
    assert (found["raw_start_us"], found["step"], found["step_share"]) == ("1000.010", 5, 0.3)
    assert found["stack"][0] == {"text": "a.py(3): f", "file": "a.py", "line": 3, "function": "f"}
    assert (found["parent"]["name"], [child["name"] for child in found["children"]]) == ("ProfilerStep#5", ["aten::empty"])
    inner = slices.slice_detail(index, capture, Query(table="ops", row=2))
    assert inner["name"] == "aten::empty"
    assert [kernel["name"] for kernel in inner["kernels"]] == ["MatMul"]
    assert [(flow["category"], flow["direction"], flow["name"]) for flow in inner["flows"]] == [("async_npu", "out", "MatMul")]
    kernel = slices.slice_detail(index, capture, Query(table="kernels", row=0))
    assert kernel["links"]["operator"] == "aten::empty"
    assert {flow["category"]: flow["name"] for flow in kernel["flows"]} == {
        "async_npu": "aten::empty",
        "HostToDevice": "Node@launch",
    }


@pytest.mark.parametrize("query", [{"id": 99}, {"table": "ops", "row": 99}, {"table": "nothing", "row": 0}])
def test_unknown_slices(index, capture, query):
    with pytest.raises(Problem) as found:
        slices.slice_detail(index, capture, Query(**query))
    assert found.value.code == "unknown_slice"


def test_next_slices(index):
    first, second = ids(index, "aten::add")
    (inner,) = ids(index, "aten::empty")
    assert slices.next_slice(index, Query(id=first)) == {"id": inner}
    assert slices.next_slice(index, Query(id=first, same=1)) == {"id": second}
    assert slices.next_slice(index, Query(id=second, same=1, dir=-1)) == {"id": first}
    assert slices.next_slice(index, Query(id=second, same=1)) == {"id": None}


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        pytest.param(
            0, 101, {"ProfilerStep#5": (0.1, 1), "aten::add": (0.04, 2), "aten::empty": (0.008, 1), "Enqueue": (0.002, 1)}, id="all"
        ),
        pytest.param(20, 50, {"ProfilerStep#5": (0.03, 1), "aten::add": (0.02, 1)}, id="half-open"),
        pytest.param(39, 51, {"ProfilerStep#5": (0.012, 1), "aten::add": (0.002, 2)}, id="both-ends-cut"),
    ],
)
def test_range_statistics(index, low, high, expected):
    answer = slices.range_statistics(index, {"tracks": [0], "from": low, "to": high})
    assert {row[0]: (row[1], row[6]) for row in answer["rows"]} == expected
    listed = slices.range_slices(index, {"tracks": [0], "from": low, "to": high, "name": index.names.index("aten::add")})
    assert listed["total"] == expected["aten::add"][1]


def test_self_time_of_a_range_is_what_lies_inside(index):
    rows = slices.range_statistics(index, {"tracks": [0], "from": 39, "to": 51})["rows"]
    # Of the step 12 ns are in the range, and two operators take 1 ns each of them.
    assert {row[0]: row[2] for row in rows}["ProfilerStep#5"] == pytest.approx(0.010)


def test_range_holds_slices_without_length(index):
    answer = slices.range_statistics(index, {"tracks": None, "from": 70, "to": 71, "group": "track"})
    assert ["nothing", 0.0, 0.0, 0.0, 0.0, 0.0, 1] in answer["rows"]
    assert len(answer["tracks"]) == len(answer["rows"])


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ({"q": "ADD"}, 2),
        ({"q": "ADD", "case": 1}, 0),
        ({"q": "aten"}, 3),
        ({"q": "ate", "word": 1}, 0),
        ({"q": "^aten.*d$", "mode": "regex"}, 2),
        ({"q": "aten", "from": 41}, 1),
        ({"q": "aten", "tracks": "1"}, 0),
        ({"q": "."}, 0),
    ],
)
def test_search(index, query, count):
    found = slices.search(index, Query(px=10, **query))
    assert found["count"] == count == sum(found["density"]["counts"]) == len(found["hits"])


def test_search_in_order(index):
    found = slices.search(index, Query(q="aten", limit=2))
    assert [hit["start_ns"] for hit in found["hits"]] == [10, 12]
    later = slices.search(index, Query(q="aten", limit=2, after=12))
    assert (later["count"], [hit["start_ns"] for hit in later["hits"]]) == (3, [12, 50])


def test_arrows(index):
    found = arrows.flows(index, Query(cats="async_npu,HostToDevice"))
    assert found["count"] == 2
    assert sorted(zip(found["arrows"]["from_ns"], found["arrows"]["to_ns"], strict=True)) == [(12, 60), (19, 60)]
    assert arrows.flows(index, Query(cats="async_npu", **{"from": 61}))["count"] == 0
    assert arrows.flows(index, Query(cats="async_npu", **{"from": 30, "to": 40}))["count"] == 1
    assert arrows.flows(index, Query(cats="async_npu", inside=1, **{"from": 30, "to": 70}))["count"] == 0
    thinned = arrows.flows(index, Query(cats="async_npu,HostToDevice", limit=1))
    assert (thinned["count"], thinned["thinned"], len(thinned["arrows"]["to_ns"])) == (2, True, 1)


def test_counter_tiles(index):
    (track,) = [track["id"] for track in index.tracks if track["kind"] == "counter"]
    whole, right, beyond = decode(trace.counters(index, [[track, 0, 0], [track, 20, 1], [track, 62, 2**40]]))
    assert (whole["time"].tolist(), whole["first"].tolist()) == ([5, 15, 25, 95], [5, 1, 4, 4])
    assert (right["time"].tolist(), right["last"].tolist(), beyond["time"].tolist()) == ([95], [4], [95])


def test_counter_bins_keep_extremes():
    time = np.arange(3000, dtype=np.int64)
    value = np.tile([1.0, 9.0, -3.0, 2.0], 750)
    tile = trace._counter_tile(time, value, 0, 4096, 3)
    assert (tile["first"][0], tile["min"][0], tile["max"][0], tile["last"][0], tile["count"][0]) == (1, -3, 9, 2, 8)
    assert tile["count"].sum() == 3000


def test_tiles_far_beyond_the_end_are_empty(index):
    frames = decode(trace.tiles(index, [[0, 62, 1], [0, 62, 2**62], [0, 0, 2**60]]))
    assert [len(frame["start"]) for frame in frames] == [0, 0, 0]


def test_export_is_a_chrome_trace(index):
    document = json.loads(b"".join(trace_export.export(index, Query(split_overlaps=1))))
    events = document["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert len(spans) == index.count
    add = next(event for event in spans if event["name"] == "aten::add")
    assert (add["ts"], add["dur"]) == (0.01, 0.03)
    crossing, crossed = (next(event for event in spans if event["name"] == name) for name in ("crossing", "crossed"))
    assert crossing["tid"] != crossed["tid"]
    assert sum(event["ph"] == "C" for event in events) == 4
    assert sum(event["ph"] == "s" for event in events) == sum(event["ph"] == "f" for event in events) == 3
    part = json.loads(b"".join(trace_export.export(index, Query(tracks="0", **{"from": 50, "to": 60}))))["traceEvents"]
    assert {event["name"] for event in part if event["ph"] == "X"} == {"ProfilerStep#5", "aten::add"}


def test_an_empty_capture():
    empty = link(tables())
    index = trace_index.build(empty)
    assert trace.meta(index, empty)["slices"] == 0
    assert slices.search(index, Query(q="a"))["count"] == 0
    assert slices.range_statistics(index, {"tracks": None})["rows"] == []
    assert json.loads(b"".join(trace_export.export(index, Query())))["traceEvents"]
    with pytest.raises(Problem):
        trace.tiles(index, [[0, 0, 0]])


def test_names_in_parts(index):
    assert trace.names(index, Query(**{"from": 1, "to": 3})) == {"from": 1, "to": 3, "names": index.names[1:3]}
    assert trace.names(index, Query())["names"] == sorted(index.names)


def test_gpu_layout_shows_annotations_once():
    made = link(
        tables(
            meta=Facts(device_kind="cuda").table(),
            ops=ops(op("range", 0, 10)),
            kernels=kernels(task(3, 4, connection_id=1)),
            api_calls=rows("api_calls", {**api(1, 2, 1, "cuda_runtime", "cudaLaunchKernel", tid=MAIN)}),
            marks=rows("marks", {"pid": 7, "tid": MAIN, "start_ns": 0, "end_ns": 10, "message": "range", "kind": "annotation",
                                 "device": 0, "stream": 2, "device_start_ns": 3, "device_end_ns": 4}),
        )
    )  # fmt: skip
    index = trace_index.build(made)
    layers = {
        process["name"]: sum(track["slices"] for track in index.tracks if track["process"] == process["id"])
        for process in index.processes
    }
    assert layers == {"Python": 2, "GPU 0": 2, "Overlap Analysis": 1}
    assert index.categories == ["ac2g"]
    assert pl.Series(index.names).to_list() == sorted(index.names)


@pytest.mark.parametrize(
    ("asked", "start"),
    [
        pytest.param({}, 10, id="the-first"),
        pytest.param({"at": 10}, 30, id="after-one"),
        pytest.param({"at": 10, "least": 10}, 60, id="not-the-short-one"),
        pytest.param({"at": 60}, None, id="after-the-last"),
        pytest.param({"at": 60, "dir": -1}, 30, id="before-one"),
        pytest.param({"at": 60, "dir": -1, "least": 10}, 10, id="before-the-short-one"),
        pytest.param({"at": 10, "dir": -1}, None, id="before-the-first"),
    ],
)
def test_gaps_of_the_device_are_walked(asked, start):
    """Busy 0-10, 20-30, 35-60 and 100-110: idle for 10, 5 and 40 ns."""
    busy = [(0, 10), (20, 30), (35, 60), (100, 110)]
    index = trace_index.build(
        link(tables(meta=Facts(device_kind="npu").table(), kernels=kernels(*(at(task(*one)) for one in busy))))
    )
    found = slices.next_gap(index, Query(gap=1, **asked))["id"]
    assert (None if found is None else int(index.slices["start"][found])) == start
