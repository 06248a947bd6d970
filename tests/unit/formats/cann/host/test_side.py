# SPDX-License-Identifier: Apache-2.0
"""Calls, queued tasks and their roles, by hand-made records (docs/formats/cann.md 3, 7.1)."""

from __future__ import annotations

import polars as pl
import pytest
from cann_host_folder import ACL, HCCL, LAUNCH, MASTER, MODEL, NODE, RUNTIME, STEP_INFO, HostFolder, tensor

from stepscope.analysis.statistics import api_statistic
from stepscope.formats import NONE32
from stepscope.formats.cann.beginning import recording_start, split_calls, without_early_tasks
from stepscope.formats.cann.folder import Prof
from stepscope.formats.cann.host import operators
from stepscope.formats.cann.host.side import read_host
from stepscope.formats.cann.layouts import (
    CONTEXT_ID_INFO,
    HCCL_INFO,
    HCCL_OP_INFO,
    MEMCPY_INFO,
    MSPROFTX,
    NODE_ATTR_INFO,
    NODE_BASIC_INFO,
    TASK_MEMORY_INFO,
    TENSOR_INFO,
)
from stepscope.formats.cann.tasks import JoinedTasks
from stepscope.tables import Tables


@pytest.fixture
def folder(tmp_path):
    return HostFolder(tmp_path)


def column(frame: pl.DataFrame, *names: str) -> list:
    rows = frame.select(names).rows()
    return [row[0] for row in rows] if len(names) == 1 else rows


def losses(host) -> dict[str, int]:
    return {row["issue"]: row["count"] for frame in host.lost for row in frame.to_dicts()}


def test_names_modes_and_items_of_calls(folder):
    host = folder.apis(
        (NODE, LAUNCH, 20, 30, "Add_1"), (ACL, 0x50000, 10, 40, 0), (HCCL, MASTER, 50, 60, "Memcpy"), (MODEL, 1, 70, 80, 4),
        (RUNTIME, 1003, 22, 25, 0), (NODE, STEP_INFO, 81, 82, 60000),
    ).read()  # fmt: skip
    assert column(host.apis, "level", "name", "mode", "item_id", "start_ns", "connection_id") == [
        ("acl", "aclnnAdd", "ACL_NN", None, 10, 1),
        ("node", "launch", "launch", "Add_1", 20, 2),
        ("runtime", "KernelLaunch", "KernelLaunch", None, 22, 3),
        ("communication", "Memcpy", "master", "Memcpy", 50, 4),
        ("model", "ModelExecute", "ModelExecute", "4", 70, 5),
        ("node", "step_info", "step_info", "60000", 81, 6),
    ]


def test_two_events_are_one_call(folder):
    for stamp, request in ((10, 1), (12, 2), (20, 1), (25, 2), (30, 1)):
        folder.event(MODEL, 1, stamp, request, 9)
    host = folder.read()
    assert column(host.apis, "start_ns", "end_ns", "request_id") == [(10, 20, 1), (12, 25, 2)]
    assert losses(host)["unpaired-record"] == 1


@pytest.mark.parametrize(
    ("stamp", "connection", "role"),
    [
        pytest.param(20, 1, "plain", id="begin-is-outside"),
        pytest.param(21, 2, "compute", id="after-begin"),
        pytest.param(30, 2, "compute", id="end-is-inside"),
        pytest.param(31, 1, "plain", id="after-end"),
        pytest.param(41, None, "plain", id="outside-every-call"),
    ],
)
def test_half_open_rule(folder, stamp, connection, role):
    host = folder.apis((ACL, 0x50000, 10, 40, 0), (NODE, LAUNCH, 20, 30, "Add")).tasks((stamp, 0, 5)).read()
    assert column(host.tasks, "connection_id", "role") == [(connection, role)]


def test_task_inside_an_acl_call_of_a_launch_belongs_to_the_launch(folder):
    host = folder.apis((NODE, LAUNCH, 10, 40, "Add"), (ACL, 0x30001, 20, 30, 0)).tasks((25, 0, 0), (26, 2, 1)).read()
    assert column(host.tasks, "role", "connection_id", "node") == [("compute", 1, 0), ("plain", 2, 0)]


