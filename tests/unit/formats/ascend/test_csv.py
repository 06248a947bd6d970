"""Csv files of Ascend captures: columns by name, all generations, exact times."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from stepscope.formats.ascend import hardware, kernel_details, memory, msprof_output, task_time
from stepscope.formats.ascend import text as ascend_text
from stepscope.formats.ascend.matching import guess_compute, join_collectives, join_compute
from stepscope.formats.ascend.metric_names import CSV_COLUMNS, csv_columns, is_metric, to_canonical, to_csv
from stepscope.tables import ALL_TABLES, Facts

T0 = 1_736_412_474_730_135_222

HEADER = (
    "Step Id,Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Dim,"
    "Mix Block Dim,HF32 Eligible,Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats,"
    "Context ID,aicore_time(us),aic_total_cycles,cube_utilization(%)\n"
)
G1 = (
    HEADER + "50,4294967295,7,2,MatMul1,MatMul,dynamic,AI_CORE,1736412474730135.222\t,55.161,0,32,0,NO,"
    '"""32,3;3,4""",FLOAT;FLOAT,ND;ND,"""32,4""",FLOAT,ND,N/A,9.406,100,51.301\n'
    "50,4294967295,N/A,N/A,hcom_allReduce__271_0_1,hcom_allReduce_,N/A,HCCL,1736412474730200.5\t,10.25,0,0,N/A,N/A,"
    "N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A\n"
    "50,4294967295,8,2,Dropout1,DSA,static,DSA_SQE,1736412474730300\t,1.005,0,1,0,NO,"
    '"""""",FLOAT,ND,"""2,2""",FLOAT,ND,N/A,N/A,N/A,N/A\n'
)
G2 = "Device_id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Block Dim"
G3 = "Device_id,Op Name,OP Type,Task Type,Task Start Time(us),Task Duration(us),Block Num"


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def rows_lost(quality: list[pl.DataFrame]) -> list[tuple[str, int]]:
    return [
        (issue, count) for frame in quality for issue, count in frame.select(pl.col("issue").cast(pl.String), "count").iter_rows()
    ]


def timeline(**columns: object) -> pl.DataFrame:
    frame = pl.DataFrame(columns)
    return ALL_TABLES["kernels"].conform(frame)


def test_kernel_rows_of_g1(tmp_path):
    quality: list[pl.DataFrame] = []
    rows = kernel_details.read([write(tmp_path, "kernel_details.csv", G1)], quality=quality)
    assert rows.compute.height == 2
    first = rows.compute.row(0, named=True)
    assert (first["start_ns"], first["end_ns"], first["duration_ns"]) == (T0, T0 + 55161, 55161.0)
    assert (first["name"], first["op_type"], first["core"], first["op_state"], first["kind"]) == (
        "MatMul1",
        "MatMul",
        "AI_CORE",
        "dynamic",
        "compute",
    )
    assert (first["task_id"], first["stream"], first["block_num"], first["mix_block_num"], first["hf32"]) == (7, 2, 32, 0, "NO")
    assert (first["input_shapes"], first["output_shapes"], first["input_dtypes"]) == ("32,3;3,4", "32,4", "FLOAT;FLOAT")
    assert (first["model_id"], first["context_id"], first["device"]) == (None, None, None)
    second = rows.compute.row(1, named=True)
    assert second["start_ns"] == 1_736_412_474_730_300_000
    assert second["duration_ns"] == 1005.0  # 1.005 * 1000 is 1004.9999999999999
    assert second["input_shapes"] == ""  # a scalar: known, and empty
    assert rows.metrics.columns == ["aic_total_time", "aic_total_cycles", "cube_utilization"]
    assert rows.metrics.rows() == [(9406.0, 100.0, 51.301), (None, None, None)]
    comm = rows.collectives.row(0, named=True)
    assert (comm["name"], comm["op_type"], comm["start_ns"], comm["duration_ns"]) == (
        "hcom_allReduce__271_0_1", "hcom_allReduce_", 1_736_412_474_730_200_500, 10250.0)  # fmt: skip
    assert comm["stream"] is None
    assert rows_lost(quality) == []


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"{G3}\n3,k,T,AI_CORE,5.001\t,2,9\n", id="G3"),
        pytest.param(f"{G2}\r\n3,k,T,AI_CORE,5.001\t,2.000,9\r\n", id="G2"),
        pytest.param(",".join(["New", *G2.split(",")[::-1]]) + "\nx,9,2,5.001,AI_CORE,T,k,3\n", id="new-order-and-column"),
        pytest.param(f"\ufeff{G2}\n3,k,T,AI_CORE,5.001\t,2,9", id="byte-order-mark-and-no-last-line-end"),
        pytest.param(f"{G2},Name\n3,k,T,AI_CORE,5.001\t,2,9,z\n", id="column-twice"),
        pytest.param(f"{G2}\n3,k,T,AI_CORE, 5.001\t,2 ,9.0\n", id="loose-numbers"),
    ],
)  # fmt: skip
def test_columns_are_found_by_name(tmp_path, text):
    quality: list[pl.DataFrame] = []
    row = kernel_details.read([write(tmp_path, "k.csv", text)], quality=quality).compute.row(0, named=True)
    names = ("device", "name", "op_type", "core", "start_ns", "end_ns", "block_num")
    assert tuple(row[name] for name in names) == (3, "k", "T", "AI_CORE", 5001, 7001, 9)
    assert rows_lost(quality) == []


def test_csv_rows_join_their_timeline_tasks(tmp_path):
    rows = kernel_details.read([write(tmp_path, "kernel_details.csv", G1)], quality=[])
    tasks = timeline(
        device=[0, 0, 0],
        start_ns=[T0 - 10, T0, T0 + 500_000],
        end_ns=[T0 - 5, T0 + 55161, T0 + 500_001],
        duration_ns=[5.0, 55161.25, 1.0],
        name=["MEMCPY_ASYNC", "MatMul1", "MatMul1"],
        kind=["memcpy", "other", "other"],
        stream=[2, 2, 2],
        task_type=["SDMA_SQE", "AI_CORE", "AI_CORE"],
    )
    kernels, metrics = join_compute(tasks, rows)
    ALL_TABLES["kernels"].check(kernels)
    ALL_TABLES["kernel_metrics"].check(metrics)
    shown = kernels.select("name", "kind", "op_type", "task_id", "device", "duration_ns", "task_type").rows()
    assert shown == [
        ("MEMCPY_ASYNC", "memcpy", None, None, 0, 5.0, "SDMA_SQE"),
        ("MatMul1", "compute", "MatMul", 7, 0, 55161.25, "AI_CORE"),
        ("Dropout1", "compute", "DSA", 8, 0, 1005.0, None),  # in the csv only; the timeline names one device
        ("MatMul1", "other", None, None, 0, 1.0, "AI_CORE"),  # in the timeline only
    ]
    assert metrics.rows() == [(1, 9406.0, 100.0, 51.301)]


def test_two_kernels_of_one_name_and_start_keep_their_own_row(tmp_path):
    text = "Name,Type,Stream ID,Task ID,Start Time(us),Duration(us)\nk,A,1,1,5,1\nk,B,2,9,5,1\nk,C,3,4,5,1\n"
    rows = kernel_details.read([write(tmp_path, "k.csv", text)], quality=[])
    tasks = timeline(
        start_ns=[5000] * 3, name=["k"] * 3, stream=[3, 2, 7], task_id=[4, 9, 1], kind=["other"] * 3, duration_ns=[1.0] * 3
    )
    kernels, _ = join_compute(tasks, rows)
    assert kernels.select("stream", "op_type").rows() == [(3, "C"), (2, "B"), (7, "A")]


def test_metrics_follow_their_kernel_when_rows_are_sorted(tmp_path):
    text = "Device_id,Name,Start Time(us),Duration(us),aiv_time(us)\n1,a,9,1,0.5\n0,b,8,1,0.25\n0,c,7,1,N/A\n"
    kernels, metrics = join_compute(
        ALL_TABLES["kernels"].empty(), kernel_details.read([write(tmp_path, "k.csv", text)], quality=[])
    )
    assert kernels["name"].to_list() == ["c", "b", "a"]
    assert metrics.rows() == [(1, 250.0), (2, 500.0)]


def test_a_metric_with_two_units_is_read_once(tmp_path):
    text = "Name,Start Time(us),Duration(us),aiv_time(us),aiv_time(ns)\na,9,1,0.5,7\n"
    _, metrics = join_compute(ALL_TABLES["kernels"].empty(), kernel_details.read([write(tmp_path, "k.csv", text)], quality=[]))
    assert metrics.rows() == [(0, 500.0)]


def test_kernel_that_carries_out_a_collective_is_a_task(tmp_path):
    header = "Name,Accelerator Core,Start Time(us),Duration(us)"
    text = f"{header}\nallreduceAivKernel,COMMUNICATION,1,1\nhcom_allReduce__1_0_1,COMMUNICATION,1,1\n"
    rows = kernel_details.read([write(tmp_path, "k.csv", text)], quality=[])
    assert rows.compute.select("name", "kind").rows() == [("allreduceAivKernel", "communication")]
    assert rows.collectives["name"].to_list() == ["hcom_allReduce__1_0_1"]


def test_operators_only_in_the_csv_move_the_numbers_of_transfers(tmp_path):
    text = "Name,Type,Accelerator Core,Start Time(us),Duration(us)\nfirst,t,HCCL,1,1\nsecond,t,HCCL,5.000,1\n"
    rows = kernel_details.read([write(tmp_path, "k.csv", text)], quality=[]).on(0)
    operators = ALL_TABLES["collectives"].conform(
        pl.DataFrame({"device": [0], "start_ns": [5001], "end_ns": [6001], "name": ["second"]})
    )
    transfers = ALL_TABLES["transfers"].conform(pl.DataFrame({"device": [0, 0], "start_ns": [5001, 5002], "collective": [0, None]}))
    collectives, moved = join_collectives(operators, transfers, rows.collectives)
    # The timeline rounds what the csv cuts off: one nanosecond apart is the same operator.
    assert collectives.select("name", "start_ns", "op_type").rows() == [("first", 1000, "t"), ("second", 5001, "t")]
    assert moved["collective"].to_list() == [1, None]


def test_task_time_stands_in_for_a_timeline(tmp_path):
    text = (
        "Device_id,kernel_name,kernel_type,stream_id,task_id,task_time(us),task_start(us),task_stop(us)\n"
        "0,k,AI_CORE,2,1,1.5,10.000\t,11.500\t\n0,N/A,EVENT_RECORD_SQE,2,2,0.1,12.000\t,12.100\t\n0,N/A,MEMCPY_ASYNC,2,3,1,13.000\t,14.000\t\n"
    )
    tasks = task_time.read([write(tmp_path, "task_time_1.csv", text)], quality=[])
    assert tasks.select("name", "kind", "start_ns", "end_ns").rows() == [
        ("k", "compute", 10_000, 11_500), ("EVENT_RECORD_SQE", "event", 12_000, 12_100), ("MEMCPY_ASYNC", "memcpy", 13_000, 14_000),
    ]  # fmt: skip


def test_without_a_kernel_csv_named_tasks_on_a_core_are_compute():
    tasks = timeline(
        start_ns=[1, 2, 3], name=["MatMul1", "AI_CORE", "SDMA"], kind=["other"] * 3, task_type=["AI_CORE", "AI_CORE", "SDMA_SQE"]
    )
    assert guess_compute(tasks)["kind"].to_list() == ["compute", "other", "other"]


def test_memory_records_of_torch_npu(tmp_path):
    text = (
        "Component,Timestamp(us),Total Allocated(MB),Total Reserved(MB),Total Active(MB),Stream Ptr,Device Type\n"
        "APP,1.000\t,,2109.6015625,,,NPU:3\nPTA,2.000\t,1.5,4.0,1.25,1162636336,NPU:3\nPTA+GE,2.000\t,3.5,4.0,1.5,1162636336,NPU:3\n"
        "GE,2.500\t,2.0,4.0,,,NPU:3\nWORKSPACE,3.000\t,1,1,1,9223372036854775807,NPU:3\n"
    )
    events, samples = memory.read_records([write(tmp_path, "memory_record.csv", text)], quality=[])
    assert events.select(
        "component", "time_ns", "total_allocated", "total_active", "stream_ptr", "device", "device_type"
    ).rows() == [
        ("PTA", 2000, 1572864.0, 1310720.0, 1162636336, 3, "npu"),
        ("GE", 2500, 2097152.0, None, None, 3, "npu"),
        ("WORKSPACE", 3000, 1048576.0, 1048576.0, 9223372036854775807, 3, "npu"),
    ]
    assert samples.select("source", "name", "series", "device", "time_ns", "value").rows() == [
        ("NPU MEM", "APP/Memory", "KB", 3, 1000, 2160232.0)
    ]


def test_allocations_of_torch_npu(tmp_path):
    text = (
        "Name,Size(KB),Allocation Time(us),Release Time(us),Active Release Time(us),Duration(us),Active Duration(us),"
        "Allocation Total Allocated(MB),Allocation Total Reserved(MB),Allocation Total Active(MB),Release Total Allocated(MB),"
        "Release Total Reserved(MB),Release Total Active(MB),Stream Ptr,Device Type\n"
        "aten::empty,0.5,1.000\t,3.000\t,2.700\t,2.000\t,1.700\t,2.0,4.0,2.0,1.0,4.0,1.0,77,NPU:0\n"
        "aten::add,1,2.000\t,,,,,2.0,4.0,2.0,,,,77,NPU:0\n"
        "cann::Conv2D1,2,3.000\t,3.500\t,,0.5,,1,1,,1,1,,,NPU:0\n"
    )
    table = memory.read_allocations([write(tmp_path, "operator_memory.csv", text)], quality=[])
    names = ("name", "component", "bytes", "start_ns", "release_ns", "active_release_ns", "alloc_total_allocated", "stream_ptr")
    assert table.select(names).rows() == [
        ("aten::empty", "PTA", 512, 1000, 3000, 2700, 2097152.0, 77),
        ("aten::add", "PTA", 1024, 2000, None, None, 2097152.0, 77),
        ("Conv2D1", "GE", 2048, 3000, 3500, None, 1048576.0, None),
    ]


def test_allocations_of_msprof(tmp_path):
    text = (
        "Device_id,Name,Size(KB),Allocation Time(us),Duration(us),Allocation Total Allocated(KB),Allocation Total Reserved(KB),"
        "Release Total Allocated(KB),Release Total Reserved(KB),Device\n"
        "1,Conv2D1,2,3.000\t,0.5,10,20,8,20,NPU:1\n1,Open,4,4.000\t,N/A,14,20,N/A,N/A,NPU:1\n1,Gone,-8,5.000\t,N/A,1,1,N/A,N/A,NPU:1\n"
    )
    quality: list[pl.DataFrame] = []
    table = memory.read_allocations([write(tmp_path, "operator_memory_1.csv", text)], quality=quality)
    assert table.select("name", "component", "bytes", "start_ns", "release_ns", "alloc_total_allocated", "device").rows() == [
        ("Conv2D1", "GE", 2048, 3000, 3500, 10240.0, 1), ("Open", "GE", 4096, 4000, None, 14336.0, 1),
    ]  # fmt: skip
    assert rows_lost(quality) == [("allocated-before-recording", 1)]


def test_device_memory_samples(tmp_path):
    npu = "Device_id,event,ddr(KB),hbm(KB),memory(KB),timestamp(us)\n0,app,0.0,5.0,5.0,1.000\t\n0,device,1.0,6.0,7.0,1.000\t\n"
    samples = memory.read_samples([write(tmp_path, "npu_mem_1.csv", npu)], quality=[])
    assert sorted(samples.select(pl.col("name").cast(pl.String), "value").rows()) == [
        ("APP/DDR", 0.0), ("APP/HBM", 5.0), ("APP/Memory", 5.0), ("Device/DDR", 1.0), ("Device/HBM", 6.0), ("Device/Memory", 7.0),
    ]  # fmt: skip
    module = "Component,Timestamp(us),Total Reserved(MB),Device\nSLOG,1.000\t,0.5,NPU:2\nHCCL,1.000\t,-0.0009765625,NPU:2\n"
    modules = memory.read_modules([write(tmp_path, "npu_module_mem.csv", module)], quality=[])
    shown = modules.select(pl.col("name").cast(pl.String), "series", "value", "device").sort("name").rows()
    assert shown == [("HCCL", "Total Reserved(KB)", -1.0, 2), ("SLOG", "Total Reserved(KB)", 512.0, 2)]


def test_hardware_files(tmp_path):
    l2 = "Stream Id,Task Id,Hit Rate,Victim Rate,Op Name\n2,11062,N/A,0.213463,Conv\n2,11063,0.5,0.1,N/A\n"
    assert hardware.read_cache([write(tmp_path, "l2_cache.csv", l2)], "l2", quality=[], device=4).rows() == [
        ("l2", 4, 2, 11062, "Conv", None, 0.213463), ("l2", 4, 2, 11063, None, 0.5, 0.1),
    ]  # fmt: skip
    soc = "Device_id,Stream Id,Task Id,TLB Hit Rate,TLB Miss Rate,Op Name\n0,1,2,0.9,0.1,k\n"
    assert hardware.read_cache([write(tmp_path, "soc_pmu.csv", soc)], "tlb", quality=[]).rows() == [("tlb", 0, 1, 2, "k", 0.9, 0.1)]
    hccs = "Device_id,Mode,Max,Min,Average\n0,Tx (MB/s),3,1,2\n"
    assert hardware.read_links([write(tmp_path, "hccs.csv", hccs)], "HCCS", quality=[]).rows() == [
        ("HCCS", 0, "Tx (MB/s)", 1.0, 3.0, 2.0)
    ]
    nic = "Device_id,Timestamp(us),Bandwidth(MB/s),rxPacket/s,funcId\n0,1.000\t,200,7.5,1\n"
    ports = hardware.read_ports([write(tmp_path, "nic.csv", nic)], "NIC", quality=[])
    assert sorted(ports.select("source", "name", pl.col("series").cast(pl.String), "instance", "time_ns", "value").rows()) == [
        ("NIC", "Port 1", "Bandwidth(MB/s)", 1, 1000, 200.0), ("NIC", "Port 1", "rxPacket/s", 1, 1000, 7.5),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("header", "cells"),
    [
        pytest.param("Timestamp(us),Node,Compute_time(us),Memcpy_time(us),Task_time(us)", "5.5,Get,1500,3,2000", id="G3"),
        pytest.param("Timestamp,Node,Compute_time(ms),Memcpy_time,Task_time(ms)", "5.5,Get,1.5,3,2", id="G1"),
    ],
)
def test_aicpu_times_are_microseconds(tmp_path, header, cells):
    table = hardware.read_aicpu([write(tmp_path, "aicpu.csv", f"{header},Stream ID,Task ID\n{cells},1,2\n")], quality=[])
    assert table.select("time_ns", "node", "compute_us", "memcpy_us", "task_us", "stream", "task_id").rows() == [
        (5500, "Get", 1500.0, 3.0, 2000.0, 1, 2)
    ]


def test_slices_come_in_numeric_order_and_old_exports_are_left_out(tmp_path):
    output = tmp_path / "PROF_1" / msprof_output.OUTPUT
    output.mkdir(parents=True)
    (tmp_path / "PROF_1" / "device_5").mkdir()
    head = "Op Name,Task Start Time(us),Task Duration(us)\n"
    for name, kernel in (("slice_10", "c"), ("slice_2", "b"), ("slice_0", "a")):
        write(output, f"op_summary_{name}_20250109074803.csv", f"{head}{kernel},7,1\n")
    write(output, "op_summary_20240109074803.csv", f"{head}old,7,1\n")
    tables = msprof_output.read(tmp_path / "PROF_1").check()
    assert tables.kernels.select("name", "device", "kind").rows() == [("a", 5, "compute"), ("b", 5, "compute"), ("c", 5, "compute")]
    assert tables.facts.device_ids == (5,)
    assert tables.quality.select("source", "issue", "count").rows() == [("op_summary.csv", "further-files", 1)]


def test_capture_without_a_trace_is_read_from_csv_alone(tmp_path):
    write(tmp_path, "kernel_details.csv", G1)
    write(tmp_path, "npu_module_mem.csv", "Component,Timestamp(us),Total Reserved(MB),Device\nSLOG,1.000\t,0.5,NPU:2\n")
    tables = ascend_text.read(tmp_path, Facts(rank=1)).check()
    assert tables.kernels.select("name", "device", "kind").rows() == [("MatMul1", 2, "compute"), ("Dropout1", 2, "compute")]
    assert tables.collectives.select("name", "device").rows() == [("hcom_allReduce__271_0_1", 2)]
    facts = tables.facts
    assert (facts.source, facts.generation, facts.device_ids, facts.device_kind, facts.rank) == (
        "ascend_text",
        "G1",
        (2,),
        "npu",
        1,
    )


def test_metric_names_go_there_and_back():
    for columns in CSV_COLUMNS.values():
        for column in columns:
            name, factor = to_canonical(column)
            assert is_metric(column)
            assert "(" not in name
            assert to_csv(name) == (column, factor)
    assert to_canonical("aicore_time(us)") == ("aic_total_time", 1000.0)
    assert to_canonical("aic_l1_read_bw(GB/s)") == ("aic_l1_read_bw", 1.0)
    assert len(CSV_COLUMNS["PipeUtilization"]) == 25


def test_metric_set_by_setting_or_by_names():
    assert csv_columns("ACL_AICORE_L2_CACHE") == CSV_COLUMNS["L2Cache"]
    assert csv_columns("PipeUtilization") == CSV_COLUMNS["PipeUtilization"]
    assert (
        csv_columns("", {"aic_total_time", "aic_total_cycles", "aic_mac_ratio", "aiv_vec_time"}) == CSV_COLUMNS["PipeUtilization"]
    )
    assert csv_columns("", {"aiv_ub_read_bw"}) == CSV_COLUMNS["Memory"]
    assert csv_columns("", ()) == ()
