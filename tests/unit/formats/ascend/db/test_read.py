# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import mmap
import sqlite3
from pathlib import Path

import polars as pl
import pytest
from database_files import API, NONE, TASK, Text, make_db, task

from stepscope.formats.ascend.db.analysis import read_analysis
from stepscope.formats.ascend.db.read import read
from stepscope.tables import Facts

THREAD = (77 << 32) + 5


def values(frame: pl.DataFrame, *columns: str) -> list[tuple[object, ...]]:
    return frame.select(columns).with_columns(pl.col(pl.Categorical).cast(pl.String)).rows()


@pytest.mark.parametrize("time", [int, str], ids=["integer-times", "text-times"])
def test_operators_are_sorted_parents_first(tmp_path, time):
    rows = [
        (time(100), time(150), THREAD, None, Text("inner"), -1, 0, Text("float"), Text("2,3"), None, 50001),
        (time(100), time(200), THREAD, None, Text("outer"), 7, 3, None, None, None, 50001),
    ]
    ops = read(make_db(tmp_path / "a.db", {"PYTORCH_API": (API, rows)}), Facts()).check().ops
    assert values(ops, "name", "start_ns", "end_ns", "pid", "tid", "seq", "fwd_thread") == [
        ("outer", 100, 200, 77, 5, 7, 3),
        ("inner", 100, 150, 77, 5, None, None),
    ]


@pytest.mark.parametrize("swapped", [True, False], ids=["first-generation", "current"])
def test_shapes_and_types_are_told_apart_by_content(tmp_path, swapped):
    shapes, types = Text("2,3;\r\n;\r\n4"), Text("float;\r\nScalar;\r\nlong int")
    pair = (shapes, types) if swapped else (types, shapes)
    ops = read(
        make_db(tmp_path / "a.db", {"PYTORCH_API": (API, [(1, 2, THREAD, None, Text("x"), 1, 0, *pair, None, 50001)])}), Facts()
    ).ops
    assert values(ops, "shapes", "dtypes") == [("2,3;;4", "float;Scalar;long int")]


def test_queue_rows_and_their_numbers(tmp_path):
    offset = 5 << 28
    rows = [
        (10, 11, THREAD, 0, Text("Enqueue"), None, None, None, None, None, 50002),
        (20, 21, THREAD + 1, 1, Text("Dequeue@aclnnAdd"), None, None, None, None, None, 50002),
        (30, 31, THREAD, 2, Text("Enqueue@x"), None, None, None, None, None, 50002),
        (40, 41, THREAD, 3, Text("Strange"), None, None, None, None, None, 50002),
    ]
    connections = [(0, 9), (1, 9), (2, offset + 10), (3, 11)]
    tables = read(
        make_db(tmp_path / "a.db", {"PYTORCH_API": (API, rows), "CONNECTION_IDS": ("id, connectionId", connections)}), Facts()
    )
    assert values(tables.queue, "kind", "name", "correlation_id") == [
        ("enqueue", None, 9),
        ("dequeue", "aclnnAdd", 9),
        ("enqueue", "x", 10),
    ]
    assert values(tables.quality, "issue", "count") == [("unknown-kind", 1)]


def test_python_calls_and_stacks(tmp_path):
    rows = [
        (1, 9, THREAD, None, Text("ProfilerStep#12"), -1, 0, None, None, 4, 50001),
        (2, 3, THREAD, None, Text("nn.Module: Linear_3"), None, None, None, None, None, 50003),
        (4, 5, THREAD, None, Text("<built-in method x>"), None, None, None, None, None, 50003),
        (6, 7, THREAD, None, Text("a.py(1): f"), None, None, None, None, None, 50003),
    ]
    chains = [(4, Text("main.py(9): g"), 1), (4, Text("main.py(3): f"), 0)]
    layout = {"PYTORCH_API": (API, rows), "PYTORCH_CALLCHAINS": ("id, stack, stackDepth", chains)}
    tables = read(make_db(tmp_path / "a.db", layout), Facts()).check()
    assert values(tables.ops, "stack") == [("main.py(3): f;main.py(9): g",)]
    assert values(tables.python_calls, "kind", "module_id") == [("module", 3), ("c", None), ("python", None)]
    assert values(tables.steps, "step", "pid", "start_ns", "end_ns") == [(12, 77, 1, 9)]


