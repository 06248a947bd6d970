"""Every csv file of a small capture, byte by byte (docs/formats/outputs.md 4 to 8, 10)."""

from __future__ import annotations

import polars as pl
import pytest
from capture_rows import collective, collectives, kernels, op, ops, rows, task

from stepscope.export import (
    flops_csv,
    hardware_csv,
    kernel_details,
    memory_csv,
    operator_details,
    statistics_csv,
    step_trace_time,
    task_time,
)
from stepscope.formats.ascend.metric_names import CSV_COLUMNS
from stepscope.render.csv_file import duration, in_own_quotes, quoted, rounded, whole_ns, write_csv
from stepscope.tables import ALL_TABLES, Facts, Tables

T = 1_700_000_000_000_000_000
AT = "1700000000000000"
LEVEL1 = Facts(device_kind="npu", level="Level1", generation="G3")


def lines(writer, folder, facts: Facts = LEVEL1, **frames) -> list[str]:
    """The lines of the file that the writer made; each must end in CRLF."""
    files = writer(Tables({"meta": facts.table(), **frames}), folder)
    assert len(files) == 1
    text = files[0].read_bytes().decode()
    assert text.endswith("\r\n")
    return text.split("\r\n")[:-1]


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("plain text", "plain text"),
        ("a,b", '"a,b"'),
        ('say "x"', '"say ""x"""'),
        ("two\r\nlines", '"two\r\nlines"'),
        ("", ""),
        ("a\tb", "a\tb"),
    ],
)
def test_quotes_only_where_needed(text, cell):
    assert quoted(text) == cell


def test_shapes_hold_quotes_of_their_own():
    assert in_own_quotes("32,3;64") == '"""32,3;64"""'
    assert in_own_quotes(";;") == '""";;"""'


@pytest.mark.parametrize(
    ("ns", "shown"),
    [
        pytest.param(22_580, "22.58", id="no-noise-in-the-last-digit"),
        pytest.param(1_452_000, "1452.0", id="whole"),
        pytest.param(828_336.53125, "828.33653125", id="below-a-nanosecond"),
        pytest.param(24_800.500000000004, "24.8005", id="left-over-of-a-conversion"),
        pytest.param(None, "", id="none"),
    ],
)
def test_microseconds(tmp_path, ns, shown):
    values = pl.Series([ns, 1])
    [path] = write_csv(tmp_path / "a.csv", values.to_frame("t"), [duration("t", values)])
    assert path.read_bytes() == f"t\r\n{shown}\r\n0.001\r\n".encode()


def test_half_a_nanosecond_follows_the_float_of_microseconds():
    assert whole_ns(pl.Series([24_220.5, 23_320.5, 7.4, 7.6, None])).to_list() == [24_221.0, 23_320.0, 7.0, 8.0, None]


def test_rounded_to_three_digits(tmp_path):
    values = pl.Series([1_234.4, None])
    [path] = write_csv(tmp_path / "a.csv", values.to_frame("t"), [rounded("t", values, "N/A")])
    assert path.read_bytes() == b"t\r\n1.234\r\nN/A\r\n"


KERNEL = {
    "op_type": "MatMulV2",
    "op_state": "dynamic",
    "core": "AI_CORE",
    "model_id": None,
    "task_id": 11,
    "block_num": 20,
    "mix_block_num": 0,
    "hf32": "NO",
    "input_shapes": "2,3;3,4",
    "input_dtypes": "FLOAT;FLOAT",
    "input_formats": "ND;ND",
    "output_shapes": "2,4",
    "output_dtypes": "FLOAT",
    "output_formats": "ND",
}


def counters(**known: str) -> str:
    """Cells of all counters of PipeUtilization; those that a capture lacks are not known."""
    return ",".join(known.get(title, "N/A") for title in CSV_COLUMNS["PipeUtilization"])


