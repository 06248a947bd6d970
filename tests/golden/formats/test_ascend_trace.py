# SPDX-License-Identifier: Apache-2.0
"""Every row of a real timeline against its own event, as the standard library reads it."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from decimal import Decimal

import polars as pl
import pytest

from stepscope.formats.ascend.trace.timeline import read_timeline
from stepscope.tables import ALL_TABLES

NONE = 4294967295
TEXT_CAPTURES = [f"level{level}/rank{rank}_ascend_pt" for level in (0, 2) for rank in (0, 1)]
VENDOR_TIMELINES = {
    "a2_elementwise_1task": "msprof_20260522113005.json",
    "a2_pypto_mix_aicpu_event": "msprof_20260716124705.json.gz",
    "a2_torch_add_2100tasks": "msprof_20260716124519.json.gz",
    "a310b_addcmul_1task": "msprof_20240418071834.json",
}


class Reference:
    """The events of a timeline and the layer of each, without any of our code."""

    def __init__(self, path):
        text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        self.events = json.loads(text, parse_float=Decimal)
        self.layers = {e["pid"]: e["args"]["name"] for e in self.events if e["ph"] == "M" and e["name"] == "process_name"}
        self.lanes = {(e["pid"], e["tid"]): e["args"]["name"] for e in self.events if e["name"] == "thread_name"}

    def slices(self, *layers: str) -> list[dict]:
        return [e for e in self.events if e["ph"] == "X" and "cat" not in e and self.layers.get(e["pid"]) in layers]

    def framework(self, *categories: str) -> list[dict]:
        return [e for e in self.events if e["ph"] == "X" and e.get("cat") in categories]

    def phase(self, phase: str) -> list[dict]:
        return [e for e in self.events if e["ph"] == phase]


def nanoseconds(event: dict) -> int:
    return int(Decimal(event["ts"]) * 1000)


def end(event: dict) -> int:
    # The vendor writes sums of doubles: 0.9099999999999999 means 0.91.
    return nanoseconds(event) + int((Decimal(event["dur"]) * 1000).quantize(Decimal("0.001")))


def known(value: int | None) -> int | None:
    return None if value in (NONE, -1, 2**64 - 1) else value


def joined(value: str | None) -> str | None:
    return None if value is None else value.replace(";\r\n", ";")


def same(frame: pl.DataFrame, columns: list[str], expected: list[tuple]) -> None:
    assert Counter(frame.select(columns).rows()) == Counter(expected)


@pytest.fixture(scope="module", params=TEXT_CAPTURES)
def capture(request, golden):
    path = golden / "ascend_pt" / "text" / request.param / "ASCEND_PROFILER_OUTPUT" / "trace_view.json"
    return _read(path)


@pytest.fixture(scope="module", params=list(VENDOR_TIMELINES))
def vendor(request, golden):
    return _read(golden / "prof_raw" / request.param / "official_output" / VENDOR_TIMELINES[request.param])


def _read(path):
    quality: list[pl.DataFrame] = []
    timeline = read_timeline([path], quality=quality)
    for name, frame in timeline.frames.items():
        ALL_TABLES[name].check(frame)
    return timeline, Reference(path), pl.concat(quality)


def test_nothing_is_lost(capture):
    timeline, reference, quality = capture
    assert quality.height == 0
    counts = {name: frame.height for name, frame in timeline.frames.items()}
    transfers = [e for e in reference.slices("HCCL") if reference.lanes[e["pid"], e["tid"]].startswith("Plane")]
    expected = {
        "ops": len(reference.framework("cpu_op")),
        "steps": 1,
        "queue": len(reference.framework("enqueue", "dequeue")),
        "python_calls": len(reference.framework("python_function")),
        "api_calls": len(reference.slices("CANN")),
        "kernels": len(reference.slices("Ascend Hardware")),
        "collectives": len(reference.slices("HCCL")) - len(transfers),
        "transfers": len(transfers),
        "counters": len(reference.phase("C")),
    }
    assert counts == {name: count for name, count in expected.items() if count}


def test_every_operator(capture):
    timeline, reference, _ = capture
    same(
        timeline.frames["ops"],
        ["pid", "tid", "start_ns", "end_ns", "name", "seq", "fwd_thread", "shapes", "dtypes", "stack"],
        [
            (
                e["pid"],
                e["tid"],
                nanoseconds(e),
                end(e),
                e["name"],
                known(e["args"]["Sequence number"]),
                e["args"]["Fwd thread id"] or None,
                joined(e["args"].get("Input Dims")),
                joined(e["args"].get("Input type")),
                joined(e["args"].get("Call stack")),
            )
            for e in reference.framework("cpu_op")
        ],
    )


def test_every_queue_and_python_interval(capture):
    timeline, reference, _ = capture
    same(
        timeline.frames["queue"],
        ["tid", "start_ns", "end_ns", "kind", "name", "correlation_id"],
        [
            (e["tid"], nanoseconds(e), end(e), e["cat"], e["name"].partition("@")[2] or None, e["args"]["correlation_id"])
            for e in reference.framework("enqueue", "dequeue")
        ],
    )
    same(
        timeline.frames["python_calls"],
        ["tid", "start_ns", "end_ns", "name", "call_id", "parent_id", "module_id"],
        [
            (
                e["tid"],
                nanoseconds(e),
                end(e),
                e["name"],
                e["args"]["Python id"],
                e["args"]["Python parent id"],
                e["args"].get("Python module id"),
            )
            for e in reference.framework("python_function")
        ],
    )


def _same_tasks(timeline, reference):
    kernels = timeline.frames["kernels"]
    same(
        kernels,
        ["stream", "start_ns", "end_ns", "name", "task_type", "task_id", "batch_id", "context_id", "model_id", "connection_id"],
        [
            (
                e["tid"],
                nanoseconds(e),
                end(e),
                e["name"],
                e["args"]["Task Type"],
                e["args"]["Task Id"],
                e["args"]["Batch Id"],
                known(e["args"]["Subtask Id"]),
                known(e["args"]["Model Id"]),
                known(e["args"]["connection_id"]),
            )
            for e in reference.slices("Ascend Hardware")
        ],
    )
    lengths = {
        (e["tid"], nanoseconds(e), e["args"]["Task Id"]): float(e["dur"]) * 1000 for e in reference.slices("Ascend Hardware")
    }
    read = kernels.select("stream", "start_ns", "task_id", "duration_ns").rows()
    assert {row[:3]: row[3] for row in read} == pytest.approx(lengths, abs=1e-3)


def _same_calls(timeline, reference):
    words = {"hccl": "communication"}
    same(
        timeline.frames["api_calls"],
        ["tid", "start_ns", "end_ns", "level", "name", "mode", "item_id", "connection_id"],
        [
            (
                e["tid"],
                nanoseconds(e),
                end(e),
                words.get(e["args"]["level"], e["args"]["level"]),
                e["name"].partition("@")[2],
                e["args"]["Mode"] or None,
                None if e["args"]["item_id"] == "0" else e["args"]["item_id"],
                known(e["args"]["connection_id"]),
            )
            for e in reference.slices("CANN")
        ],
    )


def test_every_device_task(capture):
    timeline, reference, _ = capture
    _same_tasks(timeline, reference)
    same(
        timeline.frames["kernels"].filter(pl.col("kind") == "memcpy"),
        ["start_ns", "bytes", "copy_direction"],
        [
            (nanoseconds(e), e["args"].get("data size(Byte)"), e["args"].get("memcpy direction"))
            for e in reference.slices("Ascend Hardware")
            if e["name"] == "MEMCPY_ASYNC"
        ],
    )


def test_every_vendor_task_and_call(vendor):
    timeline, reference, quality = vendor
    assert quality.height == 0
    _same_tasks(timeline, reference)
    _same_calls(timeline, reference)


def test_every_api_call(capture):
    timeline, reference, _ = capture
    if "api_calls" in timeline.frames:
        _same_calls(timeline, reference)
    else:
        assert reference.slices("CANN") == []


def test_every_transfer(capture):
    timeline, reference, _ = capture
    tasks = [e for e in reference.slices("HCCL") if "task type" in e["args"]]
    if not tasks:
        assert "transfers" not in timeline.frames
        return
    keys = ["stream id", "task id", "context id", "task type", "transport type", "size(Byte)", "data type", "link type"]
    same(
        timeline.frames["transfers"],
        [
            *("start_ns", "end_ns", "plane", "src_rank", "dst_rank", "notify_id"),
            *("stream", "task_id", "context_id", "task_type", "transport", "bytes", "data_type", "link"),
        ],
        [
            (
                nanoseconds(e),
                end(e),
                int(reference.lanes[e["pid"], e["tid"]].removeprefix("Plane ")),
                known(e["args"]["src rank"]),
                known(e["args"]["dst rank"]),
                None if e["args"]["notify_id"] == str(2**64 - 1) else e["args"]["notify_id"],
                *(e["args"][key] for key in keys),
            )
            for e in tasks
        ],
    )
    numbers = {(e["tid"] - 1, nanoseconds(e), e["args"]["context id"]): e["args"] for e in tasks}
    for plane, start, context, estimated, bandwidth in (
        timeline.frames["transfers"].select("plane", "start_ns", "context_id", "estimated_us", "bandwidth").rows()
    ):
        args = numbers[plane, start, context]
        assert (estimated, bandwidth) == (float(args["duration estimated(us)"]), float(args["bandwidth(GB/s)"]))


def test_transfers_lie_inside_their_operator(capture):
    timeline, reference, _ = capture
    operators = [e for e in reference.slices("HCCL") if "alg_type" in e["args"]]
    collectives = timeline.frames["collectives"]
    expected = sorted((nanoseconds(e), end(e), e["name"], e["args"]["count"], e["args"]["connection_id"]) for e in operators)
    assert collectives.select("start_ns", "end_ns", "name", "count", "connection_id").rows() == expected
    if "transfers" in timeline.frames:
        transfers = timeline.frames["transfers"]
        assert transfers["collective"].null_count() == 0
        spans = transfers.join(collectives.with_row_index("collective").cast({"collective": pl.Int64}), on="collective")
        assert (
            spans.filter((pl.col("start_ns") < pl.col("start_ns_right")) | (pl.col("end_ns") > pl.col("end_ns_right") + 1)).height
            == 0
        )


def test_every_launch_has_one_task(capture):
    timeline, reference, _ = capture
    starts = {}
    for event in reference.phase("s"):
        if event["cat"] == "HostToDevice":
            starts.setdefault(event["id"], event)
    first, further = {}, []
    for event in reference.phase("f"):
        if event["cat"] == "HostToDevice":
            if event["id"] in first:
                further.append(nanoseconds(event))
            else:
                first[event["id"]] = (nanoseconds(event), nanoseconds(starts[event["id"]]), starts[event["id"]]["tid"])
    assert len(first) == 210
    launched = pl.concat(
        timeline.frames[table].select("start_ns", "launch_ns", "launch_tid", "extra") for table in ("kernels", "collectives")
    ).drop_nulls("launch_ns")
    same(launched.filter(~pl.col("extra")), ["start_ns", "launch_ns", "launch_tid"], list(first.values()))
    assert sorted(launched.filter("extra")["start_ns"]) == sorted(further)


def test_every_counter(capture):
    timeline, reference, _ = capture
    expected = []
    for event in reference.phase("C"):
        args = dict(event["args"])
        instance = args.pop("acc_id", None)
        ((series, value),) = args.items()
        name = event["name"].replace("write_band_width", "write_bandwidth")
        expected.append((reference.layers[event["pid"]], name, series, instance, nanoseconds(event), float(value)))
    same(timeline.frames["counters"], ["source", "name", "series", "instance", "time_ns", "value"], expected)


def test_facts(capture, request):
    timeline, reference, _ = capture
    (python,) = (pid for pid, name in reference.layers.items() if name == "Python")
    assert timeline.pids == (python,)
    assert timeline.generation == "G1"
    assert timeline.device_ids == (int("rank1" in request.node.callspec.params["capture"]),)