def test_a_task_has_the_core_and_blocks_of_its_operator(tmp_path):
    columns = "name, globalTaskId, blockNum, mixBlockNum, taskType, opType, inputShapes, gridDim, blockDim"
    info = [(Text("Conv1"), 1, 8, 0, Text("MIX_AIC"), Text("Conv"), Text('"2,3;4"'), Text("1,1,1"), Text("32,1,1"))]
    tasks = [task(20, 30, connection=6, number=1, kind="KERNEL_MIX_AIC"), task(5, 9, connection=-1, number=0, kind="EVENT_RECORD")]
    kernels = (
        read(make_db(tmp_path / "a.db", {"TASK": (TASK, tasks), "COMPUTE_TASK_INFO": (columns, info)}), Facts()).check().kernels
    )
    shown = ("kind", "name", "core", "host_task_type", "block_num", "input_shapes", "grid", "block", "connection_id", "model_id")
    assert values(kernels, *shown) == [
        ("event", "EVENT_RECORD", None, "EVENT_RECORD", None, None, None, None, None, None),
        ("compute", "Conv1", "MIX_AIC", "KERNEL_MIX_AIC", 8, "2,3;4", "1,1,1", "32,1,1", 6, None),
    ]


def test_block_dim_of_old_files_is_the_number_of_blocks(tmp_path):
    info = [(Text("Conv1"), 1, 24, 48)]
    layout = {
        "TASK": (TASK, [task(20, 30, connection=6, number=1, kind="KERNEL_AICORE")]),
        "COMPUTE_TASK_INFO": ("name, globalTaskId, blockDim, mixBlockDim", info),
    }
    kernels = read(make_db(tmp_path / "a.db", layout), Facts()).kernels
    assert values(kernels, "block_num", "mix_block_num", "block") == [(24, 48, None)]


def test_one_task_stands_for_a_launch(tmp_path):
    tasks = [
        task(10, 50, connection=6, number=1, kind="AI_CORE"),
        task(12, 48, connection=6, number=2, kind="MIX_AIV"),
        task(60, 61, connection=7, number=3, kind="MEMCPY_ASYNC"),
        task(62, 63, connection=7, number=4, kind="MEMCPY_ASYNC"),
        task(70, 80, connection=8, number=5, kind="SDMA"),
    ]
    layout = {
        "TASK": (TASK, tasks),
        "COMPUTE_TASK_INFO": ("name, globalTaskId", [(Text("Pool"), 2)]),
        "COMMUNICATION_OP": ("opName, startNs, endNs, connectionId, opId, dataType", [(Text("hcom"), 70, 80, 8, 1, 4)]),
        "COMMUNICATION_TASK_INFO": ("name, globalTaskId, taskType, opId", [(Text("hcom"), 5, Text("Memcpy"), 1)]),
    }
    tables = read(make_db(tmp_path / "a.db", layout), Facts()).check()
    assert values(tables.kernels, "global_task_id", "kind", "extra") == [
        (1, "other", True),
        (2, "compute", False),
        (3, "memcpy", False),
        (4, "memcpy", True),
        (5, "communication", True),
    ]
    assert values(tables.collectives, "device", "name", "data_type") == [(0, "hcom", "FP32")]
    assert values(tables.transfers, "collective", "start_ns", "task_type") == [(0, 70, "Memcpy")]


@pytest.mark.parametrize(("group", "hash_", "name"), [("123456789", "123456789", None), ("10.0.0.1%eth_0", None, "10.0.0.1%eth_0")])
def test_group_is_a_hash_or_a_text(tmp_path, group, hash_, name):
    rows = [(Text("hcom"), 70, 80, 8, Text(group), 1)]
    layout = {"COMMUNICATION_OP": ("opName, startNs, endNs, connectionId, groupName, opId", rows)}
    collectives = read(make_db(tmp_path / "a.db", layout), Facts()).collectives
    assert values(collectives, "group", "group_name") == [(hash_, name)]


