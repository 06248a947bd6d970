# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os

import polars as pl
import pytest
from capture_rows import MAIN, collective, collectives, kernels, op, ops, queue, queued, rows, steps, task
from database_files import rows_of

from stepscope.errors import CaptureError
from stepscope.export.analysis_db import write_analysis_db
from stepscope.export.ascend_db import write_profiler_db
from stepscope.formats.ascend.db.read import read
from stepscope.formats.ascend.db.schema import ENUMS, PROFILER_DB
from stepscope.tables import Facts, Tables

OFFSET = 5 << 28


def text(column: str) -> str:
    return f"(SELECT value FROM STRING_IDS WHERE id = {column})"


@pytest.fixture
def write(tmp_path):
    def write(**frames):
        path = tmp_path / "p.db"
        write_profiler_db(Tables(frames), path)
        return path

    return write


def test_operators_with_their_launches_and_pairs(write):
    path = write(
        ops=ops(
            op("conv", 10, 20, seq=5, shapes="2,3;;4", dtypes="float;Scalar;int"),
            op("conv_backward", 30, 40, tid=2, seq=5, fwd_thread=1),
        ),
        queue=queue(queued(8, (11, 12), (13, 19))),
        kernels=kernels(task(15, 18, op=0, connection_id=70), task(18, 19, op=0, connection_id=70, extra=True)),
        collectives=collectives(collective(50, 60, op=1, connection_id=71)),
    )
    columns = f"startNs, endNs, globalTid, {text('name')}, sequenceNumber, fwdThreadId, {text('inputShapes')}, type"
    thread = 7 << 32
    assert rows_of(path, f"SELECT {columns} FROM PYTORCH_API") == [
        (11, 12, thread + 1, "Enqueue", None, None, None, 50002),
        (13, 19, thread + 9, "Dequeue", None, None, None, 50002),
        (10, 20, thread + 1, "conv", 5, 0, "2,3;\r\n;\r\n4", 50001),
        (30, 40, thread + 2, "conv_backward", 5, 1, None, 50001),
    ]
    connections = "SELECT p.startNs, c.connectionId FROM PYTORCH_API p JOIN CONNECTION_IDS c ON c.id = p.connectionId"
    assert sorted(rows_of(path, connections)) == [
        (10, 70),
        (10, OFFSET + 9),  # forward and backward: the first number above all task numbers
        (11, OFFSET + 8),
        (13, OFFSET + 8),
        (30, 71),
        (30, OFFSET + 9),
    ]


def test_equal_stacks_share_one_chain(write):
    path = write(ops=ops(op("a", 1, 2, stack="x.py(1): f;y.py(2): g"), op("b", 3, 4, stack="x.py(1): f;y.py(2): g"), op("c", 5, 6)))
    assert rows_of(path, "SELECT callchainId FROM PYTORCH_API") == [(0,), (0,), (None,)]
    chains = f"SELECT id, {text('stack')}, stackDepth FROM PYTORCH_CALLCHAINS"
    assert rows_of(path, chains) == [(0, "x.py(1): f", 0), (0, "y.py(2): g", 1)]


def test_operators_of_marks_are_joined_with_their_events(write):
    """A range that is put into a stream at 100 and 300 us, a mark at 500; what is far from every mark has no connection."""
    us = 1000
    names = {100: "mstx_range_start_op", 300: "mstx_range_end_op", 500: "mstx_mark_op", 9_000: "mstx_mark_op", 600: "Add"}
    pairs = [queued(at, (at * us, at * us + 5), (at * us + 10, at * us + 20)) for at in sorted(names)]
    for enqueue, dequeue in pairs:
        enqueue["name"] = dequeue["name"] = names[enqueue["correlation_id"]]
    device = {"pid": 7, "tid": MAIN, "device": 0, "stream": 2}
    marks = rows(
        "marks",
        {**device, "start_ns": 99 * us, "end_ns": 299 * us, "message": "range", "connection_id": 4_000_000_001},
        {**device, "start_ns": 499 * us, "end_ns": 499 * us, "message": "mark", "connection_id": 4_000_000_002},
    )
    path = write(ops=ops(op("aten::add", 590 * us, 610 * us)), queue=queue(*pairs), marks=marks)
    query = (
        f"SELECT {text('p.name')}, p.startNs / 1000, p.type, e.connectionId FROM PYTORCH_API p LEFT JOIN CONNECTION_IDS c"
        " ON c.id = p.connectionId LEFT JOIN MSTX_EVENTS e ON e.connectionId = c.connectionId WHERE p.type = 50001"
    )
    assert rows_of(path, query) == [
        ("aten::add", 590, 50001, None),
        ("mstx_range_start_op", 100, 50001, 4_000_000_001),
        ("mstx_range_end_op", 300, 50001, 4_000_000_001),
        ("mstx_mark_op", 500, 50001, 4_000_000_002),
        ("mstx_mark_op", 9_000, 50001, None),
    ]
    again = read(path, Facts()).ops["name"].cast(str).to_list()
    assert again.count("mstx_mark_op") == 2


