# SPDX-License-Identifier: Apache-2.0
"""Each rule by which an event of an Ascend timeline becomes a row, on events small enough to check by eye."""

from __future__ import annotations

import json

import polars as pl
import pytest

from stepscope.formats.ascend.trace.timeline import read_timeline
from stepscope.tables import ALL_TABLES

OS_PID = 5000
NONE = 4294967295


def pid_of(sort: int, device: int = 0) -> int:
    return (OS_PID << 10) | (sort << 5) | device


def layer(name: str, pid: int, sort: int, label: str) -> list[dict]:
    return [
        {"name": "process_name", "pid": pid, "tid": 0, "ph": "M", "args": {"name": name}},
        {"name": "process_labels", "pid": pid, "tid": 0, "ph": "M", "args": {"labels": label}},
        {"name": "process_sort_index", "pid": pid, "tid": 0, "ph": "M", "args": {"sort_index": sort}},
    ]


def lane(pid: int, tid: int, name: str) -> dict:
    return {"name": "thread_name", "pid": pid, "tid": tid, "ph": "M", "args": {"name": name}}


def slice_(name: str, pid: int, tid: int, ts: str, dur: float, cat: str | None = None, **args: object) -> dict:
    event = {"name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "ph": "X", "args": args}
    return event | ({"cat": cat} if cat else {})


def arrow(ph: str, ident: object, pid: int, tid: int, ts: str, cat: str = "HostToDevice") -> dict:
    return {"name": f"{cat}{ident}", "ph": ph, "cat": cat, "id": ident, "pid": pid, "tid": tid, "ts": ts}


HARDWARE = layer("Ascend Hardware", pid_of(13), 13, "NPU")
CANN = layer("CANN", pid_of(7), 7, "CPU")


@pytest.fixture
def read(tmp_path):
    """Read event lists, one file each; tables must pass their own check."""

    def reading(*files: list[dict]):
        paths = []
        for number, events in enumerate(files):
            paths.append(tmp_path / f"msprof_slice_{number}_1.json")
            paths[-1].write_text(json.dumps(events))
        quality: list[pl.DataFrame] = []
        timeline = read_timeline(paths, quality=quality)
        for name, frame in timeline.frames.items():
            ALL_TABLES[name].check(frame)
        return timeline, pl.concat(quality).to_dicts()

    return reading


def rows(timeline, table: str, *columns: str) -> list[tuple]:
    return timeline.frames[table].select(columns).rows()


def test_operator_arguments_come_back_as_the_framework_wrote_them(read):
    arguments = {
        "Sequence number": 7,
        "Fwd thread id": 1,
        "Input Dims": "2,3;\r\n;\r\n4",
        "Input type": "float;\r\nScalar;\r\nint",
        "Call stack": "a.py(1): f;\r\nb.py(2): g",
        "Module Hierarchy": "Net/Linear",
        "flops": 12,
    }
    events = [slice_("aten::mm", 5000, 5001, "1736405443863674.400", 1.5, "cpu_op", **arguments)]
    timeline, quality = read(events)
    assert timeline.frames["ops"].drop("scope", "is_async", "end_tid", "external_id", "parent").to_dicts() == [
        {
            "pid": 5000,
            "tid": 5001,
            "start_ns": 1736405443863674400,
            "end_ns": 1736405443863675900,
            "name": "aten::mm",
            "seq": 7,
            "fwd_thread": 1,
            "shapes": "2,3;;4",
            "dtypes": "float;Scalar;int",
            "stack": "a.py(1): f;b.py(2): g",
            "modules": "Net/Linear",
            "flops": 12,
        }
    ]
    assert quality == []


def test_operator_without_sequence_or_forward_thread_has_null(read):
    timeline, _ = read([slice_("aten::to", 5000, 5001, "1.000", 1, "cpu_op", **{"Sequence number": -1, "Fwd thread id": 0})])
    assert rows(timeline, "ops", "seq", "fwd_thread", "shapes", "stack") == [(None, None, None, None)]


def test_operators_are_sorted_parents_first(read):
    events = [
        slice_("inner", 5000, 1, "2.000", 1, "cpu_op"),
        slice_("outer", 5000, 1, "2.000", 3, "cpu_op"),
        slice_("first", 5000, 1, "1.000", 1, "cpu_op"),
    ]
    assert rows(read(events)[0], "ops", "name") == [("first",), ("outer",), ("inner",)]


def test_steps_are_taken_from_operator_names(read):
    events = [slice_("ProfilerStep#12", 5000, 1, "1.000", 10, "cpu_op"), slice_("aten::to", 5000, 1, "2.000", 1, "cpu_op")]
    assert rows(read(events)[0], "steps", "step", "pid", "start_ns", "end_ns") == [(12, 5000, 1000, 11000)]


def test_queue_names_lose_their_prefix(read):
    events = [
        slice_("Enqueue", 5000, 1, "1.000", 1, "enqueue", correlation_id=9),
        slice_("Enqueue@aclnnAdd", 5000, 1, "2.000", 1, "enqueue", correlation_id=10),
        slice_("Dequeue@aclnnAdd", 5000, 2, "3.000", 1, "dequeue", correlation_id=10),
    ]
    assert rows(read(events)[0], "queue", "kind", "name", "correlation_id", "tid") == [
        ("enqueue", None, 9, 1),
        ("enqueue", "aclnnAdd", 10, 1),
        ("dequeue", "aclnnAdd", 10, 2),
    ]


def test_python_calls_are_told_apart_by_their_text(read):
    ids = {"Python id": 4, "Python parent id": 3}
    events = [
        slice_("<string>(2): __init__", 5000, 1, "1.000", 9, "python_function", **ids),
        slice_("<built-in method acquire of lock>", 5000, 1, "2.000", 1, "python_function", **ids),
        slice_("nn.Module: Conv2d_1", 5000, 1, "3.000", 1, "python_function", **ids, **{"Python module id": 1}),
    ]
    assert rows(read(events)[0], "python_calls", "kind", "call_id", "parent_id", "module_id") == [
        ("python", 4, 3, None),
        ("c", 4, 3, None),
        ("module", 4, 3, 1),
    ]


def test_garbage_collection_has_its_process_in_the_thread(read):
    assert rows(read([slice_("GC", pid_of(1, 31), 5000, "1.000", 2, "GC")])[0], "gc_pauses", "pid", "start_ns", "end_ns") == [
        (5000, 1000, 3000)
    ]


def test_level_of_an_api_call_comes_from_argument_or_prefix(read):
    events = [
        *CANN,
        slice_("AscendCL@aclnnAdd", pid_of(7), 77, "1.000", 1, Mode="ACL_OP", level="acl", item_id="0", connection_id=3),
        slice_("Hccl@hcom_allReduce_", pid_of(7), 77, "2.000", 1, Mode="master", level="hccl", connection_id=NONE),
        slice_("Communication@hcom_send", pid_of(7), 77, "3.000", 1, level="communication", connection_id=-1),
        slice_("Node@launch", pid_of(7), 77, "4.000", 1, item_id="Add", connection_id=5),
        slice_("Api@odd", pid_of(7), 77, "5.000", 1, level="runtime", connection_id=6),
    ]
    assert rows(read(events)[0], "api_calls", "pid", "tid", "level", "name", "mode", "item_id", "connection_id") == [
        (OS_PID, 77, "acl", "aclnnAdd", "ACL_OP", None, 3),
        (OS_PID, 77, "communication", "hcom_allReduce_", "master", None, None),
        (OS_PID, 77, "communication", "hcom_send", None, None, None),
        (OS_PID, 77, "node", "launch", None, "Add", 5),
        (OS_PID, 77, "runtime", "odd", None, None, 6),
    ]


def test_device_tasks_become_kernels(read):
    common = {"Model Id": NONE, "Batch Id": 1, "Subtask Id": NONE, "connection_id": 8}
    copy_g1 = {"data size(Byte)": 64, "memcpy direction": "host to device"}
    copy_g3 = {"size(B)": 32, "bandwidth(GB/s)": 1.5, "operation": "device to host"}
    events = [
        *HARDWARE,
        slice_("Add", pid_of(13), 2, "1.000", 0.5003125, **common, **{"Task Type": "AI_CORE", "Task Id": 3}),
        slice_("MEMCPY_ASYNC", pid_of(13), 2, "2.000", 1, **common, **{"Task Type": "SDMA_SQE", "Task Id": 4}, **copy_g1),
        slice_("MEMCPY_ASYNC", pid_of(13), 2, "3.000", 1, **common, **{"Task Type": "SDMA_SQE", "Task Id": 5}, **copy_g3),
        slice_("EVENT_WAIT", pid_of(13), 4, "4.000", 1, **common, **{"Task Type": "EVENT_WAIT_SQE", "Task Id": 6}),
        slice_("Mul", pid_of(13), 4, "5.000", 1, **{"Model Id": 1, "Subtask Id": 2, "Task Type": "MIX_AIC", "Task Id": 7}),
    ]
    timeline, _ = read(events)
    assert rows(timeline, "kernels", "device", "stream", "start_ns", "end_ns", "kind", "name", "task_type", "pid", "task_id") == [
        (0, 2, 1000, 1500, "other", "Add", "AI_CORE", OS_PID, 3),
        (0, 2, 2000, 3000, "memcpy", "MEMCPY_ASYNC", "SDMA_SQE", OS_PID, 4),
        (0, 2, 3000, 4000, "memcpy", "MEMCPY_ASYNC", "SDMA_SQE", OS_PID, 5),
        (0, 4, 4000, 5000, "event", "EVENT_WAIT", "EVENT_WAIT_SQE", OS_PID, 6),
        (0, 4, 5000, 6000, "other", "Mul", "MIX_AIC", OS_PID, 7),
    ]
    assert rows(timeline, "kernels", "model_id", "batch_id", "context_id", "connection_id", "bytes", "copy_direction") == [
        (None, 1, None, 8, None, None),
        (None, 1, None, 8, 64, "host to device"),
        (None, 1, None, 8, 32, "device to host"),
        (None, 1, None, 8, None, None),
        (1, None, 2, None, None, None),
    ]
    assert timeline.frames["kernels"]["duration_ns"][0] == pytest.approx(500.3125, abs=1e-3)


def test_core_is_read_from_the_task_type_of_new_timelines_only(read):
    task = slice_("Add", pid_of(13, 3), 2, "1.000", 1, **{"Task Type": "AI_VECTOR_CORE"})
    old, _ = read([*layer("Ascend Hardware", pid_of(13, 3), 13, "NPU"), task])
    new, _ = read([*layer("Ascend Hardware", pid_of(13, 3), 13, "NPU 3"), task])
    assert (old.generation, rows(old, "kernels", "device", "core")) == ("G1", [(3, None)])
    assert (new.generation, rows(new, "kernels", "device", "core")) == ("G3", [(3, "AI_VECTOR_CORE")])


def test_label_of_a_device_wins_over_the_pid(read):
    events = [*layer("Ascend Hardware", pid_of(14, 0), 14, "NPU 40"), slice_("Add", pid_of(14, 0), 2, "1.000", 1)]
    timeline, _ = read(events)
    assert timeline.device_ids == (40,)
    assert rows(timeline, "kernels", "device") == [(40,)]


def test_process_number_beyond_22_bits_is_taken_from_the_python_layer(read):
    os_pid = (1 << 22) + 9
    pid = (9 << 10) | (13 << 5)
    events = [
        {"name": "process_name", "pid": os_pid, "tid": 0, "ph": "M", "args": {"name": "Python"}},
        *layer("Ascend Hardware", pid, 13, "NPU"),
        slice_("Add", pid, 2, "1.000", 1),
    ]
    assert rows(read(events)[0], "kernels", "pid") == [(os_pid,)]


def test_layers_may_be_named_after_their_events_and_in_another_slice(read):
    timeline, quality = read([slice_("Add", pid_of(13), 2, "1.000", 1)], HARDWARE)
    assert rows(timeline, "kernels", "name", "device") == [("Add", 0)]
    assert quality == []


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        pytest.param([], [(2, 1000, 70), (3, None, None)], id="one-arrow-at-the-moment"),
        pytest.param([("s", 72, "2.000"), ("f", 3, "10.000")], [(2, 1000, 70), (3, 2000, 72)], id="an-arrow-for-each"),
    ],
)
def test_tasks_of_two_streams_at_one_moment_have_launches_of_their_own(read, second, expected):
    events = [
        *HARDWARE,
        slice_("Add", pid_of(13), 2, "10.000", 1),
        slice_("Mul", pid_of(13), 3, "10.000", 1),
        arrow("s", 1, pid_of(7), 70, "1.000"),
        arrow("f", 1, pid_of(13), 2, "10.000"),
        *(arrow(ph, 2, pid_of(7 if ph == "s" else 13), tid, ts) for ph, tid, ts in second),
    ]
    timeline, _ = read(events)
    assert sorted(rows(timeline, "kernels", "stream", "launch_ns", "launch_tid")) == expected


