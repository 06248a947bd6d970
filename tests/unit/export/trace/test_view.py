"""trace_view.json of small captures, event by event (docs/formats/outputs.md 3)."""

from __future__ import annotations

import json

import pytest
from capture_rows import collective, collectives, kernels, op, ops, queue, queued, rows, task

from stepscope.export.trace import view as trace_view
from stepscope.export.trace.processes import Processes
from stepscope.formats.ascend.trace.layers import CANN, HARDWARE, OVERLAP, Layer
from stepscope.tables import Facts, Tables

T = 1_700_000_000_000_000_000  # a time of today, so that texts have their real length
NPU = Facts(device_kind="npu", level="Level1", generation="G3")
HOST, DEVICE = 7 << 10 | 31, 7 << 10


def written(tmp_path, facts: Facts = NPU, **frames) -> str:
    path = tmp_path / "trace_view.json"
    assert trace_view.write(Tables({"meta": facts.table(), **frames}), path) == [path]
    return path.read_text("utf-8")


def events(text: str, **wanted) -> list[dict]:
    return [event for event in json.loads(text) if all(event.get(key) == value for key, value in wanted.items())]


def test_operators_alone_give_exactly_this_text(tmp_path):
    table = ops(
        op("aten::mm", T + 1_500, T + 4_000, seq=3, shapes="2,3;3,4", dtypes="float;float", stack="a.py(1): f;b.py(2): g"),
        op("Mm", T + 5_000, T + 5_001, tid=2, seq=3, fwd_thread=1, flops=24, modules="Net.fc"),
    )
    assert written(tmp_path, ops=table) == (
        '[{"ph": "X", "name": "aten::mm", "pid": 7, "tid": 1, "ts": "1700000000000001.500", "dur": 2.5, "cat": "cpu_op", '
        '"args": {"Sequence number": 3, "Fwd thread id": 0, "Input Dims": "2,3;\\r\\n3,4", "Input type": "float;\\r\\nfloat", '
        '"Call stack": "a.py(1): f;\\r\\nb.py(2): g"}}, '
        '{"ph": "X", "name": "Mm", "pid": 7, "tid": 2, "ts": "1700000000000005.000", "dur": 0.001, "cat": "cpu_op", '
        '"args": {"Sequence number": 3, "Fwd thread id": 1, "Module Hierarchy": "Net.fc", "flops": 24}}, '
        '{"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "args": {"name": "Python"}}, '
        '{"ph": "M", "name": "process_labels", "pid": 7, "tid": 0, "args": {"labels": "CPU"}}, '
        '{"ph": "M", "name": "process_sort_index", "pid": 7, "tid": 0, "args": {"sort_index": 0}}, '
        '{"ph": "M", "name": "thread_name", "pid": 7, "tid": 1, "args": {"name": "Thread 1"}}, '
        '{"ph": "M", "name": "thread_sort_index", "pid": 7, "tid": 1, "args": {"sort_index": 1}}, '
        '{"ph": "M", "name": "thread_name", "pid": 7, "tid": 2, "args": {"name": "Thread 2"}}, '
        '{"ph": "M", "name": "thread_sort_index", "pid": 7, "tid": 2, "args": {"sort_index": 2}}]'
    )


@pytest.mark.parametrize("name", ['say "x"', "back\\slash", "line\r\nbreak\ttab", "算子", "\x01", "a, b", "🚀"])
def test_any_name_survives(tmp_path, name):
    text = written(tmp_path, ops=ops(op(name, T, T + 10)))
    assert events(text, ph="X")[0]["name"] == name
    assert "\\u7b97" not in text  # non-ASCII is kept


def test_no_event_no_file(tmp_path):
    assert trace_view.write(Tables({"meta": NPU.table()}), tmp_path / "trace_view.json") == []
    assert list(tmp_path.iterdir()) == []


def test_task_queue_with_its_arrows(tmp_path):
    text = written(tmp_path, ops=ops(op("aten::mm", T, T + 9_000)), queue=queue(queued(5, (T + 10, T + 20), (T + 30, T + 45))))
    assert [event["name"] for event in events(text, ph="X")] == ["aten::mm", "Enqueue", "Dequeue"]
    assert events(text, cat="dequeue")[0]["args"] == {"correlation_id": 5}
    assert events(text, cat="async_task_queue") == [
        {
            "ph": "s",
            "bp": "e",
            "name": "enqueue_to_dequeue",
            "id": 5,
            "pid": 7,
            "tid": 1,
            "ts": "1700000000000000.010",
            "cat": "async_task_queue",
        },
        {
            "ph": "f",
            "bp": "e",
            "name": "enqueue_to_dequeue",
            "id": 5,
            "pid": 7,
            "tid": 9,
            "ts": "1700000000000000.030",
            "cat": "async_task_queue",
        },
    ]
    # The thread that empties the queue stands below all others.
    assert [event["args"]["sort_index"] for event in events(text, name="thread_sort_index", tid=9)] == [10]