def test_string_ids_have_three_ranges(write):
    event = {"time_ns": 5, "component": "PTA", "device_type": "npu", "device": 0, "total_allocated": 1.0}
    path = write(
        ops=ops(op("same", 1, 2)),
        kernels=kernels(task(1, 2, name="same")),
        memory_events=rows("memory_events", event),
        allocations=rows("allocations", {"name": "same", "component": "PTA", "device_type": "npu", "bytes": 1, "start_ns": 5}),
    )
    ids = [number for (number,) in rows_of(path, "SELECT id FROM STRING_IDS WHERE value = 'same' ORDER BY id")]
    assert [number >> 28 for number in ids] == [0, 1, 2]
    assert rows_of(path, "SELECT min(id) FROM STRING_IDS") == [(0,)]


def test_tables_without_rows_do_not_exist_but_enumerations_do(write):
    path = write(ops=ops(op("a", 1, 2)))
    names = {name for (name,) in rows_of(path, "SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert names == {"PYTORCH_API", "STRING_IDS", "META_DATA", "RANK_DEVICE_MAP", "SESSION_TIME_INFO", *ENUMS}
    assert dict(rows_of(path, "SELECT * FROM ENUM_API_TYPE")) == ENUMS["ENUM_API_TYPE"]
    assert len(rows_of(path, "SELECT * FROM ENUM_MODULE")) == 65
    assert ("SCHEMA_VERSION", "1.2.0") in rows_of(path, "SELECT * FROM META_DATA")
    assert rows_of(path, "SELECT sql FROM sqlite_master WHERE name = 'STRING_IDS'") == [(PROFILER_DB["STRING_IDS"].ddl,)]


def test_calls_that_share_a_connection_get_numbers_of_their_own(write):
    call = {"pid": 7, "tid": 1, "start_ns": 1, "end_ns": 2, "connection_id": 5}
    calls = rows(
        "api_calls",
        {**call, "level": "acl", "name": "op"},
        {**call, "level": "node", "name": "launch", "start_ns": 2},
        {**call, "level": "runtime", "name": "x", "connection_id": None, "start_ns": 3},
        {**call, "level": "cuda_runtime", "name": "cudaLaunchKernel", "connection_id": 6, "start_ns": 4},
    )
    got = rows_of(write(api_calls=calls), f"SELECT {text('name')}, type, connectionId FROM CANN_API ORDER BY startNs")
    assert [row[:2] for row in got] == [("op", 20000), ("launch", 10000), ("x", 5000), ("cudaLaunchKernel", 5000)]
    assert got[1][2] == 5
    assert got[3][2] == 6
    assert len({row[2] for row in got}) == 4


def test_kernels_become_tasks(write):
    path = write(
        kernels=kernels(
            task(1, 2, core="AI_VECTOR_CORE", input_shapes="2,3;4", block_num=8, task_id=4, connection_id=9, pid=7),
            task(3, 5, kind="memcpy", name="MEMCPY_ASYNC", bytes=64, copy_direction="device to host", context_id=1),
        )
    )
    columns = f"globalTaskId, startNs, endNs, connectionId, {text('taskType')}, contextId, modelId"
    assert rows_of(path, f"SELECT {columns} FROM TASK") == [
        (0, 1, 2, 9, "KERNEL_AIVEC", 4294967295, 4294967295),
        (1, 3, 5, -1, "MEMCPY_ASYNC", 1, 4294967295),
    ]
    info = f"globalTaskId, {text('name')}, {text('taskType')}, {text('inputShapes')}, {text('outputShapes')}, blockNum"
    assert rows_of(path, f"SELECT {info} FROM COMPUTE_TASK_INFO") == [(0, "MatMul", "AI_VECTOR_CORE", '"2,3;4"', "N/A", 8)]
    assert rows_of(path, "SELECT * FROM MEMCPY_INFO") == [(1, 64, 2)]
    overlap = rows_of(path, "SELECT deviceId, startNs, endNs, type FROM OVERLAP_ANALYSIS ORDER BY startNs, type")
    assert overlap == [(0, 1, 2, 0), (0, 2, 5, 3)]


def test_transfers_find_their_task_or_get_one(write):
    place = {"device": 0, "stream": 2, "task_type": "Memcpy", "collective": 0}
    path = write(
        kernels=kernels(task(10, 12, kind="other", name="SDMA", task_id=4, context_id=1)),
        collectives=collectives(collective(10, 30, connection_id=9, data_type="FP32", group="123")),
        transfers=rows(
            "transfers",
            {**place, "start_ns": 10, "end_ns": 12, "task_id": 4, "context_id": 1, "link": "HCCS", "transport": "SDMA", "bytes": 5},
            {**place, "start_ns": 20, "end_ns": 25, "task_id": 4, "context_id": 2, "dst_rank": 3},
        ),
    )
    joined = (
        f"SELECT t.startNs, t.connectionId, {text('t.taskType')}, {text('k.name')}, linkType, transportType, size, dstRank, opId "
        "FROM COMMUNICATION_TASK_INFO k JOIN TASK t USING (globalTaskId) ORDER BY t.startNs"
    )
    name, none = "hcom_allReduce__271_0_1", 4294967295
    assert rows_of(path, joined) == [(10, -1, "SDMA", name, 1, 0, 5, none, 0), (20, 9, "Memcpy", name, 65534, 65534, -1, 3, 0)]
    assert rows_of(path, "SELECT count(*) FROM TASK") == [(2,)]
    assert rows_of(path, f"SELECT dataType, {text('groupName')}, deviceId FROM COMMUNICATION_OP") == [(4, "123", 0)]


def test_counters_of_kernels(write):
    metrics = pl.DataFrame({"kernel": [1], "aic_total_time": [1500.0], "aiv_vec_ratio": [None], "cube_utilization": [3.0]})
    metrics = metrics.cast({"aiv_vec_ratio": pl.Float64})
    path = write(kernels=kernels(task(1, 2), task(3, 5, device=1)), kernel_metrics=metrics)
    assert rows_of(path, f"SELECT globalTaskId, {text('name')}, value FROM TASK_PMU_INFO") == [(1, "aic_total_time", 1500)]


def test_marks_with_and_without_device_part(write):
    mark = {"pid": 7, "tid": 1, "start_ns": 1, "end_ns": 2, "message": "m", "kind": "start/end"}
    path = write(
        marks=rows(
            "marks",
            {**mark, "connection_id": 4000000001, "device": 0, "stream": 3, "device_start_ns": 5, "device_end_ns": 6},
            {**mark, "kind": "marker", "domain": "io", "category": 4},
        )
    )
    columns = f"eventType, rangeId, category, {text('message')}, {text('domainId')}, connectionId"
    none = 4294967295
    assert sorted(rows_of(path, f"SELECT {columns} FROM MSTX_EVENTS")) == [
        (0, none, 4, "m", "io", 4000000000),
        (2, none, none, "m", "default", 4000000001),
    ]
    assert rows_of(path, "SELECT startNs, endNs, streamId, connectionId FROM TASK") == [(5, 6, 3, 4000000001)]


def test_memory_tables(write):
    record = {"device_type": "npu", "device": 0, "total_reserved": 100.0, "pid": 7, "tid": 1}
    path = write(
        memory_events=rows(
            "memory_events",
            {**record, "time_ns": 5, "component": "PTA", "total_allocated": 10.0, "total_active": 10.0, "stream_ptr": 3},
            {
                **record,
                "time_ns": 6,
                "component": "GE",
                "total_allocated": 7.0,
                "op_name": "x",
                "action": "free",
                "bytes": -7,
                "ptr": 1,
            },
            {**record, "time_ns": 7, "component": "PTA", "device_type": "cpu", "total_allocated": 1.0},
        ),
        allocations=rows(
            "allocations",
            {"device_type": "npu", "device": 0, "component": "GE", "name": "x", "bytes": 7, "start_ns": 2, "release_ns": 6},
            {"device_type": "npu", "device": 0, "component": "PTA", "bytes": 9, "start_ns": 3},
        ),
    )
    assert rows_of(path, f"SELECT {text('component')}, timestamp, totalAllocated, streamPtr FROM MEMORY_RECORD") == [
        ("PTA", 5, 10, 3),
        ("PTA+GE", 5, 10, 3),
        ("GE", 6, 7, None),
        ("PTA+GE", 6, 17, 3),
    ]
    assert rows_of(path, f"SELECT {text('name')}, size, allocationTime, duration FROM OP_MEMORY") == [
        ("", 9, 3, None),
        ("x", 7, 2, 4),
    ]
    assert rows_of(path, f"SELECT {text('operatorName')}, {text('type')}, size FROM NPU_OP_MEM") == [("x", "release", 7)]


SERIES = [
    ("HBM", "HBM 2/Write", "Write(MB/s)", None, 3.0),
    ("LLC", "LLC 1 Read/Hit Rate", "Hit Rate(%)", None, 85.5),
    ("LLC", "LLC 1 Read/Throughput", "Throughput(MB/s)", None, 4.0),
    ("NPU MEM", "APP/DDR", "KB", None, 1.0),
    ("NPU MEM", "APP/HBM", "KB", None, 2.0),
    ("NPU MEM", "APP/Memory", "KB", None, 3.0),
    ("NPU Module Mem", "HCCL", "Total Reserved(KB)", None, 2.0),
    ("NPU Module Mem", "IDEDH", "Total Reserved(KB)", None, 4.0),
    ("QoS", "QoS OTHERS", "value", None, 6.0),
    ("QoS", "QoS X", "die 1", None, 1.0),
    ("AI Core Freq", "AI Core Freq", "MHz", None, 1800.0),
    ("AI Core Freq", "AI Core Freq Die 1", "MHz", None, 800.0),
    ("Acc PMU", "read_bandwidth", "value", 4, 1.0),
    ("Acc PMU", "write_ost", "value", 4, 2.0),
    ("Stars Soc Info", "Mata Bw Level", "Mata Bw Level", None, 3.0),
    ("DDR", "DDR/Read", "Read(MB/s)", None, 5.0),
    ("HCCS", "Tx", "Tx(MB/s)", None, 7.0),
    ("PCIe", "PCIe_post", "Tx", None, 7.5),
    ("PCIe", "PCIe_post", "Tx Max", None, 9.0),
    ("SIO", "req_rx", "die 0", None, 2.0),
    ("UB", "UB Port007", "bandwidth_rx(MB/s)", None, 1.5),
    ("RoCE", "Port 1", "Bandwidth(MB/s)", 1, 8.0),
    ("RoCE", "Port 1/Rx", "Rx Packets", None, 100.0),
    ("RoCE", "Port 1/Rx", "Rx Error Rate", None, 0.25),
    ("RoCE", "Port 1/Rx", "Rx Bandwidth Efficiency", None, 0.5),
]
HOST_SERIES = [
    ("CPU Usage", "CPU 3", "Usage(%)", None, 12.5),
    ("Memory Usage", "Memory Usage", "Usage(%)", None, 40.0),
    ("Disk Usage", "Disk Usage", "Usage(%)", None, 50.0),
    ("Disk Usage", "Disk Usage", "Read(KB/s)", None, 2.0),
    ("Network Usage", "Network Usage", "Speed(KB/s)", None, 2.5),
]


def test_samples_come_back_under_the_same_names(write):
    names = ("source", "name", "series", "instance", "value")
    samples = [dict(zip(names, row, strict=True), device=0, time_ns=5) for row in SERIES]
    samples += [dict(zip(names, row, strict=True), time_ns=5) for row in HOST_SERIES]
    # Two accelerators report at the same moment, twice: no sample may swallow another.
    samples.append({**samples[12], "value": 9.0})
    counters = rows("counters", *samples)
    path = write(counters=counters)
    again = read(path, Facts()).counters
    known = again.join(counters.select("source", "name", "series").unique(), on=["source", "name", "series"], how="semi")
    assert known.select(counters.columns).rows() == counters.rows()
    assert rows_of(path, "SELECT name FROM ENUM_MODULE WHERE id = 2") == [("IDEDH",)]  # a name that only old captures have


def test_bandwidth_is_stored_in_bytes(write):
    sample = {"source": "HBM", "name": "HBM 0/Read", "series": "Read(MB/s)", "device": 0, "time_ns": 5, "value": 2.0}
    assert rows_of(write(counters=rows("counters", sample)), "SELECT bandwidth, hbmId FROM HBM") == [(2 * 1024**2, 0)]


def test_ports_have_rates_totals_and_a_bandwidth_in_bytes(write):
    port = {"source": "RoCE", "device": 0, "time_ns": 5}
    rates = [("Rx Packets", 100.0), ("Rx Error Rate", 0.25), ("Rx Dropped Rate", 0.0), ("Rx Bandwidth Efficiency", 0.5)]
    samples = [{**port, "name": "Port 1/Rx", "series": series, "value": value} for series, value in rates]
    totals = [("Bandwidth(MB/s)", 8.0), ("rxPackets", 4000.0), ("rxBytes", 77.0)]
    samples += [{**port, "name": "Port 1", "instance": 1, "series": series, "value": value} for series, value in totals]
    columns = "bandwidth, rxPacketRate, rxByteRate, rxPackets, rxBytes, rxErrors, txPacketRate, funcId"
    path = write(counters=rows("counters", *samples))
    # Half of 8 MB by 8 bits; errors are known as a share of packets only; nothing is known of what was sent.
    assert rows_of(path, f"SELECT {columns} FROM ROCE") == [(8 << 20, 100, 1 << 19, 4000, 77, 25, None, 1)]
    again = read(path, Facts()).counters
    found = {(name, series): value for name, series, value in again.select("name", "series", "value").rows()}
    assert found["Port 1", "Bandwidth(MB/s)"] == 8.0
    assert found["Port 1/Rx", "Rx Packets"] == 100.0
    assert found["Port 1/Rx", "Rx Bandwidth Efficiency"] == 0.5


def test_hit_rates_are_stored_in_percent(write):
    sample = {"source": "LLC", "name": "LLC 0 Read/Hit Rate", "series": "Hit Rate(%)", "device": 0, "time_ns": 5, "value": 0.84}
    assert rows_of(write(counters=rows("counters", sample)), "SELECT hitRate FROM LLC") == [(84.0,)]


def test_a_component_keeps_its_number_under_the_name_of_the_csv_files(write):
    sample = {"source": "NPU Module Mem", "name": "AML", "series": "Total Reserved(KB)", "device": 0, "time_ns": 5, "value": 1.0}
    path = write(counters=rows("counters", sample))
    assert rows_of(path, "SELECT moduleId FROM NPU_MODULE_MEM") == [(74,)]
    assert rows_of(path, "SELECT name FROM ENUM_MODULE WHERE id = 74") == [("AML",)]


def test_the_session_of_the_database_counts(tmp_path):
    path = tmp_path / "p.db"
    write_profiler_db(Tables({"meta": Facts(session_start_ns=10, session_end_ns=20).table()}), path)
    again = read(path, Facts(session_start_ns=3, session_end_ns=30)).facts
    assert (again.session_start_ns, again.session_end_ns) == (10, 20)


def test_nothing_is_made_up_about_an_unknown_host_and_chip(tmp_path):
    path = tmp_path / "p.db"
    write_profiler_db(Tables({"meta": Facts(device_ids=(2,)).table()}), path)
    assert rows_of(path, "SELECT name FROM sqlite_master WHERE name = 'HOST_INFO'") == []
    assert rows_of(path, "SELECT * FROM NPU_INFO") == [(2, None)]


def test_capture_facts(tmp_path):
    facts = Facts(
        rank=3,
        device_ids=(1,),
        device_names={"1": "Ascend910B"},
        host_name="node",
        host_uid="5",
        metadata={"ENV_VARIABLES": {"A": "b"}, "key": [1]},
        session_start_ns=10,
    )
    path = tmp_path / "p.db"
    write_profiler_db(Tables({"meta": facts.table()}), path)
    assert rows_of(path, "SELECT * FROM RANK_DEVICE_MAP") == [(3, 1)]
    assert rows_of(path, "SELECT * FROM NPU_INFO") == [(1, "Ascend910B")]
    assert rows_of(path, "SELECT * FROM SESSION_TIME_INFO") == [(10, 10 + 30 * 60 * 10**9)]
    assert dict(rows_of(path, "SELECT * FROM META_DATA"))["key"] == "[1]"
    again = read(path, Facts()).facts
    assert (again.rank, again.host_name, again.metadata) == (3, "node", {"ENV_VARIABLES": {"A": "b"}, "key": [1]})


def test_analysis_of_one_step(tmp_path):
    path = tmp_path / "analysis.db"
    tables = Tables(
        {
            "meta": Facts(level="Level0").table(),
            "ops": ops(op("ProfilerStep#4", 0, 5000)),
            "steps": steps((4, 0, 5000)),
            "kernels": kernels(task(1000, 2000), task(3000, 4500)),
        }
    )
    assert write_analysis_db(tables, path)
    assert rows_of(path, "SELECT deviceId, step, computing, free, stage, preparing FROM StepTraceTime") == [
        (0, "4", 2.5, 1, 3.5, 1)
    ]
    assert rows_of(path, "SELECT name FROM sqlite_master") == [("StepTraceTime",)]


@pytest.mark.parametrize("level", ["Level_none", "Level1"])
def test_nothing_to_analyse_makes_no_file(tmp_path, level):
    tables = Tables({"meta": Facts(level=level).table(), "ops": ops(op("a", 1, 2))})
    assert not write_analysis_db(tables, tmp_path / "analysis.db")
    assert not os.listdir(tmp_path)


def test_a_failure_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "p.db"
    write_profiler_db(Tables({"ops": ops(op("old", 1, 2))}), path)
    before = path.read_bytes()

    def fail(tables, pairs, strings):
        raise RuntimeError("half way")

    monkeypatch.setattr("stepscope.export.ascend_db.framework_rows", fail)
    with pytest.raises(RuntimeError, match="half way"):
        write_profiler_db(Tables({"ops": ops(op("new", 1, 2))}), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["p.db"]


def test_what_sqlite_refuses_is_explained(tmp_path, monkeypatch):
    twice = pl.DataFrame({"id": [1, 1], "value": ["a", "b"]})
    monkeypatch.setattr("stepscope.formats.ascend.db.string_ids.StringIds.table", lambda self: twice)
    with pytest.raises(CaptureError) as caught:
        write_profiler_db(Tables({"ops": ops(op("new", 1, 2))}), tmp_path / "p.db")
    assert "UNIQUE" in str(caught.value.cause)
    assert not os.listdir(tmp_path)


def test_symbolic_links_are_refused(tmp_path):
    (tmp_path / "real.db").touch()
    (tmp_path / "p.db").symlink_to(tmp_path / "real.db")
    with pytest.raises(CaptureError, match="symbolic link"):
        write_profiler_db(Tables(), tmp_path / "p.db")


def test_file_mode(write):
    assert write(ops=ops(op("a", 1, 2))).stat().st_mode & 0o777 == 0o640