def test_launch_is_the_first_start_and_further_ends_are_extra(read):
    big = str((2 << 64) + 5)  # ids beyond 64 bits
    events = [
        *HARDWARE,
        slice_("Add", pid_of(13), 2, "10.000", 1),
        slice_("Mul", pid_of(13), 2, "20.000", 1),
        slice_("MEMCPY_ASYNC", pid_of(13), 2, "30.000", 1),
        slice_("MEMCPY_ASYNC", pid_of(13), 2, "40.000", 1),
        slice_("TASK", pid_of(13), 2, "50.000", 1),
        arrow("f", big, pid_of(13), 2, "10.000"),
        arrow("s", big, pid_of(7), 70, "1.000"),
        arrow("s", big, pid_of(7), 71, "1.500"),
        arrow("s", str((3 << 64) + 5), pid_of(7), 72, "2.000"),
        arrow("f", str((3 << 64) + 5), pid_of(13), 2, "20.000"),
        arrow("s", 263, pid_of(7), 73, "3.000"),
        arrow("f", 263, pid_of(13), 2, "30.000"),
        arrow("f", 263, pid_of(13), 2, "40.000"),
        arrow("s", 999, 5000, 73, "3.500", cat="async_npu"),
        arrow("f", 999, pid_of(13), 2, "50.000", cat="async_npu"),
        arrow("f", 264, pid_of(13), 2, "50.000"),
    ]
    timeline, quality = read(events)
    assert rows(timeline, "kernels", "start_ns", "launch_ns", "launch_tid", "extra") == [
        (10000, 1000, 70, False),
        (20000, 2000, 72, False),
        (30000, 3000, 73, False),
        (40000, 3000, 73, True),
        (50000, None, None, False),
    ]
    assert [(row["issue"], row["count"]) for row in quality] == [("end-without-start", 1)]