def test_queue_names_follow_the_word(tmp_path):
    pair = [{**record, "name": "aclnnMm"} for record in queued(5, (T, T + 1), (T + 2, T + 3))]
    assert [event["name"] for event in events(written(tmp_path, queue=queue(pair)), ph="X")] == [
        "Enqueue@aclnnMm",
        "Dequeue@aclnnMm",
    ]


def test_python_calls_and_garbage_collection(tmp_path):
    calls = rows(
        "python_calls",
        {"pid": 7, "tid": 1, "start_ns": T, "end_ns": T + 9, "name": "a.py(3): f", "kind": "python", "call_id": 1, "parent_id": 0},
        {
            "pid": 7,
            "tid": 1,
            "start_ns": T + 1,
            "end_ns": T + 2,
            "name": "nn.Module: Net_0",
            "kind": "module",
            "call_id": 2,
            "parent_id": 1,
            "module_id": 0,
        },
    )
    text = written(tmp_path, python_calls=calls, gc_pauses=rows("gc_pauses", {"pid": 7, "start_ns": T, "end_ns": T + 4}))
    assert [event["args"] for event in events(text, cat="python_function")] == [
        {"Python id": 1, "Python parent id": 0},
        {"Python id": 2, "Python parent id": 1, "Python module id": 0},
    ]
    gc = events(text, cat="GC")[0]
    assert (gc["pid"], gc["tid"], gc["args"]) == (HOST | 1 << 5, 7, {})


def test_a_launched_kernel_with_all_its_arrows(tmp_path):
    call = {
        "pid": 7,
        "tid": 9,
        "start_ns": T + 30,
        "end_ns": T + 50,
        "level": "node",
        "name": "launch",
        "mode": "launch",
        "item_id": "MatMul",
        "connection_id": 6,
    }
    kernel = task(
        T + 100,
        T + 155,
        duration_ns=55.0625,
        task_type="AI_CORE",
        task_id=11,
        batch_id=0,
        connection_id=6,
        launch_ns=T + 30,
        launch_tid=9,
        op=0,
        pid=7,
    )
    text = written(tmp_path, ops=ops(op("aten::mm", T, T + 60)), api_calls=rows("api_calls", call), kernels=kernels(kernel))
    assert events(text, name="Node@launch") == [
        {
            "name": "Node@launch",
            "pid": HOST | 7 << 5,
            "tid": 9,
            "ts": "1700000000000000.030",
            "dur": 0.02,
            "ph": "X",
            "args": {"Thread Id": 9, "Mode": "launch", "level": "node", "id": "0", "item_id": "MatMul", "connection_id": 6},
        }
    ]
    assert events(text, name="MatMul") == [
        {
            "name": "MatMul",
            "pid": DEVICE | 14 << 5,
            "tid": 2,
            "ts": "1700000000000000.100",
            "dur": 0.0550625,
            "ph": "X",
            "args": {
                "Model Id": 4294967295,
                "Task Type": "AI_CORE",
                "Physic Stream Id": 2,
                "Task Id": 11,
                "Batch Id": 0,
                "Subtask Id": 4294967295,
                "connection_id": 6,
            },
        }
    ]
    assert events(text, cat="HostToDevice") == [
        {
            "name": "HostToDevice25769803776",
            "pid": HOST | 7 << 5,
            "tid": 9,
            "ts": "1700000000000000.030",
            "ph": "s",
            "cat": "HostToDevice",
            "id": "25769803776",
        },
        {
            "name": "HostToDevice25769803776",
            "pid": DEVICE | 14 << 5,
            "tid": 2,
            "ts": "1700000000000000.100",
            "ph": "f",
            "cat": "HostToDevice",
            "id": "25769803776",
            "bp": "e",
        },
    ]
    assert events(text, cat="async_npu") == [
        {
            "ph": "s",
            "bp": "e",
            "name": "torch_to_npu",
            "id": T + 100,
            "pid": 7,
            "tid": 1,
            "ts": "1700000000000000.000",
            "cat": "async_npu",
        },
        {
            "ph": "f",
            "bp": "e",
            "name": "torch_to_npu",
            "id": T + 100,
            "pid": DEVICE | 14 << 5,
            "tid": 2,
            "ts": "1700000000000000.100",
            "cat": "async_npu",
        },
    ]
    names = {event["pid"]: event["args"]["name"] for event in events(text, name="process_name")}
    assert names == {7: "Python", HOST | 7 << 5: "CANN", DEVICE | 14 << 5: "Ascend Hardware", DEVICE | 31 << 5: "Overlap Analysis"}
    assert events(text, name="process_labels", pid=DEVICE | 14 << 5)[0]["args"] == {"labels": "NPU 0"}