def test_overlapping_calls_of_a_flat_level_stay_out_of_the_tree(folder):
    # [10, 30] is kept, [20, 50] overlaps it, [40, 60] does not overlap the kept one.
    host = (
        folder.apis((ACL, 0x50000, 10, 30, 0), (ACL, 0x50000, 20, 50, 0), (ACL, 0x50000, 40, 60, 0))
        .tasks((25, 2, 0), (35, 2, 1), (45, 2, 2))
        .read()
    )
    assert host.apis.height == 3
    assert column(host.tasks, "connection_id") == [1, None, 3]


def test_a_call_without_begin_swallows_nothing(folder):
    host = folder.apis((ACL, 0x50000, 0, 1000, 0), (ACL, 0x30001, 10, 20, 0)).tasks((15, 2, 0)).read()
    assert column(host.tasks, "connection_id") == [2]
    assert column(host.apis, "has_begin") == [False, True]


def test_what_was_over_before_the_collection_is_left_out(folder):
    load, execute = 2, 1
    host = folder.apis(
        (ACL, 0x50000, 0, 1000, 0), (MODEL, load, 10, 40, 4), (NODE, LAUNCH, 20, 30, "inside a load"),
        (NODE, LAUNCH, 50, 60, "over"), (MODEL, execute, 90, 100, 4), (NODE, LAUNCH, 70, 500, "goes on"),
    ).apis((NODE, LAUNCH, 20, 30, "other thread"), tid=2).read()  # fmt: skip
    tasks = pl.DataFrame({"end_ns": [99, 100, 2000]})
    begin = recording_start(host.apis, tasks, 100)
    calls = split_calls(host.apis, begin)
    assert (begin, calls.skipped) == (100, 2)
    assert column(calls.whole, "item_id") == ["4", "inside a load", "goes on", "4"]
    assert column(calls.early, "name", "zero_ns", "end_ns") == [("aclnnAdd", 0, 1000)]
    kept = without_early_tasks(JoinedTasks(tasks, ()), begin)
    assert column(kept.rows, "end_ns") == [100, 2000]
    assert [frame["count"].sum() for frame in kept.quality] == [1]
    # Statistics count it from the counter's zero, as the vendor's do.
    counted = api_statistic(Tables({"api_calls": calls.whole, "early_calls": calls.early}))
    assert ("acl", "aclnnAdd", 1000, 1) in column(counted, "level", "name", "total_ns", "count")


def test_a_beginning_after_everything_is_not_believed(folder):
    host = folder.apis((NODE, LAUNCH, 20, 30, "A")).read()
    assert split_calls(host.apis, recording_start(host.apis, host.apis.clear(), 31)).whole.height == 1
    assert recording_start(host.apis, host.apis.clear(), 30) == 30
    assert recording_start(host.apis.clear(), host.apis.clear(), 5) < 0


def test_threads_do_not_see_each_other(folder):
    host = folder.apis((NODE, LAUNCH, 10, 30, "A")).apis((NODE, LAUNCH, 10, 30, "B"), tid=2).tasks((20, 0, 0), tid=2).read()
    assert host.apis["item_id"][host.tasks["node"][0]] == "B"
    assert column(folder.tasks((20, 0, 1), tid=9).read().tasks, "node")[-1] is None


def test_lone_kernels_are_operators_when_named(folder):
    host = folder.tasks((10, 66, 0), kernel="add_kernel").tasks((20, 66, 1)).tasks((30, 108, 2), kernel="mix").read()
    assert column(host.tasks, "role", "context_id") == [("other_op", None), ("plain", None), ("other_op", 0)]
    described = host.descriptions.select(pl.all().gather(host.tasks["description"].drop_nulls()))
    assert column(described, "op_name", "op_type", "core") == [
        ("add_kernel", "add_kernel", "AI_VECTOR_CORE"),
        ("mix", "mix", "MIX_AIC"),
    ]


