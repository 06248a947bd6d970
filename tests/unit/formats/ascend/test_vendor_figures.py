"""Figures of the vendor's analysis: read where the events are missing, never asked where they are there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from capture_rows import MAIN, kernels, op, ops, rows, steps, tables, task

from stepscope.analysis.communication.collectives import link_matrix
from stepscope.analysis.link.capture import link
from stepscope.analysis.operators import operator_calls, operator_summary
from stepscope.analysis.statistics import kernel_rows
from stepscope.analysis.step_time import device_time, step_times
from stepscope.capture import open_capture

STEPS = "Device_id,Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble\r\n"
OPERATORS = (
    "Name,Input Shapes,Call Stack,Host Self Duration(us),Host Total Duration(us),Device Self Duration(us),"
    "Device Total Duration(us),Device Self Duration With AICore(us),Device Total Duration With AICore(us)\r\n"
    'aten::mm,"""2,3;\r\n3,4""","a.py(1): f;\r\nb.py(2): g",1.5,2.5,10.001,20,7,8\r\n'
    "aten::mm,,,0.5,0.5,,odd,0,0\r\n"
)
KERNELS = (
    "Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Dim\r\n"
    "7,mm,MatMul,AI_CORE,100.500\t,2.250,0,4\r\n"
    "7,hcom_allReduce__1_0_1,N/A,HCCL,103.000\t,4,0,0\r\n"
    "8,mm,MatMul,AI_CORE,110.000\t,3,0,4\r\n"
)


def capture(folder: Path, files: dict[str, str]) -> Path:
    output = folder / "worker0_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    output.mkdir(parents=True)
    for name, text in files.items():
        (output / name).write_bytes(text.encode())
    return output.parent


def test_operator_details_alone(tmp_path):
    found = open_capture(capture(tmp_path, {"operator_details.csv": OPERATORS})).tables
    assert found.op_times.select("name", "shapes", "stack").rows() == [
        ("aten::mm", "2,3;3,4", "a.py(1): f;b.py(2): g"),
        ("aten::mm", None, None),
    ]
    assert found.op_times["device_self_ns"].to_list() == [10_001.0, 0.0]
    assert found.quality.filter(found.quality["issue"] == "unreadable-value")["count"].to_list() == [1]
    (row,) = operator_summary(found).rows(named=True)
    assert (row["name"], row["calls"], row["host_total_ns"], row["device_self_ns"]) == ("aten::mm", 2, 3000.0, 10_001.0)


def test_operators_of_a_timeline_go_before_the_figures():
    call = {"name": "aten::mm", "host_self_ns": 9.0}
    linked = link(tables(ops=ops(op("aten::add", 0, 10)), op_times=rows("op_times", call)))
    assert operator_calls(linked)["name"].to_list() == ["aten::add"]


def test_steps_of_the_csv_where_no_event_is_left(tmp_path):
    found = open_capture(
        capture(tmp_path, {"step_trace_time.csv": STEPS + "0,7,60,30,5,35,10,100,0\r\n0,8,50,20,5,25,30,100,0\r\n"})
    )
    assert step_times(found.tables).select("device", "step", "computing_ns").rows() == [(0, 7, 60_000.0), (0, 8, 50_000.0)]
    took = device_time(found.tables)
    assert (took.rows, took.whole_ns, took.exposed_share) == (2, 200_000.0, 0.25)
    assert took.communication_ns == 60_000.0


def test_steps_of_the_events_go_before_the_csv():
    made = link(
        tables(
            ops=ops(op("ProfilerStep#1", 0, 100), op("a", 10, 20)),
            kernels=kernels(task(50, 60, launch_ns=15, launch_tid=MAIN)),
            steps=steps((1, 0, 100)),
            step_times=rows("step_times", {"step": 1, "computing_ns": 5e6, "not_overlapped_ns": 0.0, "free_ns": 0.0}),
        )
    )
    assert step_times(made)["computing_ns"].to_list() == [10.0]


def test_steps_of_kernels_whose_timeline_is_missing(tmp_path):
    files = {"kernel_details.csv": KERNELS, "step_trace_time.csv": STEPS + ",7,6.25,0,0,0,1,7.25,0\r\n"}
    found = open_capture(capture(tmp_path, files)).tables
    assert kernel_rows(found).select("table", "step").rows() == [("kernels", 7), ("collectives", 7), ("kernels", 8)]
    assert step_times(found).select("step", "computing_ns", "free_ns").rows() == [(7, 6250.0, 1000.0)]


def test_matrix_of_the_file_where_no_transfer_is_left(tmp_path):
    values = {"Transport Type": "HCCS", "Transit Size(MB)": 2.0, "Transit Time(ms)": 0.5, "Bandwidth(GB/s)": 4.0}
    document = {"step7": {"p2p": {}, "collective": {"allreduce-top1@271": {"0-1": {**values, "Op Name": "hcom_x"}, "odd": 1}}}}
    found = open_capture(capture(tmp_path, {"communication_matrix.json": json.dumps(document)})).tables
    (row,) = link_matrix(found).rows(named=True)
    assert (row["operator_type"], row["tag"], row["group"], row["src_rank"], row["dst_rank"]) == ("allreduce", "top1", "271", 0, 1)
    assert (row["transport"], row["transit_mb"], row["bandwidth"], row["op_name"]) == ("HCCS", 2.0, 4.0, "hcom_x")


@pytest.mark.parametrize("text", ["", "[]", '{"step1": 3}', '{"step1": {"collective": {"a-top1@1": [1]}}}'])
def test_damaged_matrices_leave_the_other_files(tmp_path, text):
    found = open_capture(capture(tmp_path, {"communication_matrix.json": text, "kernel_details.csv": KERNELS})).tables
    assert (found.link_extremes.height, found.kernels.height) == (0, 2)