def test_kernel_details_of_level_1(tmp_path):
    table = kernels(task(T, T + 55_161, duration_ns=55_161.0625, **KERNEL), task(T + 161_403, T + 170_000, core="DSA_SQE"))
    metrics = ALL_TABLES["kernel_metrics"].conform(
        pl.DataFrame({"kernel": [0], "aic_total_time": [50_078.4], "aic_total_cycles": [2884518.0], "aic_mac_ratio": [0.1884]})
    )
    comm = collectives(collective(T + 60_000, T + 160_000, op_type="hcom_allReduce_", duration_ns=100_000.9))
    step = rows("steps", {"step": 5, "start_ns": T, "end_ns": T, "device_start_ns": T, "device_end_ns": T + 60_000})
    facts = LEVEL1.replace(aic_metrics="PipeUtilization")
    assert lines(kernel_details.write, tmp_path, facts, kernels=table, kernel_metrics=metrics, collectives=comm, steps=step) == [
        (
            "Step Id,Device_id,Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,Start Time(us),Duration(us),"
            "Wait Time(us),Block Num,Mix Block Num,HF32 Eligible,Input Shapes,Input Data Types,Input Formats,Output Shapes,"
            "Output Data Types,Output Formats,Context ID," + ",".join(CSV_COLUMNS["PipeUtilization"])
        ),
        (
            f'5,0,4294967295,11,2,MatMul,MatMulV2,dynamic,AI_CORE,{AT}.000\t,55.161,0,20,0,NO,"""2,3;3,4""",FLOAT;FLOAT,ND;ND,'
            '"""2,4""",FLOAT,ND,N/A,'
            + counters(**{"aicore_time(us)": "50.078", "aic_total_cycles": "2884518", "aic_mac_ratio": "0.188"})
        ),
        (
            f"5,0,4294967295,N/A,N/A,hcom_allReduce__271_0_1,hcom_allReduce_,N/A,COMMUNICATION,{AT[:-2]}60.000\t,100.0,4.839,0,N/A,N/A,"
            "N/A,N/A,N/A,N/A,N/A,N/A,N/A," + counters()
        ),
        (
            f",0,4294967295,N/A,2,MatMul,N/A,N/A,DSA_SQE,{AT[:-3]}161.403\t,8.597,1.403,0,N/A,N/A,"
            "N/A,N/A,N/A,N/A,N/A,N/A,N/A," + counters()
        ),
    ]


def test_kernel_details_of_level_0_is_short_and_without_step_column(tmp_path):
    comm = collectives(collective(T + 30, T + 50, op_type="hcom_allReduce_"))
    assert lines(
        kernel_details.write, tmp_path, LEVEL1.replace(level="Level0"), kernels=kernels(task(T, T + 20)), collectives=comm
    ) == [
        "Device_id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Num",
        f"0,MatMul,N/A,N/A,{AT}.000\t,0.02,0,0",
        f"0,hcom_allReduce__271_0_1,N/A,COMMUNICATION,{AT}.030\t,0.02,0.01,0",
    ]


def test_kernel_details_without_a_level_has_all_columns_where_any_type_is_known(tmp_path):
    comm = collectives(collective(T + 30, T + 50, op_type="hcom_allReduce_"))
    found = lines(kernel_details.write, tmp_path, LEVEL1.replace(level=""), kernels=kernels(task(T, T + 20)), collectives=comm)
    assert found[0].startswith("Device_id,Model ID,Task ID,Stream ID,Name,Type,OP State,")
    assert found[2].startswith("0,4294967295,N/A,N/A,hcom_allReduce__271_0_1,hcom_allReduce_,")


def test_operator_details_has_zero_without_point_where_nothing_ran(tmp_path):
    table = ops(
        op("aten::mm, odd", T, T + 10_500, shapes="2,3;;", stack="a.py(1): f;b.py(2): g"),
        op("aten::t", T + 500, T + 1_000, parent=0),
    )
    kernel = task(T + 20_000, T + 55_000, op=0, task_type="AI_CORE")
    assert lines(operator_details.write, tmp_path, ops=table, kernels=kernels(kernel)) == [
        (
            "Name,Input Shapes,Call Stack,Host Self Duration(us),Host Total Duration(us),Device Self Duration(us),"
            "Device Total Duration(us),Device Self Duration With AICore(us),Device Total Duration With AICore(us)"
        ),
        '"aten::mm, odd","2,3;',
        ";",
        '","a.py(1): f;',
        'b.py(2): g",10.0,10.5,35.0,35.0,35.0,35.0',
        "aten::t,,,0.5,0.5,0,0,0,0",
    ]