def test_lccl_and_step_info_do_not_compute(folder):
    host = folder.apis((NODE, LAUNCH, 10, 20, "LcclAllReduce"), (NODE, STEP_INFO, 30, 40, 1)).tasks((15, 0, 0), (35, 0, 1)).read()
    assert column(host.tasks, "role") == ["plain", "plain"]


def test_model_gives_model_and_index(folder):
    folder.event(MODEL, 1, 10, 3, 8).event(MODEL, 1, 50, 3, 8)
    host = folder.apis((NODE, LAUNCH, 20, 30, "Add")).tasks((25, 0, 0), (60, 2, 1)).read()
    assert column(host.tasks, "model_id", "index_id") == [(8, 3), (None, None)]


def describe(folder, name="Add", stamp=21, kind=0, blocks=40, **more):
    return folder.add(
        NODE_BASIC_INFO,
        {"level": NODE, "tid": 1, "stamp": stamp, "op_name": name, "op_type": "AddType", "task_type": kind, "block_num": blocks},
        **more,
    )


def test_description(folder):
    first = [tensor(0, (2, 3)), tensor(0, ()), tensor(0, (4,), 27, 0x103), tensor(0, (1,)), tensor(0, (1,))]
    folder.apis((NODE, LAUNCH, 20, 30, "Add")).tasks((25, 66, 0))
    describe(folder, blocks=2 << 16 | 20, kind=2)
    head = {"level": NODE, "tid": 1, "stamp": 21, "op_name": "Add"}
    folder.add(
        TENSOR_INFO, {**head, "count": 5, "tensors": first}, {**head, "count": 1, "tensors": [tensor(1, (7,), 0, NONE32)] * 5}
    )
    folder.add(NODE_ATTR_INFO, {**head, "attr": "axis=1"})
    host = folder.read()
    [row] = host.descriptions.to_dicts()
    assert row == {
        "op_name": "Add", "op_type": "AddType", "core": "AI_VECTOR_CORE", "block_num": 20, "mix_block_num": 40,
        "op_state": "dynamic", "hf32": "NO", "input_shapes": "2,3;;4;1;1",
        "input_dtypes": "FLOAT16;FLOAT16;DT_BF16;FLOAT16;FLOAT16", "input_formats": "ND;ND;NC1HWC0:1;ND;ND",
        "output_shapes": "7", "output_dtypes": "FLOAT", "output_formats": "UNDEFINED",
        "attrs": "axis=1", "node": 0,
    }  # fmt: skip
    assert column(host.tasks, "description") == [0]


def test_static_operators_come_from_unaging_files(folder):
    describe(folder.apis((NODE, LAUNCH, 20, 30, "Add")), aging=False)
    assert column(folder.read().descriptions, "op_state") == ["static"]


def test_graph_marks_are_not_operators(folder):
    describe(folder.apis((NODE, LAUNCH, 20, 30, "Add")).tasks((25, 52, 0)), kind=6)
    assert column(folder.read().tasks, "role", "description") == [("compute", None)]


def test_records_outside_calls_are_counted(folder):
    describe(folder.apis((NODE, LAUNCH, 20, 30, "Add")), stamp=20)
    assert losses(folder.read())["outside-calls"] == 1


def test_level_0_knows_names_only(tmp_path):
    folder = HostFolder(tmp_path, "level0").apis((NODE, LAUNCH, 20, 30, "Add")).tasks((25, 0, 0))
    host = folder.read()
    assert column(host.descriptions, "op_name", "op_type", "core") == [("Add", None, None)]
    assert column(host.tasks, "role", "description") == [("compute", 0)]


def test_above_level_0_a_task_without_description_is_not_an_operator(folder):
    assert column(folder.apis((NODE, LAUNCH, 20, 30, "Add")).tasks((25, 0, 0)).read().tasks, "role", "description") == [
        ("compute", None)
    ]