def test_a_further_task_of_a_launch_is_an_end_only(tmp_path):
    launch = {"connection_id": 6, "launch_ns": T, "launch_tid": 9}
    text = written(tmp_path, kernels=kernels(task(T + 10, T + 20, **launch), task(T + 30, T + 40, extra=True, **launch)))
    assert [event["ph"] for event in events(text, cat="HostToDevice")] == ["s", "f", "f"]


def test_a_connection_id_of_33_bits_is_shifted_as_text(tmp_path):
    text = written(tmp_path, kernels=kernels(task(T, T + 1, connection_id=4_000_000_001, launch_ns=T, launch_tid=9)))
    assert events(text, cat="HostToDevice", ph="f")[0]["id"] == str(4_000_000_001 << 32)


def test_level_0_leaves_the_runtime_out_but_no_kernel_of_such_a_name(tmp_path):
    call = {"pid": 7, "tid": 9, "start_ns": T, "end_ns": T + 5, "level": "acl", "name": "aclnnMm", "connection_id": 6}
    kernel = task(T + 10, T + 20, name="ModelNode", connection_id=6, launch_ns=T, launch_tid=9)
    text = written(tmp_path, NPU.replace(level="Level0"), api_calls=rows("api_calls", call), kernels=kernels(kernel))
    assert not events(text, name="AscendCL@aclnnMm")
    assert events(text, name="ModelNode")
    assert len(events(text, cat="HostToDevice")) == 2
    # The arrows that stay begin in a process with a name.
    assert [event["args"]["name"] for event in events(text, name="process_name", pid=HOST | 7 << 5)] == ["CANN"]
    assert events(text, name="thread_name", pid=HOST | 7 << 5)


@pytest.mark.parametrize(("program", "layer"), [("python3.11", "python3.11 (mstx)"), ("trainer", "trainer")])
def test_marks_beside_the_framework_are_not_a_second_python(tmp_path, program, layer):
    mark = {"pid": 7, "tid": 9, "start_ns": T, "end_ns": T, "message": "here", "kind": "marker", "domain": "default"}
    facts = NPU.replace(process_name=program)
    text = written(tmp_path, facts, ops=ops(op("aten::mm", T, T + 5)), marks=rows("marks", mark))
    assert {event["args"]["name"] for event in events(text, name="process_name")} == {"Python", layer}


def test_copies_and_grids_have_further_arguments(tmp_path):
    copy = task(T, T + 8, name="MEMCPY_ASYNC", kind="memcpy", bytes=256, copy_direction="host to device")
    text = written(tmp_path, kernels=kernels(copy, task(T + 10, T + 20, grid="4,1,1", block="32,1,1")))
    assert {"size(B)": 256, "bandwidth(GB/s)": 32.0, "operation": "host to device"}.items() <= events(text, name="MEMCPY_ASYNC")[0][
        "args"
    ].items()
    assert {"Grid Dim": "4,1,1", "Block Dim": "32,1,1"}.items() <= events(text, name="MatMul")[0]["args"].items()