def test_flops_by_operator_and_by_step(tmp_path):
    table = ops(
        op("ProfilerStep#7", T, T + 35, scope=7),
        op("aten::mm", T, T + 10, flops=4_000),
        op("aten::mm", T + 20, T + 30, flops=2_000),
        op("aten::t", T + 40, T + 50),
        op("aten::add", T + 60, T + 61, flops=3),
    )
    step = rows("steps", {"step": 7, "pid": 1, "start_ns": T, "end_ns": T + 35})
    device = kernels(task(T, T + 1, op=1, duration_ns=1_000.0), task(T + 2, T + 3, op=2, duration_ns=1_000.0))
    written = flops_csv.write(Tables({"ops": table, "steps": step, "kernels": device}), tmp_path)
    assert [path.name for path in written] == ["operator_flops.csv", "step_flops.csv"]
    assert written[0].read_text() == "Name,Calls,FLOPs,FLOPs/s\naten::mm,2,6000,3000000000.0\naten::add,1,3,\n"
    assert written[1].read_text() == "Step,FLOPs,Duration(us),FLOPs/s\n7,6000,0.035,171428571428.57144\n"


def test_flops_per_second_of_the_host_where_there_is_no_device(tmp_path):
    table = ops(op("aten::mm", T, T + 10, flops=4_000))
    [path] = flops_csv.write(Tables({"ops": table}), tmp_path)
    assert path.read_text() == "Name,Calls,FLOPs,FLOPs/s\naten::mm,1,4000,400000000000.0\n"
    assert flops_csv.write(Tables({"ops": ops(op("aten::mm", T, T + 10))}), tmp_path) == []


def test_statistics(tmp_path):
    table = kernels(
        *(
            task(T + at, T + at + length, op_type=kind, core="AI_CORE")
            for at, length, kind in ((0, 1_001, "Add"), (2_000, 1_002, "Add"), (4_000, 6_009, "Mul"))
        )
    )
    assert lines(statistics_csv.write_op_statistic, tmp_path, kernels=table) == [
        "Device_id,OP Type,Core Type,Count,Total Time(us),Min Time(us),Avg Time(us),Max Time(us),Ratio(%)",
        "0,Mul,AI_CORE,1,6.009,6.009,6.009,6.009,75.0",
        "0,Add,AI_CORE,2,2.003,1.001,1.001,1.002,25.0",
    ]
    calls = rows(
        "api_calls",
        *(
            {"tid": 1, "start_ns": T + at, "end_ns": T + at + length, "level": "acl", "name": "aclnnAdd"}
            for at, length in ((0, 1_000), (2_000, 4_000))
        ),
    )
    assert lines(statistics_csv.write_api_statistic, tmp_path, api_calls=calls) == [
        "Device_id,Level,API Name,Time(us),Count,Avg(us),Min(us),Max(us),Variance",
        "host,acl,aclnnAdd,5.0,2,2.5,1.0,4.0,2.25",
    ]


def test_step_trace_time(tmp_path):
    step = rows("steps", {"step": 5, "start_ns": T - 500, "end_ns": T, "device_start_ns": T, "device_end_ns": T + 9_000})
    frames = {
        "kernels": kernels(task(T, T + 1_000), task(T + 3_000, T + 4_500)),
        "collectives": collectives(collective(T + 500, T + 2_000)),
    }
    assert lines(step_trace_time.write, tmp_path, steps=step, **frames) == [
        (
            "Device_id,Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,"
            "Communication(Not Overlapped and Exclude Receive),Preparing"
        ),
        "0,5,2.5,1.0,0.5,1.5,1.0,4.5,0,1.0,0.5",
    ]
    assert lines(step_trace_time.write, tmp_path, **frames)[1] == "0,,2.5,1.0,0.5,1.5,1.0,4.5,0,1.0,0"