G1_GROUPS = [
    *layer("HCCL", pid_of(15), 15, "NPU"),
    lane(pid_of(15), 0, "Group 0 Communication"),
    lane(pid_of(15), 1, "Plane 0"),
    lane(pid_of(15), 2, "Plane 1"),
    lane(pid_of(15), 3, "Group 1 Communication"),
    lane(pid_of(15), 4, "Plane 0"),
]


def transfer(tid: int, ts: str, **args: object) -> dict:
    return slice_("Memcpy", pid_of(15), tid, ts, 1, **{"task type": "Memcpy", **args})


def test_communication_operator(read):
    plain = {"connection_id": 4, "model id": NONE, "data_type": "FP32", "alg_type": "MESH-RING", "count": 100}
    events = [
        *G1_GROUPS,
        slice_("hcom_allReduce__271_0_1", pid_of(15), 0, "10.000", 5, **plain),
        slice_("hcom_send__999_-1_1", pid_of(15), 3, "20.000", 5, **plain, rank_size=8, relay="no", retry="yes"),
        arrow("s", 1, pid_of(7), 70, "1.000"),
        arrow("f", 1, pid_of(15), 0, "10.000"),
    ]
    timeline, _ = read(events)
    assert timeline.generation == "G1"
    assert rows(timeline, "collectives", "name", "op_type", "group", "group_index", "data_type", "alg_type", "count") == [
        ("hcom_allReduce__271_0_1", "hcom_allReduce_", None, 0, "FP32", "MESH-RING", 100),
        ("hcom_send__999_-1_1", "hcom_send_", None, 1, "FP32", "MESH-RING", 100),
    ]
    assert rows(timeline, "collectives", "device", "rank_size", "relay", "retry", "connection_id", "launch_ns", "extra") == [
        (0, None, None, None, 4, 1000, False),
        (0, 8, False, True, 4, None, False),
    ]


