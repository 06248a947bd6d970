"""Blocks from allocator events, their operators, and the rows of memory_record."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from stepscope.analysis.memory.blocks import allocations, record_rows
from stepscope.tables import ALL_TABLES

MAIN, WORKER = 11, 12
NPU = {"pid": 1, "tid": MAIN, "component": "PTA", "device_type": "npu", "device": 0, "inner": True, "ptr": 0x100}


def table(name: str, *rows: dict[str, Any]) -> pl.DataFrame:
    schema = ALL_TABLES[name].schema
    columns = {key: [row.get(key) for row in rows] for key in schema if any(key in row for row in rows)}
    return ALL_TABLES[name].conform(pl.DataFrame(columns, schema={key: schema[key] for key in columns}, strict=False))


def event(time: int, action: str | None, size: int = 512, **more: Any) -> dict[str, Any]:
    total = 1000.0 + time
    totals = {"total_allocated": total, "total_reserved": total + 0.5, "total_active": total + 0.25}
    return {**NPU, "time_ns": time, "action": action, "bytes": size if action == "malloc" else -size, **totals, **more}


def op(start: int, end: int, name: str, parent: int | None = None, tid: int = MAIN) -> dict[str, Any]:
    return {"pid": 1, "tid": tid, "start_ns": start, "end_ns": end, "name": name, "parent": parent}


def interval(kind: str, start: int, end: int, task: int) -> dict[str, Any]:
    tid = MAIN if kind == "enqueue" else WORKER
    return {"pid": 1, "tid": tid, "start_ns": start, "end_ns": end, "kind": kind, "correlation_id": task}


def pair(*events: dict[str, Any]) -> tuple[pl.DataFrame, dict[str, int]]:
    blocks, quality = allocations(table("memory_events", *events), table("ops"), table("queue"))
    ALL_TABLES["allocations"].check(blocks)
    return blocks, {row["issue"]: row["count"] for frame in quality for row in frame.iter_rows(named=True)}


@pytest.mark.parametrize(
    ("actions", "release", "active", "total"),
    [
        pytest.param(["malloc"], None, None, None, id="outlives-the-capture"),
        pytest.param(["malloc", "free"], 1, None, 1001.0, id="free-only"),
        pytest.param(["malloc", "block_free"], None, 1, 1001.0, id="block-free-only-gives-the-totals"),
        pytest.param(["malloc", "block_free", "free"], 2, 1, 1002.0, id="usual-order"),
        pytest.param(["malloc", "free", "block_free"], 1, 2, 1001.0, id="other-stream-held-it"),
    ],
)
def test_a_block_and_its_releases(actions, release, active, total):
    blocks, lost = pair(*(event(time, action) for time, action in enumerate(actions)))
    row = blocks.row(0, named=True)
    assert (row["start_ns"], row["release_ns"], row["active_release_ns"], row["bytes"]) == (0, release, active, 512)
    assert (row["alloc_total_allocated"], row["alloc_total_reserved"], row["alloc_total_active"]) == (1000.0, 1000.5, 1000.25)
    assert row["release_total_allocated"] == total
    assert blocks.height == 1
    assert lost == {}


def test_the_next_malloc_of_an_address_is_another_block():
    blocks, _ = pair(event(0, "malloc"), event(1, "free"), event(2, "malloc", 64), event(3, "block_free", 64))
    assert blocks.select("start_ns", "release_ns", "active_release_ns", "bytes").rows() == [(0, 1, None, 512), (2, None, 3, 64)]


def test_addresses_devices_and_processes_are_kept_apart():
    others = [{"ptr": 0x200}, {"device": 1}, {"pid": 2}]
    events = [event(0, "malloc"), *(event(1 + k, "malloc", **more) for k, more in enumerate(others))]
    blocks, _ = pair(*events, event(9, "free", device=1))
    assert blocks["release_ns"].to_list() == [None, None, 9, None]


def test_what_belongs_to_no_block_is_counted():
    blocks, lost = pair(
        event(0, "free"), event(1, "block_free"), event(2, "malloc"), event(3, "free"), event(4, "free"), event(5, "block_free"),
        event(6, None),
    )  # fmt: skip
    assert blocks.select("release_ns", "active_release_ns").rows() == [(3, None)]
    assert lost == {"unknown-kind": 1, "allocated-before-recording": 2, "repeated-release": 2}


def test_events_without_address_or_of_a_foreign_allocator_are_not_paired():
    blocks, lost = pair(event(0, "malloc", ptr=None), event(1, "malloc", inner=False))
    assert blocks.height == 0
    assert lost == {}


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_sign_decides_off_the_npu(kind):
    there = {"device_type": kind, "device": None}
    blocks, _ = pair(event(0, "malloc", **there), event(1, "malloc", **there, bytes=-512), event(2, None, **there, bytes=8))
    assert blocks.select("start_ns", "release_ns", "bytes", "device_type").rows() == [(0, 1, 512, kind), (2, None, 8, kind)]


def test_runtime_records_pair_by_operator():
    ge = {"component": "GE", "inner": None, "pid": None, "tid": None}
    blocks, lost = pair(
        event(0, "malloc", **ge, op_name="Conv2D1"), event(1, "malloc", **ge, op_name="ReduceSum7"),
        event(2, "free", **ge, op_name="Conv2D1"), event(3, "free", **ge, op_name="Cast2"),
    )  # fmt: skip
    assert blocks.select("name", "component", "start_ns", "release_ns", "op").rows() == [
        ("Conv2D1", "GE", 0, 2, None),
        ("ReduceSum7", "GE", 1, None, None),
    ]
    assert lost == {"allocated-before-recording": 1}


def test_owner_is_the_innermost_open_operator_of_the_thread():
    ops = table(
        "ops",
        op(0, 100, "ProfilerStep#1"),
        op(10, 50, "aten::conv2d", 0),
        op(12, 20, "aten::empty", 1),
        op(13, 19, "empty_tensor", 2),
        op(15, 60, "aten::mm", None, WORKER),
    )
    at = [5, 14, 19, 21, 50, 51, 100, 101]
    blocks, _ = allocations(table("memory_events", *(event(time, "malloc", ptr=time) for time in at)), ops, table("queue"))
    # Equality with the end keeps the operator: 50 is still inside aten::conv2d.
    assert blocks["op"].to_list() == [0, 2, 2, 1, 1, 0, 0, None]
    assert blocks["name"].to_list()[-1] is None


def test_owner_of_a_queued_task_is_the_library_operator_that_enqueued_it():
    ops = table(
        "ops",
        op(0, 100, "Optimizer.step"),
        op(10, 50, "aten::addmm", 0),
        op(11, 48, "aclnnAddmm", 1),
        op(60, 70, "npu_like", 0),
        op(80, 90, "my_range", 0),
        op(200, 290, "aten::mm", None, WORKER),
    )
    enqueues = [interval("enqueue", *times) for times in ((5, 12, 7), (61, 62, 8), (81, 82, 9))]
    dequeues = [interval("dequeue", *times) for times in ((210, 220, 7), (230, 240, 8), (250, 260, 9), (270, 280, 10))]
    queue = table("queue", *enqueues, *dequeues)
    at = [209, 215, 220, 235, 255, 275]
    events = table("memory_events", *(event(time, "malloc", ptr=time, tid=WORKER) for time in at))
    blocks, _ = allocations(events, ops, queue)
    assert blocks["name"].to_list() == [None, "aten::addmm", None, "npu_like", None, None]


def rows(*events: dict[str, Any]) -> list[tuple[Any, ...]]:
    return (
        record_rows(table("memory_events", *events))
        .select("component", "time_ns", "total_allocated", "total_active", "stream_ptr")
        .rows()
    )


def record(component: str, time: int, allocated: float, active: float | None = None, **more: Any) -> dict[str, Any]:
    return {**NPU, "component": component, "time_ns": time, "total_allocated": allocated, "total_active": active, **more}


def test_pta_and_ge_records_are_added_up():
    assert rows(
        record("GE", 1, 10.0),
        record("GE", 2, 20.0),
        record("PTA", 2, 100.0, 101.0, stream_ptr=5),
        record("WORKSPACE", 3, 7.0, 7.0),
        record("GE", 4, 30.0),
        record("PTA", 5, 1000.0, 1001.0, device=1),
    ) == [
        ("GE", 1, 10.0, None, None),
        ("PTA+GE", 1, 10.0, None, None),
        ("PTA", 2, 100.0, 101.0, 5),
        ("PTA+GE", 2, 110.0, 101.0, 5),
        ("GE", 2, 20.0, None, None),
        ("PTA+GE", 2, 120.0, 101.0, 5),
        ("WORKSPACE", 3, 7.0, 7.0, None),
        ("GE", 4, 30.0, None, None),
        ("PTA+GE", 4, 130.0, 101.0, 5),
        ("PTA", 5, 1000.0, 1001.0, None),
        ("PTA+GE", 5, 1000.0, 1001.0, None),
    ]


def test_sampled_rows_come_first_and_old_sums_are_not_counted_again():
    got = rows(record("PTA", 1, 1.0), record("PTA+GE", 1, 1.0), record("APP", 9, 0.0), record("RUNTIME", 3, 4.0))
    assert [row[:2] for row in got] == [("APP", 9), ("PTA", 1), ("PTA+GE", 1), ("RUNTIME", 3)]


def test_host_events_show_only_without_device_events():
    host = record("PTA", 1, 1.0, device_type="cpu", device=None)
    assert [row[:2] for row in rows(host)] == [("PTA", 1)]
    assert [row[:2] for row in rows(host, record("PTA", 2, 1.0))] == [("PTA", 2), ("PTA+GE", 2)]


def test_nothing_in_nothing_out():
    assert rows() == []
    assert pair()[0].height == 0