MEGA = 1024 * 1024
EVENT = {"pid": 7, "tid": 1, "device_type": "npu", "device": 0}


def test_memory_record(tmp_path):
    events = rows(
        "memory_events",
        {
            **EVENT,
            "time_ns": T,
            "component": "PTA",
            "total_allocated": 2.5 * MEGA,
            "total_reserved": 4.0 * MEGA,
            "total_active": 3.0 * MEGA,
            "stream_ptr": 77,
        },
        {**EVENT, "time_ns": T + 1, "component": "GE", "total_allocated": 1.0 * MEGA, "total_reserved": 2.0 * MEGA},
    )
    samples = rows(
        "counters", {"source": "NPU MEM", "name": "APP/Memory", "series": "KB", "device": 0, "time_ns": T + 2, "value": 2048.0}
    )
    assert lines(memory_csv.write_memory_record, tmp_path, memory_events=events, counters=samples) == [
        "Component,Timestamp(us),Total Allocated(MB),Total Reserved(MB),Total Active(MB),Stream Ptr,Device Type",
        f"APP,{AT}.002\t,,2.0,,,NPU:0",
        f"PTA,{AT}.000\t,2.5,4.0,3.0,77,NPU:0",
        f"PTA+GE,{AT}.000\t,2.5,4.0,3.0,77,NPU:0",
        f"GE,{AT}.001\t,1.0,2.0,,,NPU:0",
        f"PTA+GE,{AT}.001\t,3.5,6.0,3.0,77,NPU:0",
    ]


def test_operator_memory(tmp_path):
    block = {"device_type": "npu", "device": 0, "bytes": 1536, "alloc_total_allocated": 1.0 * MEGA}
    table = rows(
        "allocations",
        {**block, "start_ns": T, "component": "GE", "name": "Conv2D1", "release_ns": T + 1_500},
        {
            **block,
            "start_ns": T + 10,
            "component": "PTA",
            "name": "aten::empty",
            "release_ns": T + 12_010,
            "active_release_ns": T + 12_000,
            "release_total_active": 0.5 * MEGA,
            "stream_ptr": 77,
        },
        {**block, "start_ns": T + 20, "component": "PTA"},
    )
    assert lines(memory_csv.write_operator_memory, tmp_path, allocations=table) == [
        (
            "Name,Size(KB),Allocation Time(us),Release Time(us),Active Release Time(us),Duration(us),Active Duration(us),"
            "Allocation Total Allocated(MB),Allocation Total Reserved(MB),Allocation Total Active(MB),Release Total Allocated(MB),"
            "Release Total Reserved(MB),Release Total Active(MB),Stream Ptr,Device Type"
        ),
        f"aten::empty,1.5,{AT}.010\t,{AT[:-2]}12.010\t,{AT[:-2]}12.000\t,12.000\t,11.990\t,1.0,,,,,0.5,77,NPU:0",
        f",1.5,{AT}.020\t,,,,,1.0,,,,,,,NPU:0",
        f"cann::Conv2D1,1.5,{AT}.000\t,{AT[:-1]}1.500\t,,1.5,,1.0,,,,,,,NPU:0",
    ]


def test_module_memory_in_the_order_of_the_components(tmp_path):
    sample = {"source": "NPU Module Mem", "series": "Total Reserved(KB)", "device": 1, "time_ns": T}
    table = rows(
        "counters",
        *({**sample, "name": name, "value": value} for name, value in (("RUNTIME", 512.0), ("HCCL", -1.0), ("SLOG", 0.0))),
    )
    assert lines(memory_csv.write_module_memory, tmp_path, counters=table) == [
        "Device_id,Component,Timestamp(us),Total Reserved(MB),Device",
        f"1,SLOG,{AT}.000\t,0.0,NPU:1",
        f"1,HCCL,{AT}.000\t,-0.0009765625,NPU:1",
        f"1,RUNTIME,{AT}.000\t,0.5,NPU:1",
    ]