def test_copies_and_marks(tmp_path):
    marks = "startNs, endNs, eventType, rangeId, category, message, globalTid, endGlobalTid, domainId, connectionId"
    layout = {
        "TASK": (TASK, [task(60, 61, connection=4000000001, number=3, kind="PROFILER_TRACE_EX")]),
        "MEMCPY_INFO": ("globalTaskId, size, memcpyOperation", [(3, 4096, 1)]),
        "MSTX_EVENTS": (
            marks,
            [
                (1, 9, 2, 5, NONE, Text("load"), THREAD, THREAD + 1, Text("default"), 4000000001),
                (2, 2, 0, NONE, NONE, Text("tick"), THREAD, THREAD, Text("io"), 4000000000),
            ],
        ),
    }
    tables = read(make_db(tmp_path / "a.db", layout), Facts()).check()
    assert values(tables.kernels, "bytes", "copy_direction") == [(4096, "host to device")]
    shown = ("message", "domain", "kind", "range_id", "end_tid", "connection_id", "device", "device_start_ns", "device_end_ns")
    assert values(tables.marks, *shown) == [
        ("load", None, "start/end", 5, 6, 4000000001, 0, 60, 61),
        ("tick", "io", "marker", None, 5, None, None, None, None),
    ]


def test_runtime_blocks_are_paired_by_operator_address_and_device(tmp_path):
    columns = "operatorName, addr, type, size, timestampNs, globalTid, totalAllocate, totalReserve, component, deviceId"
    a, b, ge = Text("opA"), Text("opB"), Text("GE")
    rows = [
        (b, 9, Text("release"), 5, 1, THREAD, 0, 100, ge, 0),
        (a, 9, Text("allocate"), 10, 2, THREAD, 10, 100, ge, 0),
        (b, 9, Text("allocate"), 7, 3, THREAD, 17, 100, ge, 0),
        (a, 9, Text("release"), 10, 4, THREAD, 7, 100, ge, 0),
    ]
    tables = read(make_db(tmp_path / "a.db", {"NPU_OP_MEM": (columns, rows)}), Facts()).check()
    assert values(tables.allocations, "name", "component", "start_ns", "release_ns", "bytes", "release_total_allocated") == [
        ("opA", "GE", 2, 4, 10, 7.0),
        ("opB", "GE", 3, None, 7, None),
    ]
    assert values(tables.memory_events, "action", "bytes") == [("free", -5), ("malloc", 10), ("malloc", 7), ("free", -10)]


def test_sums_of_both_allocators_are_not_events(tmp_path):
    rows = [(Text(word), 5, 10, 20, 10, 1, 0) for word in ("PTA", "PTA+GE", "WORKSPACE")]
    columns = "component, timestamp, totalAllocated, totalReserved, totalActive, streamPtr, deviceId"
    events = read(make_db(tmp_path / "a.db", {"MEMORY_RECORD": (columns, rows)}), Facts()).memory_events
    assert values(events, "component", "total_allocated") == [("PTA", 10.0), ("WORKSPACE", 10.0)]


