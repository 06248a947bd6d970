"""The trace in Kineto's own form: a Kineto trace comes out as it went in, other captures take its form."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal

import polars as pl
import pytest
from capture_rows import collective, collectives, kernels, op, ops, tables, task
from kineto_events import BASE_NS, event, kernel, written

from stepscope.analysis.link.capture import link
from stepscope.errors import CaptureError
from stepscope.export.trace.kineto import write_kineto
from stepscope.export.trace.kineto_values import dims, thousandths
from stepscope.formats.kineto import read as kineto
from stepscope.tables import Facts, Tables

T = 1_700_000_000_123_456_789


def trace(path) -> dict:
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if path.suffix == ".gz" else data, parse_float=Decimal)


@pytest.mark.parametrize(
    ("ns", "text"),
    [(9000, "9"), (9500, "9.5"), (1, "0.001"), (0, "0"), (1_695_835_572_943_623_000, "1695835572943623"), (-1500, "-1.5")],
)
def test_whole_microseconds_stay_whole(ns, text):
    assert pl.select(thousandths(pl.lit(ns, pl.Int64))).item() == text


@pytest.mark.parametrize(
    ("shapes", "dtypes", "text"),
    [
        pytest.param("2,3;;3,4", "float;;Scalar", "[[2, 3], [], [3, 4]]", id="tensors"),
        pytest.param("2;3;4,5;", "TensorList;float;Scalar", "[[[2], [3]], [4, 5], []]", id="a-list-of-two"),
        pytest.param("2;3;4;5", "TensorList;TensorList", "[[[2], [3]], [[4], [5]]]", id="two-lists"),
        pytest.param(";", "TensorList;Scalar", "[[], []]", id="an-empty-list"),
        pytest.param("2,3;4", None, "[[2, 3], [4]]", id="types-not-recorded"),
    ],
)
def test_dims(shapes, dtypes, text):
    found = dims(pl.Series([shapes], dtype=pl.Categorical()), pl.Series([dtypes], dtype=pl.Categorical()))
    assert found.to_list() == [text]


def test_kineto_in_kineto_out(tmp_path):
    place = {"pid": 0, "tid": 7}
    add = {
        "External id": 5,
        "Sequence number": 3,
        "Fwd thread id": 0,
        "Input Dims": [[2, 3], []],
        "Input type": ["float", "Scalar"],
    }
    launch = {"External id": 5, "correlation": 77}
    sync = {"cuda_sync_kind": "Stream Sync", "External id": 5, "stream": 7, "correlation": 79, "device": 0}
    memory = {"Total Reserved": 20, "Bytes": 8, "Total Allocated": 10, "Addr": 640, "Device Id": 0, "Device Type": 1}
    copy = {"External id": 5, "device": 0, "stream": 7, "correlation": 78, "bytes": 64, "memory bandwidth (GB/s)": 0.5}
    events = [
        event("user_annotation", "ProfilerStep#4", 1, 90, args={"External id": 2}),
        event("cpu_op", 'aten::"add"', 10, 4.25, args=add),
        event("python_function", "train.py(3): step", 9, 20, args={"Python id": 2, "Python parent id": 1}),
        event("cuda_runtime", "cudaLaunchKernel", 11, 1, args=launch),
        kernel("gemm", 20, 3, 77, 5, grid=[2, 3, 1], block=[128, 1, 1], **{"blocks per SM": 2.5}),
        event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 30, 2, **place, args=copy),
        event("cuda_sync", "Stream Sync", 33, 1, **place, args=sync),
        event("gpu_user_annotation", "ProfilerStep#4", 20, 3, **place, args={"External id": 2}),
        {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 100, "tid": 101, "ts": 12, "args": memory},
    ]
    header = {
        "deviceProperties": [{"id": 0, "name": "A100", "numSms": 108}], "distributedInfo": {"backend": "nccl", "rank": 3},
        "baseTimeNanoseconds": BASE_NS, "displayTimeUnit": "ms",
    }  # fmt: skip
    path = write_kineto(link(kineto.read(written(tmp_path, events, **header))), tmp_path / "out.json.gz")
    found = trace(path)
    assert {key: found[key] for key in ("schemaVersion", *header)} == {"schemaVersion": 1, **header}
    kept = [shown for shown in found["traceEvents"] if shown["ph"] in "Xi"]
    key = json.dumps
    assert sorted(kept, key=lambda shown: key(shown, default=float, sort_keys=True)) == sorted(
        json.loads(json.dumps(events), parse_float=Decimal), key=lambda shown: key(shown, default=float, sort_keys=True)
    )
    arrows = [(shown["ph"], shown["id"], shown["pid"], shown["ts"]) for shown in found["traceEvents"] if shown["ph"] in "sf"]
    assert arrows == [("s", 77, 100, 11), ("f", 77, 0, 20)]


@pytest.mark.parametrize(
    "category", ["mtia_ccp_events", "cuda_profiler_range", "mlu_memcpy", "hpu_op", "collective_comm", "warp_events"]
)
def test_tasks_keep_the_category_of_their_maker(tmp_path, category):
    """Other tools count what is a `kernel`."""
    source = [event(category, "x", 10, 4, pid=3, tid=1, args={"device": 3, "stream": 1}), kernel("gemm", 20, 2, 1, 1)]
    path = write_kineto(link(kineto.read(written(tmp_path, source))), tmp_path / "out.json.gz")
    spans = {item["name"]: item["cat"] for item in trace(path)["traceEvents"] if item["ph"] == "X"}
    assert (spans["x"], spans["gemm"]) == (category, "kernel")


def test_an_npu_takes_the_same_form(tmp_path):
    launch = {"connection_id": 9, "launch_ns": T + 10, "launch_tid": 1}
    linked = tables(
        meta=Facts(device_kind="npu", rank=1, device_ids=(0,), device_names={"0": "Ascend910B"}).table(),
        ops=ops(op("ProfilerStep#4", T, T + 100), op("aten::mm", T + 5, T + 20)),
        kernels=kernels(task(T + 200, T + 300, **launch), task(T + 300, T + 310, kind="event", name="EVENT_WAIT")),
        collectives=collectives(collective(T + 400, T + 500, group="g", count=8, data_type="FP32", op_type="hcom_allReduce_")),
    )
    path = write_kineto(linked, tmp_path / "out.json")
    found = trace(path)
    assert found["deviceProperties"] == [{"id": 0, "name": "Ascend910B"}]
    assert found["distributedInfo"] == {"backend": "hccl", "rank": 1}
    spans = [(shown["cat"], shown["name"], shown["pid"]) for shown in found["traceEvents"] if shown["ph"] == "X"]
    assert spans == [
        ("cpu_op", "aten::mm", 7), ("user_annotation", "ProfilerStep#4", 7), ("kernel", "MatMul", 0),
        ("kernel", "hcom_allReduce__271_0_1", 0),
    ]  # fmt: skip
    again = kineto.read(path)
    assert again.ops["start_ns"].to_list() == [T, T + 5]
    assert again.kernels["start_ns"].to_list() == [T + 200, T + 400]
    assert again.collectives.select("op_type", "count").rows() == [("hcom_allReduce_", 8)]


def test_a_capture_without_events_is_refused(tmp_path):
    with pytest.raises(CaptureError, match="no event"):
        write_kineto(Tables(), tmp_path / "out.json")
    assert list(tmp_path.iterdir()) == []