def test_group_named_by_hash_keeps_its_text(read):
    pid = pid_of(16, 2)
    events = [
        *layer("Communication", pid, 16, "NPU 2"),
        lane(pid, 0, "Communication"),
        lane(pid, 5, "Group 17550177465184271 Communication"),
        slice_("hcom_x__1_0_1", pid, 0, "1.000", 1),
        slice_("hcom_x__271_0_1", pid, 5, "2.000", 1),
    ]
    timeline, _ = read(events)
    assert timeline.generation == "G3"
    assert rows(timeline, "collectives", "group", "group_index", "device") == [(None, 0, 2), ("17550177465184271", 1, 2)]


def test_transfer_belongs_to_the_operator_of_its_group_that_is_running(read):
    events = [
        *G1_GROUPS,
        slice_("hcom_a__1_0_1", pid_of(15), 0, "10.000", 10),
        slice_("hcom_b__2_0_1", pid_of(15), 3, "12.000", 3),
        slice_("hcom_a__1_1_1", pid_of(15), 0, "20.000", 5),
        transfer(1, "10.000"),
        transfer(4, "13.000"),
        transfer(2, "14.000"),
        transfer(1, "20.000"),
        transfer(1, "26.000"),
    ]
    # collectives by start: 0 = a0, 1 = b0, 2 = a1
    assert rows(read(events)[0], "transfers", "start_ns", "plane", "collective") == [
        (10000, 0, 0),
        (13000, 0, 1),
        (14000, 1, 0),
        (20000, 0, 2),
        (26000, 0, None),
    ]