MB = 1024**2
COUNTERS = {
    "HBM": ("deviceId, timestampNs, bandwidth, hbmId, type", [(0, 5, 3 * MB, 2, Text("write"))]),
    "LLC": ("deviceId, llcId, timestampNs, hitRate, throughput, mode", [(0, 1, 5, 85.5, 4 * MB, Text("read"))]),
    "NPU_MEM": ("type, ddr, hbm, timestampNs, deviceId", [(Text("app"), 1024, 2048, 5, 0)]),
    "NPU_MODULE_MEM": ("moduleId, timestampNs, totalReserved, deviceId", [(3, 5, 2048, 0)]),
    "QOS": ("deviceId, eventName, bandwidth, timestampNs, dieId", [(0, Text("OTHERS"), 6 * MB, 5, None), (0, Text("X"), MB, 5, 1)]),
    "AICORE_FREQ": ("deviceId, timestampNs, freq, dieId", [(0, 5, 1800, None), (0, 5, 800, 1)]),
    "ACC_PMU": ("accId, readBwLevel, writeBwLevel, readOstLevel, writeOstLevel, timestampNs, deviceId", [(4, 1, 2, 3, 6, 5, 0)]),
    "HCCS": ("deviceId, timestampNs, txThroughput, rxThroughput", [(0, 5, 7 * MB, 8 * MB)]),
    "SIO": (
        "deviceId, name, timestampNs, rxReq, rxRsp, rxSnp, rxDat, txReq, txRsp, txSnp, txDat",
        [(0, Text("die 0"), 5, *(number * MB for number in range(8)))],
    ),
    "UB": ("deviceId, portId, timestampNs, rxUdmaBind, txUdmaBind", [(0, 7, 5, MB, 2 * MB)]),
    "CPU_USAGE": ("timestampNs, cpuId, usage", [(5, 3, 12.5)]),
    "HOST_DISK_USAGE": ("timestampNs, readRate, writeRate, usage", [(5, 2048, 1024, 50)]),
}


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("HBM", [("HBM", "HBM 2/Write", "Write(MB/s)", None, 0, 3.0)]),
        (
            "LLC",
            [
                ("LLC", "LLC 1 Read/Hit Rate", "Hit Rate(%)", None, 0, 0.855),
                ("LLC", "LLC 1 Read/Throughput", "Throughput(MB/s)", None, 0, 4.0),
            ],
        ),
        ("NPU_MEM", [("NPU MEM", f"APP/{kind}", "KB", None, 0, kb) for kind, kb in (("DDR", 1.0), ("HBM", 2.0), ("Memory", 3.0))]),
        ("NPU_MODULE_MEM", [("NPU Module Mem", "HCCL", "Total Reserved(KB)", None, 0, 2.0)]),
        ("QOS", [("QoS", "QoS OTHERS", "value", None, 0, 6.0), ("QoS", "QoS X", "die 1", None, 0, 1.0)]),
        (
            "AICORE_FREQ",
            [("AI Core Freq", f"AI Core Freq{die}", "MHz", None, 0, mhz) for die, mhz in (("", 1800.0), (" Die 1", 800.0))],
        ),
        (
            "ACC_PMU",
            [
                ("Acc PMU", name, "value", 4, 0, value)
                for name, value in (("read_bandwidth", 1.0), ("read_ost", 3.0), ("write_bandwidth", 2.0), ("write_ost", 6.0))
            ],
        ),
        ("HCCS", [("HCCS", "Rx", "Rx(MB/s)", None, 0, 8.0), ("HCCS", "Tx", "Tx(MB/s)", None, 0, 7.0)]),
        ("UB", [("UB", "UB Port007", f"bandwidth_{way}(MB/s)", None, 0, value) for way, value in (("rx", 1.0), ("tx", 2.0))]),
        ("CPU_USAGE", [("CPU Usage", "CPU 3", "Usage(%)", None, None, 12.5)]),
    ],
)  # fmt: skip
def test_samples_are_named_as_in_the_timeline(tmp_path, table, expected):
    counters = read(make_db(tmp_path / "a.db", {table: COUNTERS[table]}), Facts()).check().counters
    assert values(counters, "source", "name", "series", "instance", "device", "value") == expected


