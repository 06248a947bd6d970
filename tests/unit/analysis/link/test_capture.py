"""Linking fills every reference, counts what has none, and may be repeated."""

from __future__ import annotations

from capture_rows import (
    DEQUEUE,
    WORKER,
    api,
    api_calls,
    collective,
    collectives,
    kernels,
    op,
    ops,
    queue,
    queued,
    rows,
    tables,
    task,
)

from stepscope.analysis.link.capture import link
from stepscope.tables import ALL_TABLES, issues, lost


def event(time, action, size):
    return {
        "pid": 7, "tid": 1, "time_ns": time, "component": "PTA", "device_type": "npu", "device": 0, "action": action, "inner": True,
        "ptr": 64, "bytes": size,
    }  # fmt: skip


CAPTURE = tables(
    ops=ops(
        op("ProfilerStep#2", 0, 100), op("aten::mm", 10, 20, seq=4), op("MmBackward", 40, 50, WORKER, seq=4, fwd_thread=1),
    ),
    queue=queue(queued(1, (12, 13), (30, 40))),
    api_calls=api_calls(api(32, 34, 9)),
    kernels=kernels(task(200, 220, connection_id=9), task(230, 240), task(250, 260, kind="memcpy", name="MEMCPY_ASYNC")),
    collectives=collectives(collective(300, 400)),
    memory_events=rows("memory_events", event(15, "malloc", 512), event(18, "free", -512)),
    quality=lost(issues.TRUNCATED_RECORD, "reader", 3),
)  # fmt: skip


def test_everything_is_filled():
    linked = link(CAPTURE).check()
    assert linked.ops["parent"].to_list() == [None, 0, None]
    assert linked.kernels.select("launch_ns", "launch_tid", "correlation_id", "op").row(0) == (32, DEQUEUE, 1, 1)
    assert linked.steps.select("step", "device_start_ns", "device_end_ns", "inflated").rows() == [(2, 200, 220, False)]
    assert linked.flows.select("kind", "id", "from_ns", "to_ns").rows() == [("fwdbwd", 4, 10, 40)]
    assert linked.allocations.select("op", "bytes", "start_ns", "release_ns").rows() == [(1, 512, 15, 18)]


def test_the_layers_of_the_overlap_analysis_are_kept():
    assert link(CAPTURE).overlap.rows() == [
        (0, "Computing", 200, 220),
        (0, "Computing", 230, 240),
        (0, "Communication", 300, 400),
        (0, "Communication(Not Overlapped)", 300, 400),
        (0, "Free", 220, 230),
        (0, "Free", 240, 300),
    ]


def test_work_without_operator_is_counted():
    assert link(CAPTURE).quality.rows() == [
        ("reader", "truncated-record", "loss", "records", 3, ""),
        ("link", "launch-not-recorded", "note", "records", 1, "kernels"),
        ("link", "launch-not-recorded", "note", "records", 1, "collectives"),
    ]


def test_linking_twice_changes_nothing():
    once = link(CAPTURE)
    twice = link(once)
    assert all(twice[name].equals(once[name]) for name in ALL_TABLES)


def test_empty_capture():
    assert link(tables()).check().filled() == []


def test_device_only_capture_is_no_loss():
    assert link(tables(kernels=kernels(task(0, 1)))).quality.height == 0


def test_a_task_put_into_the_queue_has_the_name_it_is_taken_with():
    put, taken = queued(7, (1, 2), (5, 6))
    table = queue([put, {**taken, "name": "MatMul"}], queued(8, (9, 10), (12, 13)))
    names = link(tables(queue=table)).queue.select("kind", "name").rows()
    assert names == [("enqueue", "MatMul"), ("dequeue", "MatMul"), ("enqueue", None), ("dequeue", None)]


def test_python_calls_without_numbers_are_numbered_by_nesting():
    spans = [(1, 10, 50), (1, 20, 30), (1, 60, 70), (2, 15, 90), (2, 25, 35), (2, 27, 28)]
    calls = rows("python_calls", *({"pid": 1, "tid": tid, "start_ns": start, "end_ns": end} for tid, start, end in spans))
    numbered = link(tables(python_calls=calls)).python_calls
    assert numbered.select("tid", "call_id", "parent_id").rows() == [
        (1, 0, 0),
        (1, 1, 0),
        (1, 2, 0),
        (2, 0, 0),
        (2, 1, 0),
        (2, 2, 1),
    ]