def test_groups_and_planes_of_communication(tmp_path):
    table = collectives(
        collective(
            T,
            T + 100,
            group="111",
            connection_id=4,
            rank_size=8,
            data_type="FP32",
            alg_type="RING",
            count=5,
            relay=False,
            retry=True,
        ),
        collective(T + 200, T + 300, name="hcom_send__222_0_1", group="222"),
    )
    link = {
        "device": 0,
        "start_ns": T + 10,
        "end_ns": T + 20,
        "collective": 0,
        "plane": 2,
        "task_type": "Memcpy",
        "stream": 4,
        "task_id": 8,
        "src_rank": 0,
        "transport": "SDMA",
        "bytes": 64,
        "link": "HCCS",
        "bandwidth": 6.4,
    }
    text = written(tmp_path, collectives=table, transfers=rows("transfers", link))
    pid = DEVICE & 0 | 16 << 5  # the capture names no process
    assert events(text, name="hcom_allReduce__271_0_1")[0]["args"] == {
        "rank_size": 8,
        "connection_id": 4,
        "model id": 4294967295,
        "data_type": "FP32",
        "alg_type": "RING",
        "count": 5,
        "relay": "no",
        "retry": "yes",
    }
    assert events(text, name="Memcpy") == [
        {
            "name": "Memcpy",
            "pid": pid,
            "tid": 3,
            "ts": "1700000000000000.010",
            "dur": 0.01,
            "ph": "X",
            "args": {
                "notify_id": "18446744073709551615",
                "stream id": 4,
                "task id": 8,
                "context id": 4294967295,
                "task type": "Memcpy",
                "src rank": 0,
                "dst rank": 4294967295,
                "transport type": "SDMA",
                "size(Byte)": 64,
                "data type": "INVALID_TYPE",
                "link type": "HCCS",
                "bandwidth(GB/s)": 6.4,
                "model id": 4294967295,
            },
        }
    ]
    threads = {event["tid"]: event["args"]["name"] for event in events(text, name="thread_name", pid=pid)}
    assert threads == {0: "Group 111 Communication", 3: "Plane 2", 4: "Group 222 Communication"}


def test_counters_of_one_moment_share_an_event(tmp_path):
    sample = {"source": "NIC", "name": "Port 0/Rx", "device": 0, "time_ns": T}
    counters = rows(
        "counters",
        {**sample, "series": "Rx Error Rate", "value": 0.5},
        {**sample, "series": "Rx Packets", "value": 9.0},
        {"source": "Acc PMU", "name": "read_ost", "series": "value", "instance": 3, "device": 0, "time_ns": T, "value": 1.0},
        {"source": "CPU Usage", "name": "CPU 1", "series": "Usage(%)", "time_ns": T, "value": 12.5},
        {"source": "UB", "name": "UB Port001", "series": "bandwidth_rx(MB/s)", "device": 0, "time_ns": T, "value": 2.0},
        {"source": "NPU Module Mem", "name": "HCCL", "series": "Total Reserved(KB)", "device": 0, "time_ns": T, "value": 2.0},
    )
    text = written(tmp_path, counters=counters)
    assert events(text, name="Port 0/Rx") == [
        {
            "name": "Port 0/Rx",
            "pid": 21 << 5,
            "tid": 0,
            "ts": "1700000000000000.000",
            "ph": "C",
            "args": {"Rx Error Rate": 0.5, "Rx Packets": 9.0},
        }
    ]
    assert events(text, name="read_ost")[0]["args"] == {"value": 1.0, "acc_id": 3}
    assert events(text, name="CPU 1")[0]["pid"] == 9 << 5 | 31
    # Sort index 33 does not fit five bits.
    assert events(text, name="UB Port001")[0]["pid"] == (1 << 22) + 1
    assert len(events(text, ph="C")) == 4


def test_ports_of_a_csv_file_get_the_names_of_the_timeline(tmp_path):
    sample = {"source": "NIC", "name": "Port 3", "instance": 3, "device": 0, "time_ns": T}
    values = {"rxPacket/s": 5.0, "rxError rate(%)": 0.5, "txPacket/s": 6.0, "Bandwidth(MB/s)": 9.0}
    samples = [{**sample, "series": series, "value": value} for series, value in values.items()]
    # Databases give the same value under both names.
    samples.append({**sample, "name": "Port 3/Rx", "instance": None, "series": "Rx Packets", "value": 5.0})
    text = written(tmp_path, counters=rows("counters", *samples))
    assert text.count("Rx Packets") == 1
    shown = events(text, ph="C")
    assert {event["name"]: event["args"] for event in shown} == {
        "Port 3/Rx": {"Rx Packets": 5.0, "Rx Error Rate": 0.5},
        "Port 3/Tx": {"Tx Packets": 6.0},
    }


def test_a_task_whose_parts_are_shown_is_hidden(tmp_path):
    whole = task(T, T + 100, name="FFTS_PLUS", host_task_type="FFTS_PLUS", task_id=4)
    other = task(T + 200, T + 300, name="FFTS_PLUS", host_task_type="FFTS_PLUS", task_id=5)
    text = written(tmp_path, kernels=kernels(whole, task(T + 10, T + 20, name="part", task_id=4, context_id=0), other))
    assert [event["ts"][-3:] for event in events(text, ph="X", pid=14 << 5)] == ["010", "200"]