def test_cache_rates(tmp_path):
    rate = {"kind": "l2", "device": 0, "stream": 2, "task_id": 11, "op_name": "Add", "other_rate": 0.0666084}
    table = rows("cache_rates", rate, {**rate, "kind": "tlb", "hit_rate": 0.5, "op_name": None})
    assert lines(hardware_csv.write_l2_cache, tmp_path, cache_rates=table) == [
        "Device_id,Stream Id,Task Id,Hit Rate,Victim Rate,Op Name",
        "0,2,11,N/A,0.066608,Add",
    ]
    assert lines(hardware_csv.write_soc_pmu, tmp_path, cache_rates=table) == [
        "Device_id,Stream Id,Task Id,TLB Hit Rate,TLB Miss Rate,Op Name",
        "0,2,11,0.5,0.066608,N/A",
    ]


def test_data_preprocess_and_task_time(tmp_path):
    table = rows(
        "aicpu_tasks",
        {
            "device": 0,
            "time_ns": T,
            "node": "GetNext",
            "compute_us": 1.5,
            "memcpy_us": 0.25,
            "task_us": 2.0,
            "dispatch_us": 3.0,
            "total_us": 4.12345,
            "stream": 1,
            "task_id": 2,
        },
    )
    assert lines(hardware_csv.write_data_preprocess, tmp_path, aicpu_tasks=table) == [
        (
            "Device_id,Timestamp(us),Node,Compute_time(us),Memcpy_time(us),Task_time(us),Dispatch_time(us),Total_time(us),"
            "Stream ID,Task ID"
        ),
        f"0,{AT}.000\t,GetNext,1.5,0.25,2.0,3.0,4.123,1,2",
    ]
    assert lines(task_time.write, tmp_path, kernels=kernels(task(T, T + 1_500, task_type="AI_CORE", task_id=3))) == [
        "Device_id,kernel_name,kernel_type,stream_id,task_id,task_time(us),task_start(us),task_stop(us)",
        f"0,MatMul,AI_CORE,2,3,1.500,{AT}.000\t,{AT[:-1]}1.500\t",
    ]


def test_links_from_their_summary_or_from_samples(tmp_path):
    summary = rows("link_summary", {"source": "HCCS", "device": 0, "mode": "Tx (MB/s)", "min": 1.0, "max": 3.0, "avg": 2.0})
    assert lines(hardware_csv.write_hccs, tmp_path, link_summary=summary) == [
        "Device_id,Mode,Max,Min,Average",
        "0,Tx (MB/s),3.0,1.0,2.0",
    ]
    samples = rows(
        "counters",
        *(
            {"source": "PCIe", "name": "PCIe_post", "series": way, "device": 0, "time_ns": T + at, "value": value}
            for way, at, value in (("Tx", 0, 1.0), ("Tx", 1, 2.0), ("Rx", 0, 7.0))
        ),
    )
    assert lines(hardware_csv.write_pcie, tmp_path, counters=samples) == [
        "Device_id,Mode,Min,Max,Avg",
        "0,Tx_p_avg(MB/s),1.0,2.0,1.5",
        "0,Rx_p_avg(MB/s),7.0,7.0,7.0",
    ]


def test_network_ports_have_one_row_per_sample(tmp_path):
    sample = {"source": "RoCE", "device": 0}
    samples = rows(
        "counters",
        *({**sample, "name": "Port 3/Rx", "series": "Rx Packets", "time_ns": T + at, "value": 5.0 + at} for at in (0, 1)),
        {**sample, "name": "Port 3/Tx", "series": "Tx Error Rate", "time_ns": T, "value": 0.5},
    )
    assert lines(hardware_csv.write_roce, tmp_path, counters=samples) == [
        (
            "Device_id,Timestamp(us),Bandwidth(MB/s),Rx Bandwidth efficiency(%),rxPacket/s,rxError rate(%),rxDropped rate(%),"
            "Tx Bandwidth efficiency(%),txPacket/s,txError rate(%),txDropped rate(%),funcId"
        ),
        f"0,{AT}.000\t,N/A,N/A,5.0,N/A,N/A,N/A,N/A,0.5,N/A,3",
        f"0,{AT}.001\t,N/A,N/A,6.0,N/A,N/A,N/A,N/A,N/A,N/A,3",
    ]
