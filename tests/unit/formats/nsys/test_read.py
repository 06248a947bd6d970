# SPDX-License-Identifier: Apache-2.0
"""Exports of Nsight Systems, a few rows at a time (docs/formats/nsys.md)."""

from __future__ import annotations

import pytest
from nsys_files import CLOCK_NS, EPOCH_NS, Text, call, kernel, make_export, nvtx, owner
from werkzeug.test import Client

from stepscope import cli
from stepscope.capture import open_capture
from stepscope.errors import CaptureError
from stepscope.formats.discover import find
from stepscope.formats.nsys.read import read
from stepscope.web.app import App
from stepscope.web.catalogue import Catalogue
from stepscope.web.request import Settings

KERNELS, RUNTIME, NVTX = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"


@pytest.fixture
def export(tmp_path):
    return lambda tables, **more: make_export(tmp_path / "a.sqlite", tables, **more)


def issues(tables):
    return {(row["issue"], row["detail"]): row["count"] for row in tables.quality.to_dicts()}


def test_a_kernel_with_its_launch_and_operator(export):
    path = export(
        {
            KERNELS: [kernel(6_100, 6_300, "void gemm<float>(int)", correlation=9, gridX=4, gridY=2, mangledName=Text("_Zg"))],
            RUNTIME: [call(6_020, 6_030, "cudaLaunchKernel_v7000", correlation=9)],
            NVTX: [nvtx(6_000, 6_050, "aten::mm, seq = 3, op_id = 12, sizes = [[2, 3], [3, 4]]")],
        }
    )
    capture = open_capture(path)
    (row,) = capture.kernels.to_dicts()
    base = EPOCH_NS - CLOCK_NS
    assert (row["name"], row["kernel_name"], row["kind"], row["device"], row["stream"]) == (
        "void gemm<float>(int)",
        "_Zg",
        "compute",
        0,
        7,
    )
    assert (row["start_ns"], row["end_ns"], row["duration_ns"]) == (base + 6_100, base + 6_300, 200.0)
    assert (row["grid"], row["block_num"], row["registers"]) == ("4,2,1", 8, 8)
    assert (row["launch_ns"], row["launch_tid"], row["op"]) == (base + 6_020, 1, 0)
    (op,) = capture.ops.to_dicts()
    assert (op["name"], op["seq"], op["shapes"], op["scope"]) == ("aten::mm", 3, "2,3;3,4", 0)
    assert capture.api_calls.select("name", "level").rows() == [("cudaLaunchKernel", "cuda_runtime")]
    assert (capture.facts.source, capture.facts.device_kind) == ("nsys", "cuda")


def test_two_processes_with_the_same_correlation_id(export):
    path = export(
        {
            KERNELS: [kernel(10, 20, "a", pid=1, correlation=5), kernel(11, 21, "b", pid=2, device=1, correlation=5)],
            RUNTIME: [call(1, 2, "cudaLaunchKernel", pid=1, correlation=5), call(3, 4, "cudaLaunchKernel", pid=2, correlation=5)],
        }
    )
    base = EPOCH_NS - CLOCK_NS
    found = open_capture(path).kernels.select("name", "launch_ns", "launch_tid").rows()
    assert found == [("a", base + 1, 1), ("b", base + 3, 2)]


def test_devices_that_a_process_numbers_by_itself(export):
    """With CUDA_VISIBLE_DEVICES every process calls its GPU device 0."""
    path = export(
        {
            KERNELS: [kernel(10, 20, "a", pid=1), kernel(11, 21, "b", pid=2)],
            "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": [
                {"start": 1, "end": 2, "deviceId": 0, "contextId": 2, "streamId": 4294967295, "globalPid": owner(2), "syncType": 4}
            ],
            "TARGET_INFO_CUDA_DEVICE": [{"gpuId": 3, "cudaId": 0, "pid": 1}, {"gpuId": 6, "cudaId": 0, "pid": 2}],
            "TARGET_INFO_GPU": [{"id": 3, "name": "NVIDIA H100", "smCount": 132}],
        }
    )
    tables = read(path)
    assert tables.kernels.select("device", "name", "kind", "stream").rows() == [(3, "a", "compute", 7), (6, "b", "compute", 7)]
    assert tables.waits.select("device", "name", "stream").rows() == [(6, "Context sync", None)]
    assert tables.facts.device_names == {"3": "NVIDIA H100"}


