# SPDX-License-Identifier: Apache-2.0
"""Results of rocprofv3, a few records at a time (docs/formats/rocprof.md)."""

from __future__ import annotations

import pytest
from rocprof_files import CPU, GPU, dispatch, process, record, write
from werkzeug.test import Client

from stepscope import cli
from stepscope.capture import open_capture
from stepscope.errors import CaptureError
from stepscope.formats.rocprof.read import read
from stepscope.web.app import App
from stepscope.web.catalogue import Catalogue
from stepscope.web.request import Settings


def issues(tables):
    found = {(row["issue"], row["detail"]): row["count"] for row in tables.quality.to_dicts()}
    assert found.pop(("incomplete-clock", "times count from the start of the machine")) == 1
    return found


@pytest.mark.parametrize("indent", [None, 1], ids=["compact", "pretty-printed"])
def test_a_kernel_with_its_launch_and_operator(tmp_path, indent):
    path = write(
        tmp_path / "7_results.json",
        process(
            kernels={8: 'void "gemm"<[4]>'},
            marks={2: "aten::mm, seq = 4, op_id = 3, sizes = [[2, 3], []]"},
            kernel_dispatch=[dispatch(100, 160, 8, identity=1)],
            hip_api=[record("HIP_RUNTIME_API", 0, 50, 60, identity=1)],
            marker_api=[record("MARKER_CORE_RANGE_API", 1, 40, 70, identity=2)],
        ),
        indent=indent,
    )
    capture = open_capture(path)
    (row,) = capture.kernels.to_dicts()
    assert (row["name"], row["kernel_name"], row["kind"]) == ('void "gemm"<[4]>', 'void "gemm"<[4]>', "compute")
    assert (row["device"], row["stream"], row["pid"], row["start_ns"], row["end_ns"]) == (4, 5, 7, 100, 160)
    assert (row["grid"], row["block"], row["block_num"], row["registers"], row["shared_memory"]) == ("3,2,1", "64,1,1", 6, 24, 16)
    assert (row["launch_ns"], row["launch_tid"], row["op"]) == (50, 7, 0)
    assert capture.ops.select("name", "seq", "shapes", "scope").rows() == [("aten::mm", 4, "2,3;", 0)]
    assert capture.api_calls.select("name", "level").rows() == [("hipLaunchKernel", "hip_runtime")]
    facts = capture.facts
    assert (facts.device_kind, facts.device_names, facts.host_name, facts.process_name) == (
        "rocm", {"4": "AMD Instinct MI350X"}, "box", "python3"
    )  # fmt: skip


def test_copies_collectives_and_kernels_of_the_runtime(tmp_path):
    copy = {"src_agent_id": {"handle": CPU}, "dst_agent_id": {"handle": GPU}, "bytes": 4096}
    path = write(
        tmp_path / "a.json",
        process(
            kernels={
                1: "ncclDevKernel_AllReduce_Sum_f32_RING_LL()",
                2: "__amd_rocclr_copyBuffer",
                3: "__amd_rocclr_fillBufferAligned",
            },
            kernel_dispatch=[dispatch(20, 30, 1), dispatch(31, 32, 2), dispatch(33, 34, 3), dispatch(35, 36, 99)],
            memory_copy=[record("MEMORY_COPY", 2, 10, 15, **copy)],
        ),
    )
    tables = read(path)
    assert tables.kernels.select("name", "kind", "device").rows() == [
        ("Memcpy host to device", "memcpy", 4),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL()", "communication", 4),
        ("__amd_rocclr_copyBuffer", "memcpy", 4),
        ("__amd_rocclr_fillBufferAligned", "memset", 4),
        ("kernel 99", "compute", 4),
    ]
    assert tables.kernels["bytes"][0] == 4096
    assert tables.collectives.select("op_type", "kernel").rows() == [("allreduce", 1)]
    assert issues(tables) == {("unnamed-kind", "kernel_id without a symbol"): 1}


def test_two_processes_with_the_same_correlation_id(tmp_path):
    def one(pid, start):
        calls = [record("HIP_RUNTIME_API", 0, start, start + 1, identity=1, thread_id=pid)]
        return process(
            pid=pid, kernels={1: f"k{pid}"}, kernel_dispatch=[dispatch(start + 5, start + 9, 1, identity=1)], hip_api=calls
        )

    kernels = open_capture(write(tmp_path / "a.json", one(7, 10), one(8, 100))).kernels
    assert kernels.select("name", "launch_ns", "launch_tid").rows() == [("k7", 10, 7), ("k8", 100, 8)]


def test_marks_and_ranges(tmp_path):
    marks = {1: "here", 2: "epoch 1", 3: "forward"}
    events = [record("MARKER_CORE_RANGE_API", operation, 10, 10 + 20 * operation, identity=identity)
              for operation, identity in ((0, 1), (2, 2), (1, 3))]  # fmt: skip
    tables = read(write(tmp_path / "a.json", process(marks=marks, marker_api=events)))
    assert tables.marks.select("message", "kind").rows() == [("here", "marker"), ("epoch 1", "start/end")]
    assert tables.ops.select("name", "scope").rows() == [("forward", 7)]


def test_what_is_not_shown_or_cannot_be_is_counted(tmp_path):
    bad = [dispatch(20, 10, 1), dispatch(-5, 10, 1), dispatch(1 << 62, 1 << 62, 1), dispatch("x", 10, 1)]
    path = write(tmp_path / "a.json", process(kernels={1: "k"}, kernel_dispatch=[dispatch(1, 2, 1), *bad], scratch_memory=[{}, {}]))
    tables = read(path)
    assert tables.kernels.height == 1
    assert issues(tables) == {
        ("incomplete-row", "kernel_dispatch: a time that cannot be"): 3,
        ("ends-before-start", "kernel_dispatch"): 1,
        ("unsupported-kind", "scratch_memory"): 2,
    }


def test_a_result_without_records(tmp_path):
    with pytest.raises(CaptureError, match="no record") as caught:
        open_capture(write(tmp_path / "a.json", process())).load()
    assert "rocprofv3" in caught.value.fix


def test_on_the_page_and_in_commands(tmp_path, capsys):
    folder = tmp_path / "runs"
    folder.mkdir()
    path = write(folder / "7_results.json", process(kernels={1: "gemm"}, kernel_dispatch=[dispatch(1, 2_000, 1)]))
    assert cli.main(["analyse", str(path)]) == 0
    assert cli.main(["top", str(path), "--by", "kernel", "--json"]) == 0
    assert '"gemm"' in capsys.readouterr().out
    catalogue = Catalogue([folder])
    client = Client(App(catalogue, Settings()))
    (run,) = client.get("/api/v1/runs").json["runs"]
    assert [worker["name"] for worker in run["workers"]] == ["7_results"]
    assert client.get("/api/v1/overview?wait=20").status_code == 200
    assert client.get("/api/v1/trace/slice?table=kernels&row=0").json["name"] == "gemm"
    catalogue.close()