def test_contexts_and_the_whole_task(folder):
    describe(folder.apis((NODE, LAUNCH, 20, 30, "Add")).tasks((25, 52, 4)))
    folder.add(CONTEXT_ID_INFO, {"level": NODE, "tid": 1, "stamp": 22, "op_name": "Add", "count": 2, "ids": [5, 7, *[0] * 53]})
    host = folder.read()
    assert column(host.tasks, "task_id", "context_id", "role", "description") == [
        (4, 5, "compute", 0),
        (4, 7, "compute", 0),
        (4, None, "placeholder", None),
    ]


def test_batches(folder):
    folder.tasks((10, 0, 65533), (20, 0, 1), (40, 0, 2)).flip(30, task=2)
    assert column(folder.read().tasks, "batch_id") == [0, 1, 1]  # number 1 was taken just before the flip that took 2


def test_the_end_of_a_stream_does_not_look_back(folder):
    folder.tasks((10, 0, 5), (40, 0, 0)).flip(30, task=0xFFFF, number=0xFFFF)
    assert column(folder.read().tasks, "batch_id") == [0, 1]


def test_inside_nested_nodes_only_the_basic_record_goes_inside(folder):
    folder.apis((NODE, LAUNCH, 10, 90, "hcom"), (NODE, LAUNCH, 20, 30, "kernel")).tasks((25, 1, 0))
    describe(folder, "kernel", kind=1)
    folder.add(
        TENSOR_INFO, {"level": NODE, "tid": 1, "stamp": 21, "op_name": "kernel", "count": 1, "tensors": [tensor(0, (1,))] * 5}
    )
    described = folder.read().descriptions.sort("node")
    assert column(described, "node", "core", "input_shapes") == [(0, None, "1"), (1, "AI_CPU", None)]


def test_copies_by_thread_and_stamp(folder):
    folder.tasks((10, 5, 0), (10, 5, 1), (10, 5, 2), (20, 5, 3), (30, 5, 4))
    folder.add(MEMCPY_INFO, {"tid": 1, "stamp": 10, "bytes": 250, "maximum": 100, "direction": 1})
    folder.add(MEMCPY_INFO, {"tid": 1, "stamp": 20, "bytes": 70, "maximum": 100, "direction": 2})
    assert column(folder.read().tasks, "bytes", "copy_direction") == [
        (100, "host to device"),
        (100, "host to device"),
        (50, "host to device"),
        (70, "device to host"),
        (None, None),
    ]


def test_copies_of_the_newer_layout(folder):
    folder.tasks((10, 5, 0)).add(
        MEMCPY_INFO, {"tid": 1, "stamp": 10, "bytes": 250, "direction_new": 3, "device_new": 1, "stream_new": 3}
    )
    assert column(folder.read().tasks, "bytes", "copy_direction") == [(250, "device to device")]


def communication(folder):
    folder.apis((NODE, LAUNCH, 10, 90, "hcom_allReduce_"), (HCCL, MASTER, 20, 30, "Memcpy"), (HCCL, MASTER, 40, 50, "Reduce_TBE"))
    folder.tasks((25, 5, 0), (45, 0, 1))
    describe(folder, "hcom_allReduce_", 11, 9, 0)
    folder.add(
        HCCL_OP_INFO, {"tid": 1, "stamp": 12, "flags": 2, "data_type": 3, "algorithm": "RING", "count": 64, "group": "world"}
    )
    return folder.add(
        HCCL_INFO,
        {"tid": 1, "stamp": 22, "task_name": "Memcpy", "group": "world", "context": NONE32, "remote_rank": NONE32, "plane": 2,
         "bytes": 128, "link": 1, "transport": 255, "data_type": NONE32, "rdma": 1},
    )  # fmt: skip


def test_communication(folder):
    host = communication(folder).read()
    [big] = host.big_ops.to_dicts()
    assert (big["name"], big["op_type"], big["start_ns"], big["end_ns"], big["connection_id"]) == (
        "hcom_allReduce_", "AddType", 10, 90, 1,
    )  # fmt: skip
    assert (big["data_type"], big["alg_type"], big["count"], big["group_name"], big["retry"], big["relay"]) == (
        "FP16", "RING", 64, "world", True, False,
    )  # fmt: skip
    assert column(
        host.hccl_tasks, "task", "big_op", "is_master", "task_type", "plane", "remote_rank", "transport", "rdma_type"
    ) == [
        (0, 0, True, "Memcpy", 2, None, None, "RDMA_SEND_PAYLOAD"),
        (1, 0, True, None, None, None, None, None),
    ]
    assert column(host.tasks, "role", "connection_id") == [("hccl", 1), ("compute", 1)]