def test_transfer_arguments(read):
    args = {
        "notify_id": "8589934644",
        "duration estimated(us)": 0.25,
        "stream id": 4,
        "task id": 807,
        "context id": 2,
        "task type": "Reduce_Inline",
        "src rank": 1,
        "dst rank": NONE,
        "transport type": "SDMA",
        "size(Byte)": 2064384,
        "data type": "INVALID_TYPE",
        "link type": "HCCS",
        "bandwidth(GB/s)": 593.2,
        "model id": NONE,
    }
    timeline, _ = read([*G1_GROUPS, transfer(1, "1.000", **args), transfer(1, "2.000", notify_id="18446744073709551615")])
    first, second = (
        timeline.frames["transfers"].drop("global_task_id", "rdma_type", "is_master", "end_ns", "duration_ns").to_dicts()
    )
    assert first == {
        "device": 0,
        "start_ns": 1000,
        "collective": None,
        "plane": 0,
        "task_type": "Reduce_Inline",
        "stream": 4,
        "task_id": 807,
        "context_id": 2,
        "model_id": None,
        "notify_id": "8589934644",
        "src_rank": 1,
        "dst_rank": None,
        "transport": "SDMA",
        "link": "HCCS",
        "data_type": "INVALID_TYPE",
        "bytes": 2064384,
        "estimated_us": 0.25,
        "bandwidth": 593.2,
    }
    assert second["notify_id"] is None


def counter(name: str, pid: int, ts: str, **args: object) -> dict:
    return {"name": name, "pid": pid, "tid": 0, "ts": ts, "ph": "C", "args": args}


def test_counters_are_one_row_per_value(read):
    events = [
        *layer("HBM", pid_of(17), 17, "NPU"),
        *layer("Acc PMU", pid_of(21), 21, "NPU"),
        *layer("CPU Usage", pid_of(9, 31), 9, "CPU"),
        *layer("SIO", pid_of(28), 28, "NPU"),
        counter("HBM 0/Read", pid_of(17), "1.000", **{"Read(MB/s)": 2.5}),
        counter("read_ost", pid_of(21), "2.000", value=3, acc_id=4),
        counter("CPU 1", pid_of(9, 31), "3.000", **{"Usage(%)": 30.0}),
        counter("dat_rx", pid_of(28), "4.000", **{"die 1": 19.7, "die 0": 15.7}),
        counter("odd", pid_of(17), "5.000", Furlongs=1),
    ]
    timeline, quality = read(events)
    assert sorted(rows(timeline, "counters", "time_ns", "source", "name", "series", "instance", "device", "value")) == [
        (1000, "HBM", "HBM 0/Read", "Read(MB/s)", None, 0, 2.5),
        (2000, "Acc PMU", "read_ost", "value", 4, 0, 3.0),
        (3000, "CPU Usage", "CPU 1", "Usage(%)", None, None, 30.0),
        (4000, "SIO", "dat_rx", "die 0", None, 0, 15.7),
        (4000, "SIO", "dat_rx", "die 1", None, 0, 19.7),
    ]
    assert [(row["issue"], row["count"]) for row in quality] == [("not-understood", 1)]