def test_copies_fills_graphs_and_collectives(export):
    place = {"deviceId": 0, "contextId": 1, "streamId": 7, "globalPid": owner(1)}
    path = export(
        {
            KERNELS: [kernel(50, 90, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)")],
            "CUPTI_ACTIVITY_KIND_MEMCPY": [
                {"start": 10, "end": 20, "bytes": 64, "copyKind": 1} | place,
                {"start": 21, "end": 22, "bytes": 8, "copyKind": 99} | place,
            ],
            "CUPTI_ACTIVITY_KIND_MEMSET": [{"start": 25, "end": 26, "bytes": 4} | place],
            "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": [{"start": 30, "end": 40, "graphId": 12} | place],
        }
    )
    tables = read(path)
    assert tables.kernels.select("name", "kind", "bytes", "copy_direction").rows()[:4] == [
        ("Memcpy host to device", "memcpy", 64, "host to device"),
        ("Memcpy unknown direction", "memcpy", 8, None),
        ("Memset", "memset", 4, None),
        ("CUDA graph 12", "compute", None, None),
    ]
    assert tables.kernels["kind"][4] == "communication"
    assert tables.collectives.select("op_type", "alg_type", "kernel", "stream").rows() == [("allreduce", "RING", 4, 7)]


def test_ranges_of_the_user_and_of_libraries(export):
    path = export(
        {
            NVTX: [
                nvtx(0, None, "NCCL", kind=75, domain=1),
                nvtx(1, 100, "forward"),
                nvtx(2, 50, "FSDP::pre_forward (block 1), op_id = 4"),
                nvtx(3, 9, "ncclAllReduce", domain=1),
                nvtx(4, None, "checkpoint", kind=34, category=2),
                nvtx(5, 70, "copy", kind=60, rangeId=8, endGlobalTid=owner(1, 44)),
                nvtx(6, None, "never closed"),
                nvtx(7, 8, "aten::add, op_id = 5, sizes = [[], [8]]", textId=None),
                nvtx(7, 8, None, textId=Text("registered")),
            ]
        }
    )
    tables = read(path)
    assert tables.ops.select("name", "scope", "shapes").rows() == [
        ("forward", 7, None), ("FSDP::pre_forward (block 1)", 0, None), ("aten::add", 0, ";8"), ("registered", 7, None)
    ]  # fmt: skip
    assert tables.marks.select("message", "kind", "domain", "range_id", "category", "end_tid").rows() == [
        ("ncclAllReduce", "push/pop", "NCCL", None, None, 1),
        ("checkpoint", "marker", None, None, 2, 1),
        ("copy", "start/end", None, 8, None, 44),
    ]
    assert issues(tables) == {("start-without-end", NVTX): 1}


def test_what_is_not_shown_is_counted(export):
    path = export({KERNELS: [kernel(1, 2, "a")], "GPU_METRICS": [{"timestamp": 1, "value": 3}] * 5, "ENUM_X": [{"start": 1}]})
    assert issues(read(path)) == {("unsupported-kind", "GPU_METRICS"): 5}


@pytest.mark.parametrize(
    ("tables", "clock", "start"),
    [
        pytest.param({}, True, EPOCH_NS - CLOCK_NS + 10, id="clock-of-the-session"),
        pytest.param({"META_DATA_EXPORT": [{"name": "EXPORT_PARAM_TIME_NORMALIZE", "value": "true"}]}, True, 10, id="normalized"),
        pytest.param({"ANALYSIS_DETAILS": [{"startTime": EPOCH_NS, "stopTime": EPOCH_NS + 9}]}, True, 10, id="on-the-epoch"),
        pytest.param({}, False, 10, id="unknown"),
    ],
)
def test_clock(export, tables, clock, start):
    found = read(export({KERNELS: [kernel(10, 20, "a")], **tables}, clock=clock))
    assert found.kernels["start_ns"].to_list() == [start]
    assert (("incomplete-clock", "no time of day of the start") in issues(found)) == (not clock)


def test_rows_that_cannot_be_are_left_out_and_counted(export):
    rows = [kernel(1, 2, "a"), kernel(5, 3, "b"), kernel(-4, 3, "c"), kernel(1 << 62, (1 << 62) + 1, "d"), kernel(1, None, "e")]
    tables = read(export({KERNELS: rows}))
    assert tables.kernels["name"].to_list() == ["a"]
    assert sum(count for (issue, _), count in issues(tables).items() if issue in ("incomplete-row", "ends-before-start")) == 4


def test_numbers_too_large_for_a_column(export):
    huge = kernel(1, 2, "a", device=1 << 40, correlation=-3, gridX=1 << 31, gridY=1 << 31, gridZ=1 << 31)
    (row,) = read(export({KERNELS: [huge]})).kernels.to_dicts()
    assert (row["device"], row["connection_id"], row["block_num"]) == (None, None, None)


def test_another_database(export, tmp_path):
    with pytest.raises(CaptureError, match="not an export of Nsight Systems") as caught:
        read(export({"people": [{"name": "x"}]}, clock=False))
    assert "people" in str(caught.value.cause)
    with pytest.raises(CaptureError, match="no event"):
        read(make_export(tmp_path / "b.sqlite", {KERNELS: []}))


def test_a_report_that_was_not_exported(tmp_path):
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(b"\x00")
    with pytest.raises(CaptureError, match="must be exported") as caught:
        open_capture(report).load()
    assert f"nsys export --type sqlite {report}" in caught.value.fix
    make_export(tmp_path / "run.sqlite", {KERNELS: [kernel(1, 2, "a")]})
    assert [files.root.name for files in find(tmp_path)] == ["run.sqlite"]


def test_on_the_page_and_in_commands(tmp_path, capsys):
    folder = tmp_path / "runs"
    folder.mkdir()
    path = make_export(folder / "worker7.sqlite", {KERNELS: [kernel(1, 2_000, "gemm")]})
    assert cli.main(["analyse", str(path)]) == 0
    assert (folder / "worker7_stepscope" / "kernel_details.csv").is_file()
    assert cli.main(["top", str(path), "--by", "kernel", "--json"]) == 0
    assert '"gemm"' in capsys.readouterr().out
    catalogue = Catalogue([folder])
    client = Client(App(catalogue, Settings()))
    (run,) = client.get("/api/v1/runs").json["runs"]
    assert [worker["name"] for worker in run["workers"]] == ["worker7"]
    assert client.get("/api/v1/overview?wait=20").status_code == 200
    assert client.get("/api/v1/trace/slice?table=kernels&row=0").json["name"] == "gemm"
    catalogue.close()