def test_a_kernel_inside_communication_is_named_by_the_small_task(folder):
    host = communication(folder).read()
    row = host.descriptions.row(host.tasks["description"][1], named=True)
    assert (row["op_name"], row["op_type"], row["core"]) == ("Reduce_TBE", "AddType", "COMMUNICATION")


def test_communication_contexts(folder):
    folder.apis((NODE, LAUNCH, 10, 90, "hcom"), (HCCL, MASTER, 20, 30, "Memcpy")).tasks((25, 52, 0))
    folder.add(CONTEXT_ID_INFO, {"level": HCCL, "tid": 1, "stamp": 21, "count": 2, "ids": [3, 5, *[0] * 53]})
    folder.add(HCCL_INFO, {"tid": 1, "stamp": 22, "task_name": "Memcpy", "context": 4})
    host = folder.read()
    assert column(host.tasks, "role", "context_id") == [("hccl", 3), ("hccl", 4), ("hccl", 5), ("placeholder", None)]
    assert column(host.hccl_tasks, "context_id", "task_type") == [(3, None), (4, "Memcpy"), (5, None)]


def test_long_messages_are_joined(folder):
    head = {"source": 1, "pid": 7, "mark_tid": 3, "event": 2, "begin": 100, "end": 200, "mark": 6, "domain": "default"}
    folder.add(MSPROFTX, {**head, "segment": 1, "message": b" two"}, {**head, "message": b"one"})
    folder.add(
        MSPROFTX, {**head, "source": 0, "event": 0, "category": 5, "begin": 50, "end": 0, "domain": "mine", "message": b"moment"}
    )
    assert column(folder.read().marks, "start_ns", "end_ns", "message", "domain", "kind", "category", "mark_id") == [
        (50, 50, "moment", "mine", "marker", 5, None),
        (100, 200, "one two", None, "start/end", None, 6),
    ]


def test_op_memory(folder):
    folder.add(
        TASK_MEMORY_INFO, {"tid": 1, "stamp": 5, "bytes": -32, "address": 9, "op_name": "Add", "allocated": 64, "reserved": 128}
    )
    assert column(folder.read().op_memory, "time_ns", "action", "bytes", "op_name", "total_allocated") == [
        (5, "free", -32, "Add", 64.0)
    ]


def test_nothing_at_all(tmp_path):
    host = read_host(Prof(tmp_path, None, ()))
    assert (host.apis.height, host.tasks.height, host.big_ops.height, host.hccl_tasks.height) == (0, 0, 0, 0)


def test_times_too_far_apart_for_one_line(folder):
    far = 1 << 62
    for tid in (1, 2, 3):
        folder.apis((NODE, LAUNCH, 10, 20, "A"), (NODE, LAUNCH, far, far + 10, "B"), tid=tid)
    host = folder.tasks((15, 0, 0), (far + 5, 0, 1), (far, 0, 2), (25, 0, 3), tid=2).read()
    assert column(host.tasks.sort("task_id"), "role") == ["compute", "compute", "plain", "plain"]


def test_a_call_that_would_multiply_its_tasks_without_end_loses_its_operators(folder, monkeypatch):
    monkeypatch.setattr(operators, "_MOST_ROWS", 5)
    folder.apis((NODE, LAUNCH, 20, 60, "Add")).tasks((35, 0, 0), (45, 0, 1))
    for stamp, name in ((21, "a"), (22, "b"), (23, "c")):
        describe(folder, name, stamp)
    host = folder.read()
    assert column(host.tasks, "task_id", "description") == [(0, None), (1, None)]
    assert losses(host)["operator-unknown"] == 2