def test_marks_point_at_their_device_part(tmp_path):
    mark = {"pid": 7, "tid": 1, "start_ns": T, "end_ns": T + 10, "message": "step", "kind": "start/end"}
    table = rows(
        "marks",
        {
            **mark,
            "domain": "mine",
            "connection_id": 9,
            "device": 0,
            "stream": 5,
            "device_start_ns": T + 20,
            "device_end_ns": T + 40,
        },
        {**mark, "start_ns": T + 1, "message": "bare", "category": 3},
    )
    text = written(tmp_path, marks=table)
    host, device = HOST | 6 << 5, DEVICE | 14 << 5
    assert [(event["pid"], event["tid"], event["args"]) for event in events(text, name="step")] == [
        (host, 1, {"event_type": "start/end", "domain": "mine"}),
        (device, 5, {"Physic Stream Id": 5, "Task Id": 4294967295}),
    ]
    assert events(text, name="bare")[0]["args"] == {
        "Category": 3,
        "Payload_type": 0,
        "Payload_value": 0,
        "Message_type": 0,
        "event_type": "start/end",
    }
    assert [(event["ph"], event["pid"], event["id"]) for event in events(text, name="MsTx_9")] == [
        ("s", host, "9"),
        ("f", device, "9"),
    ]


def test_gpu_layers_carry_their_own_names(tmp_path):
    call = {
        "pid": 7,
        "tid": 1,
        "start_ns": T + 2,
        "end_ns": T + 8,
        "level": "cuda_runtime",
        "name": "cudaLaunchKernel",
        "connection_id": 6,
    }
    kernel = task(
        T + 20, T + 30, device=1, stream=7, name="gemm", pid=7, connection_id=6, launch_ns=T + 2, launch_tid=1, op=0, external_id=4
    )
    facts = Facts(device_kind="cuda", source="kineto")
    text = written(tmp_path, facts, ops=ops(op("aten::mm", T, T + 10)), api_calls=rows("api_calls", call), kernels=kernels(kernel))
    assert events(text, name="cudaLaunchKernel")[0] | {} == {
        "ph": "X",
        "name": "cudaLaunchKernel",
        "pid": 7,
        "tid": 1,
        "ts": "1700000000000000.002",
        "dur": 0.006,
        "cat": "cuda_runtime",
        "args": {"correlation": 6},
    }
    gemm = events(text, name="gemm")[0]
    assert (gemm["cat"], gemm["args"]) == ("kernel", {"device": 1, "stream": 7, "correlation": 6, "External id": 4})
    assert events(text, name="process_name", pid=gemm["pid"])[0]["args"] == {"name": "GPU 1"}
    assert [event["ph"] for event in events(text, cat="ac2g")] == ["s", "f"]


def test_many_rows_come_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr("stepscope.render.lines.SLICE_ROWS", 3)
    text = written(tmp_path, ops=ops(*(op(f"op{number}", T + number, T + number + 1) for number in range(20))))
    assert [event["name"] for event in events(text, ph="X")] == [f"op{number}" for number in range(20)]


@pytest.mark.parametrize(
    ("layer", "os_pid", "device", "pid"),
    [
        pytest.param(HARDWARE, 5, 3, 5 << 10 | 14 << 5 | 3, id="device-layer"),
        pytest.param(CANN, 5, None, 5 << 10 | 7 << 5 | 31, id="host-layer-uses-device-31"),
        pytest.param(OVERLAP, 5, 32, (1 << 22) + 1, id="device-over-5-bits"),
        pytest.param(HARDWARE, 1 << 22, 0, (1 << 22) + 1, id="process-over-22-bits"),
        pytest.param(Layer("Ub", 33), 5, 0, (1 << 22) + 1, id="sort-over-5-bits"),
    ],
)
def test_pid_of_a_layer(layer, os_pid, device, pid):
    assert Processes(5).of(layer, os_pid, device) == pid


def test_layers_never_share_a_number():
    processes = Processes(5)
    processes.reserve(5 << 10 | 14 << 5)
    numbers = {processes.of(layer, 5, device) for layer in (HARDWARE, OVERLAP, Layer("Ub", 33)) for device in (0, 40)}
    assert len(numbers) == 6
    assert 5 << 10 | 14 << 5 not in numbers