def test_pcie_in_bytes_a_second_and_nanoseconds(tmp_path):
    columns = (
        "deviceId, timestampNs, txPostMin, txPostMax, txPostAvg, txNonpostLatencyMin, txNonpostLatencyMax, txNonpostLatencyAvg"
    )
    rows = [(0, 5, 0xFFFFF * 1_000_000, 2**50, 4 * MB, 1000, 3000, 2000)]
    tables = read(make_db(tmp_path / "a.db", {"PCIE": (columns, rows)}), Facts()).check()
    shown = [row for row in values(tables.counters, "name", "series", "value") if row[1] == "Tx"]
    assert shown == [("PCIe_nonpost_latency", "Tx", 2.0), ("PCIe_post", "Tx", 4.0)]
    summary = {row[0]: row[1:] for row in values(tables.link_summary, "mode", "min", "max", "avg")}
    # A least value that never was set counts as 0.
    assert summary["Tx_p_avg(MB/s)"] == (0.0, float(2**30), 4.0)
    assert summary["Tx_latency_avg(us)"] == (1.0, 3.0, 2.0)


def test_words_that_an_old_file_stores_as_numbers(tmp_path):
    layout = {
        "ENUM_MEMORY": ("id, name", [(3, "read"), (4, "write")]),
        "HBM": ("deviceId, timestampNs, bandwidth, hbmId, type", [(0, 5, MB, 0, 4)]),
    }
    counters = read(make_db(tmp_path / "a.db", layout), Facts()).counters
    assert values(counters, "name", "value") == [("HBM 0/Write", 1.0)]


def test_vendor_analysis_beside_the_database_is_joined_by_name(tmp_path):
    operator = [(Text("hcom_allReduce__1_0_1"), 70, 80, 8, Text("10.0.0.1%eth_0"), 1)]
    layout = {"COMMUNICATION_OP": ("opName, startNs, endNs, connectionId, groupName, opId", operator)}
    make_db(
        tmp_path / "analysis.db",
        {
            "CommAnalyzerTime": ("hccl_op_name, group_name, elapse_time", [("hcom_allReduce__1_0_1", "4441", 2.5)]),
            "CommAnalyzerBandwidth": (
                "hccl_op_name, group_name, transport_type, package_size, count, total_duration",
                [("hcom_allReduce__1_0_1", "4441", "SDMA", 0, 0, 0)],
            ),
            "CommAnalyzerMatrix": ("hccl_op_name, src_rank, dst_rank, op_name", [("allreduce-top1", "0", "1", "x")]),
        },
    )
    tables = read(make_db(tmp_path / "a.db", layout), Facts()).check()
    assert values(tables.collectives, "group", "group_name") == [("4441", "10.0.0.1%eth_0")]
    assert values(tables.collective_times, "collective", "group", "elapse_ms") == [(0, "4441", 2.5)]
    assert values(tables.collective_packets, "transport", "packet_mb", "packets") == [("SDMA", None, None)]
    assert not tables.collective_links.height


def test_matrix_of_single_operators_is_read(tmp_path):
    rows = [("hcom__1", "44", "0", "1", "HCCS", 1.5, 0.5, 3.0)]
    layout = {
        "CommAnalyzerMatrix": (
            "hccl_op_name, group_name, src_rank, dst_rank, transport_type, transit_size, transit_time, bandwidth",
            rows,
        )
    }
    links = read_analysis(make_db(tmp_path / "x.db", layout))["collective_links"]
    assert values(links, "name", "src_rank", "dst_rank", "transport", "transit_mb") == [("hcom__1", 0, 1, "HCCS", 1.5)]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc here")
def test_no_more_memory_is_set_aside_than_the_file_can_fill(tmp_path):
    rows = [task(number, number + 1, connection=number, number=number, kind="X") for number in range(3000)]
    path = make_db(tmp_path / "a.db", {"TASK": (TASK, rows), "STEP_TIME": ("id, startNs, endNs", [(7, 1, 9)])})
    connection = sqlite3.connect(path)
    with connection:  # numbers of rows say little about how many there are
        connection.execute("UPDATE TASK SET rowid = rowid + (1 << 60) WHERE rowid > 1500")
    connection.close()
    before = _address_space()
    tables = read(path, Facts()).check()
    assert _address_space() - before < 1 << 30
    assert (tables.kernels.height, tables.steps.height) == (3000, 1)
    assert tables.kernels["start_ns"].to_list() == list(range(3000))


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