def test_a_stretch_of_counters_without_values_stands_beside_others(read):
    hbm = [*layer("HBM", pid_of(17), 17, "NPU"), counter("odd", pid_of(17), "5.000", Furlongs=1)]
    timeline, quality = read(hbm, [counter("HBM 0/Read", pid_of(17), "1.000", **{"Read(MB/s)": 2.5})])
    assert rows(timeline, "counters", "time_ns", "value") == [(1000, 2.5)]
    assert [(row["issue"], row["count"]) for row in quality] == [("not-understood", 1)]


def test_marks_get_the_device_task_their_arrow_points_at(read):
    mstx = pid_of(6, 31)
    events = [
        *layer("python3", mstx, 6, "CPU"),
        *layer("Ascend Hardware", pid_of(14), 14, "NPU 0"),
        slice_("forward", mstx, 70, "1.000", 5, event_type="start/end", domain="default"),
        slice_("note", mstx, 70, "2.000", 0, event_type="marker", domain="mine"),
        slice_("forward", pid_of(14), 2, "3.000", 4, **{"Physic Stream Id": 2, "Task Id": 1}),
        slice_("Add", pid_of(14), 2, "3.500", 1, **{"Task Type": "AI_CORE"}),
        arrow("s", "4000000001", mstx, 70, "1.000", cat="MsTx"),
        arrow("f", "4000000001", pid_of(14), 2, "3.000", cat="MsTx"),
    ]
    timeline, quality = read(events)
    assert rows(timeline, "marks", "pid", "tid", "start_ns", "end_ns", "message", "domain", "kind") == [
        (OS_PID, 70, 1000, 6000, "forward", None, "start/end"),
        (OS_PID, 70, 2000, 2000, "note", "mine", "marker"),
    ]
    assert rows(timeline, "marks", "connection_id", "device", "stream", "device_start_ns", "device_end_ns") == [
        (4000000001, 0, 2, 3000, 7000),
        (None, None, None, None, None),
    ]
    assert rows(timeline, "kernels", "name") == [("Add",)]
    assert quality == []


def test_derived_events_are_dropped_and_foreign_layers_counted(read):
    events = [
        *layer("Overlap Analysis", pid_of(23), 23, "NPU"),
        *HARDWARE,
        lane(pid_of(13), 900, "Step Trace(Model ID:1)"),
        slice_("Computing", pid_of(23), 0, "1.000", 1),
        slice_("Iteration 1", pid_of(13), 900, "1.000", 1, "Iteration Time"),
        slice_("Add", pid_of(13), 2, "1.000", 1),
        arrow("s", 5, 5000, 1, "1.000", cat="fwdbwd"),
        *layer("CCU", pid_of(30), 30, "NPU"),
        slice_("ccu task", pid_of(30), 1, "1.000", 1),
        slice_("stray", 4, 1, "1.000", 1),
    ]
    timeline, quality = read(events)
    assert set(timeline.frames) == {"kernels"}
    assert rows(timeline, "kernels", "name") == [("Add",)]
    assert [(row["issue"], row["count"], row["detail"]) for row in quality] == [("unsupported-kind", 2, "CCU: 1, unnamed layer: 1")]


def test_events_without_time_or_of_unknown_phase_are_counted(read):
    late = slice_("Add", pid_of(13), 2, "1.000", 1)
    timeless = {key: value for key, value in late.items() if key != "ts"}
    timeline, quality = read([*HARDWARE, late, timeless, late | {"ph": "Z"}])
    assert timeline.frames["kernels"].height == 1
    assert [(row["issue"], row["count"]) for row in quality] == [("event-without-time", 1), ("unknown-kind", 1)]
