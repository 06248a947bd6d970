"""Events of the PyTorch profiler land in the right tables."""

from __future__ import annotations

import polars as pl
import pytest
from kineto_events import BASE_NS, event, kernel, written

from stepscope.analysis.kernels.groups import timed_kernels
from stepscope.analysis.link.capture import link
from stepscope.analysis.statistics import kernel_rows
from stepscope.analysis.step_time import step_trace_time
from stepscope.errors import CaptureError
from stepscope.formats.kineto import read as kineto


def rows(frame: pl.DataFrame, *columns: str) -> list[tuple]:
    return frame.select(columns).rows()


def issues(tables) -> dict[tuple[str, str], int]:
    return {(issue, detail): count for _, issue, _, _, count, detail in tables.quality.rows()}


def test_operators(tmp_path):
    add = {
        "External id": 5, "Sequence number": 3, "Fwd thread id": 0, "Input Dims": [[2, 3], [], [3, 4]],
        "Input type": ["float", "", "Scalar"], "Call stack": "a.py(1): f;b.py(2): g", "Module Hierarchy": "",
    }  # fmt: skip
    backward = {"External id": 6, "Sequence number": 3, "Fwd thread id": 1}
    events = [
        event("cpu_op", "AddBackward0", 30, 5, tid=102, args=backward),
        event("cpu_op", "aten::inner", 10, 2, args={"External id": 7}),
        event("cpu_op", "aten::add", 10, 4, args=add),
        event("user_annotation", "my range", 9.5, 6.25, args={"External id": 4}),
    ]
    ops = kineto.read(written(tmp_path, events)).check().ops
    assert ops["name"].to_list() == ["my range", "aten::add", "aten::inner", "AddBackward0"]
    assert rows(ops, "start_ns", "end_ns", "scope") == [(9500, 15750, 7), (10000, 14000, 0), (10000, 12000, 0), (30000, 35000, 1)]
    assert ops["seq"].to_list() == [None, 3, None, 3]
    assert ops["fwd_thread"].to_list() == [None, None, None, 1]
    assert rows(ops, "pid", "tid", "external_id")[1] == (100, 101, 5)
    assert rows(ops, "shapes", "dtypes", "stack", "modules")[1] == ("2,3;;3,4", "float;;Scalar", "a.py(1): f;b.py(2): g", None)


def test_times_are_epoch_times_when_the_trace_knows_its_base(tmp_path):
    events = [event("cpu_op", "a", 4203669604595.407, 340.024), event("cuda_runtime", "cudaLaunchKernel", 4203669604600.001, 1)]
    tables = kineto.read(written(tmp_path, events, baseTimeNanoseconds=BASE_NS))
    assert rows(tables.ops, "start_ns", "end_ns") == [(BASE_NS + 4203669604595407, BASE_NS + 4203669604935431)]
    assert tables.api_calls["start_ns"].to_list() == [BASE_NS + 4203669604600001]


def test_device_tasks(tmp_path):
    events = [
        kernel("gemm", 20, 3.5, 9, 5, grid=[2, 3, 1], block=[128, 1, 1], **{"est. achieved occupancy %": 50}),
        event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 15, 2, pid=0, tid=22,
              args={"device": 0, "stream": 22, "correlation": 8, "bytes": 4096, "External id": 0}),
        event("gpu_memset", "Memset (Device)", 25, 1, pid=0, tid=7, args={"stream": 7, "correlation": 10, "bytes": 64}),
    ]  # fmt: skip
    tables = kineto.read(written(tmp_path, events)).check()
    assert rows(tables.kernels, "stream", "start_ns", "end_ns", "duration_ns", "kind", "connection_id", "external_id") == [
        (22, 15000, 17000, 2000.0, "memcpy", 8, None),
        (7, 20000, 23500, 3500.0, "compute", 9, 5),
        (7, 25000, 26000, 1000.0, "memset", 10, None),
    ]
    assert rows(tables.kernels, "grid", "block", "block_num", "occupancy")[1] == ("2,3,1", "128,1,1", 6, 50.0)
    assert rows(tables.kernels, "bytes", "copy_direction")[0] == (4096, "host to device")
    assert tables.collectives.height == 0


def test_waits_are_not_kernels(tmp_path):
    awaited = {"wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 5169, "wait_on_cuda_event_id": 1}
    events = [
        kernel("gemm", 20, 3, 9, 5),
        event("cuda_sync", "Stream Wait Event", 26, 1, pid=0, tid=20,
              args={"cuda_sync_kind": "Stream Wait Event", "device": 0, "stream": 20, "correlation": 11, **awaited}),
        event("cuda_sync", "Context Sync", 30, 9, pid=0, tid=-1,
              args={"cuda_sync_kind": "Context Sync", "device": 0, "stream": 4294967295, "correlation": 12}),
        event("gcu_sync", "of another maker", 50, 1, pid=0, tid=3),
    ]  # fmt: skip
    tables = kineto.read(written(tmp_path, events)).check()
    assert tables.kernels["name"].to_list() == ["gemm"]
    shown = ("name", "stream", "start_ns", "end_ns", "connection_id", "event_stream", "event_connection_id", "event_id")
    assert rows(tables.waits, *shown) == [
        ("Stream Wait Event", 20, 26000, 27000, 11, 7, 5169, 1),
        ("Context Sync", None, 30000, 39000, 12, None, None, None),
        ("of another maker", 3, 50000, 51000, None, None, None, None),
    ]


def test_a_kernel_belongs_to_the_step_that_launched_it(tmp_path):
    events = [
        event("user_annotation", "ProfilerStep#4", 10, 10, args={"External id": 1}),
        event("user_annotation", "ProfilerStep#5", 20, 10, args={"External id": 2}),
        event("cuda_runtime", "cudaLaunchKernel", 12, 1, args={"correlation": 77}),
        event("cuda_runtime", "cudaLaunchKernel", 22, 1, tid=102, args={"correlation": 78}),
        event("cuda_runtime", "cudaLaunchKernel", 33, 1, args={"correlation": 79}),
        kernel("launched before the recording", 11, 1, 70, 0),
        kernel("runs during the next step", 21, 9, 77, 0),
        kernel("of the next step", 40, 5, 78, 0),
        kernel("after both", 50, 1, 79, 0),
    ]
    linked = link(kineto.read(written(tmp_path, events)))
    assert rows(linked.kernels, "name", "step") == [
        ("launched before the recording", None),
        ("runs during the next step", 4),
        ("of the next step", 5),
        ("after both", None),
    ]
    assert rows(step_trace_time(linked), "step", "computing_ns", "free_ns") == [(4, 9000, 10000), (5, 5000, 0)]
    assert kernel_rows(linked)["step"].to_list() == [None, 4, 5, None]
    assert timed_kernels(linked)["step"].to_list() == [None, 4, 5, None]


def test_a_kernel_finds_its_operator_by_external_id_and_else_by_its_launch(tmp_path):
    events = [
        event("cpu_op", "outer", 10, 10, args={"External id": 1}),
        event("cpu_op", "inner", 12, 5, args={"External id": 2}),
        event("cuda_runtime", "cudaLaunchKernel", 13, 1, args={"correlation": 77, "External id": 2}),
        event("cuda_runtime", "cudaLaunchKernel", 18, 1, args={"correlation": 78, "External id": 999}),
        kernel("by id", 30, 1, 77, 2),
        kernel("by launch", 40, 1, 78, 999),
    ]
    linked = link(kineto.read(written(tmp_path, events)))
    names = linked.ops["name"].cast(pl.String)
    assert [names[row] for row in linked.kernels["op"]] == ["inner", "outer"]


def test_external_ids_that_only_repeat_the_correlation_name_no_operator(tmp_path):
    events = [
        event("cpu_op", "wrong", 1, 1, args={"External id": 77}),
        event("cpu_op", "right", 10, 10, args={"External id": 2}),
        event("cuda_runtime", "cudaLaunchKernel", 13, 1, args={"correlation": 77, "External id": 77}),
        kernel("k", 30, 1, 77, 77),
    ]
    linked = link(kineto.read(written(tmp_path, events)))
    assert linked.kernels["external_id"].to_list() == [None]
    assert linked.ops["name"].cast(pl.String)[linked.kernels["op"][0]] == "right"


def test_collectives_described_on_the_kernel_on_the_operator_or_only_by_name(tmp_path):
    collective = {"Collective name": "allreduce", "In msg nelems": 100, "Out msg nelems": 100, "dtype": "Float", "Group size": 8}
    events = [
        event(
            "cpu_op", "record_param_comms", 1, 1, args={"External id": 3, **collective, "dtype": "BFloat16", "Process Group ID": 1}
        ),
        kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 10, 5, 1, 2, 20, **collective, **{"Process Group Name": "0"}),
        kernel("ncclKernel_AllReduce_TREE_LL128_Sum_bf16(x)", 20, 5, 2, 3, 20),
        kernel("ncclKernel_ReduceScatter_RING_SIMPLE(x)", 30, 5, 3, 9, 20),
        kernel("gemm", 5, 5, 4, 9),
    ]
    tables = kineto.read(written(tmp_path, events)).check()
    assert tables.kernels["kind"].to_list() == ["compute", "communication", "communication", "communication"]
    assert rows(tables.collectives, "op_type", "group", "data_type", "count", "bytes", "rank_size", "stream", "kernel") == [
        ("allreduce", "0", "Float", 100, 400, 8, 20, 1),
        ("allreduce", "1", "BFloat16", 100, 200, 8, 20, 2),
        ("reduce_scatter", None, None, None, None, None, 20, 3),
    ]
    assert tables.collectives["alg_type"].to_list() == ["RING", "TREE", "RING"]


def test_python_calls(tmp_path):
    events = [
        event("python_function", "train.py(3): step", 1, 20, args={"Python id": 1, "Python parent id": None}),
        event("python_function", "nn.Module: Linear_4", 2, 5, args={"Python id": 2, "Python parent id": 1, "Python module id": 4}),
        event("python_function", "<built-in method add>", 3, 1, args={"Python id": 3, "Python parent id": 2}),
    ]
    calls = kineto.read(written(tmp_path, events)).check().python_calls
    assert rows(calls, "kind", "call_id", "parent_id", "module_id") == [
        ("python", 1, 0, None),
        ("module", 2, 1, 4),
        ("c", 3, 2, None),
    ]


def test_runtime_calls_keep_their_category_as_level(tmp_path):
    events = [
        event("cuda_runtime", "cudaLaunchKernel", 1, 1, args={"correlation": 5}),
        event("cuda_driver", "cuLaunchKernel", 2, 1, args={"correlation": 6}),
        event("overhead", "Buffer Request", 3, 1, pid=-1),
    ]
    calls = kineto.read(written(tmp_path, events)).check().api_calls
    assert rows(calls, "level", "name", "connection_id") == [
        ("cuda_runtime", "cudaLaunchKernel", 5), ("cuda_driver", "cuLaunchKernel", 6), ("overhead", "Buffer Request", None),
    ]  # fmt: skip


def test_annotations_on_the_device_are_marks_with_their_host_range(tmp_path):
    events = [
        event("user_annotation", "forward", 10, 10, args={"External id": 4}),
        event("gpu_user_annotation", "forward", 15, 30, pid=0, tid=7, args={"External id": 4}),
        event("gpu_user_annotation", "alone", 50, 1, pid=0, tid=8, args={"External id": 40}),
    ]
    marks = kineto.read(written(tmp_path, events)).check().marks
    assert rows(marks, "message", "tid", "start_ns", "end_ns", "device", "stream", "device_start_ns", "device_end_ns") == [
        ("forward", 101, 10000, 20000, 0, 7, 15000, 45000),
        ("alone", None, 50000, 51000, 0, 8, 50000, 51000),
    ]


def test_steps_are_steps_and_operators(tmp_path):
    events = [event("user_annotation", f"ProfilerStep#{number}", number * 100, 90) for number in (11, 12)]
    tables = kineto.read(written(tmp_path, events)).check()
    assert rows(tables.steps, "step", "pid", "start_ns", "end_ns") == [(11, 100, 1100000, 1190000), (12, 100, 1200000, 1290000)]
    assert tables.ops["name"].to_list() == ["ProfilerStep#11", "ProfilerStep#12"]


def test_memory_events(tmp_path):
    memory = {"Total Reserved": 4096, "Total Allocated": 1024, "Bytes": 512, "Addr": 140000, "Device Id": 0, "Device Type": 1}
    on_host = {**memory, "Bytes": -512, "Device Id": -1, "Device Type": 0}
    events = [
        {**event("cpu_instant_event", "[memory]", 5.5, args=memory), "ph": "i", "s": "t"},
        {**event("cpu_instant_event", "[memory]", 6.5, args=on_host), "ph": "i", "s": "t"},
    ]
    memory = kineto.read(written(tmp_path, events)).check().memory_events
    columns = ("time_ns", "device_type", "device", "action", "ptr", "bytes", "total_allocated", "total_reserved")
    assert rows(memory, *columns) == [
        (5500, "cuda", 0, "malloc", 140000, 512, 1024.0, 4096.0),
        (6500, "cpu", None, "free", 140000, -512, 1024.0, 4096.0),
    ]


def test_arrows_that_correlation_implies_are_left_out(tmp_path):
    def ends(category, number, start, end):
        return [
            {"ph": "s", "id": number, "pid": 100, "tid": 101, "ts": start, "cat": category, "name": category},
            {"ph": "f", "id": number, "pid": 100, "tid": 102, "ts": end, "cat": category, "name": category, "bp": "e"},
        ]

    events = [event("cpu_op", "a", 1, 1), *ends("ac2g", 1, 1, 2), *ends("fwdbwd", 1, 3, 9), ends("fwdbwd", 2, 4, 5)[0]]
    tables = kineto.read(written(tmp_path, events)).check()
    assert rows(tables.flows, "kind", "id", "from_tid", "from_ns", "to_tid", "to_ns") == [("fwdbwd", 1, 101, 3000, 102, 9000)]
    assert issues(tables) == {("unpaired-record", "flow events"): 1}


def test_counters(tmp_path):
    sample = {"ph": "C", "name": "GPU 0 Utilization", "pid": 0, "ts": 7, "args": {"busy": 80, "idle": 20.5, "unit": "%"}}
    counters = kineto.read(written(tmp_path, [event("cpu_op", "a", 1, 1), sample], baseTimeNanoseconds=1000)).check().counters
    assert rows(counters, "name", "series", "time_ns", "value") == [
        ("GPU 0 Utilization", "busy", 8000, 80.0), ("GPU 0 Utilization", "idle", 8000, 20.5),
    ]  # fmt: skip


def test_wrong_durations_and_strange_events_are_counted(tmp_path):
    events = [
        event("cpu_op", "never ended", 10),
        event("cpu_op", "backwards", 20, -5),
        event("tea_break", "?", 30, 1),
        event("tea_break", "?", 31, 1),
        event("cpu_op", "no time", None, 1),
        {"ph": "B", "name": "begin", "cat": "x", "ts": 1},
        {"ph": "M", "name": "process_name", "pid": 100, "args": {"name": "python"}},
        {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 99},
    ]
    tables = kineto.read(written(tmp_path, events)).check()
    assert rows(tables.ops, "name", "start_ns", "end_ns") == [("never ended", 10000, 10000), ("backwards", 20000, 20000)]
    assert issues(tables) == {
        ("invalid-duration", "incomplete range"): 1,
        ("invalid-duration", "negative"): 1,
        ("unknown-kind", "cat tea_break"): 2,
        ("unknown-kind", "ph B cat x"): 1,
        ("event-without-time", ""): 1,
    }


def test_the_format_of_2021(tmp_path):
    events = [
        event(
            "Operator",
            "aten::add",
            10,
            5,
            tid="24672",
            args={"External id": 3, "Input dims": [[4], []], "Input type": ["float", ""]},
        ),
        event("Runtime", "cudaLaunchKernel", 11, 1, tid="24672", args={"correlation": 9, "external id": 3}),
        event("Kernel", "gemm", 20, 5, pid=0, tid="stream 7", args={"correlation": 9, "external id": 3}),
        event("Memcpy", "Memcpy DtoH (Device -> Pageable)", 30, 5, pid=0, tid="stream 7", args={"correlation": 10, "bytes": 4}),
        event("PythonFunction", "a.py(1): f", 9, 9, tid="24672", args={"Python id": 1}),
    ]
    tables = kineto.read(written(tmp_path, events)).check()
    assert rows(tables.ops, "tid", "name", "shapes", "dtypes", "external_id") == [(24672, "aten::add", "4;", "float;", 3)]
    assert rows(tables.kernels, "device", "stream", "kind", "external_id", "connection_id") == [
        (0, 7, "compute", 3, 9), (0, 7, "memcpy", None, 10),
    ]  # fmt: skip
    assert (tables.api_calls.height, tables.python_calls.height, tables.quality.height) == (1, 1, 0)


@pytest.mark.parametrize(
    ("name", "header", "rank"),
    [
        ("a.json", {"distributedInfo": {"rank": 5}}, 5),
        ("rank-12.Apr_03.pt.trace.json", {}, 12),
        ("rank0_trace.json", {"distributedInfo": {"rank": 5}}, 5),
        ("host_77.pt.trace.json", {}, -1),
    ],
)
def test_rank(tmp_path, name, header, rank):
    assert kineto.read(written(tmp_path, [event("cpu_op", "a", 1, 1)], name, **header)).facts.rank == rank


@pytest.mark.parametrize(
    ("devices", "extra", "kind"),
    [
        ([], [], "cpu"),
        ([{"id": 0, "name": "NVIDIA H100"}], [kernel("k", 1, 1, 1, 1)], "cuda"),
        ([{"id": 0, "name": "AMD Instinct MI300X"}], [kernel("k", 1, 1, 1, 1)], "rocm"),
        ([], [event("cuda_runtime", "hipLaunchKernel", 1, 1), kernel("k", 1, 1, 1, 1)], "rocm"),
    ],
)
def test_facts(tmp_path, devices, extra, kind):
    span = event("Trace", "PyTorch Profiler (0)", 0, 50, pid="Spans", tid="PyTorch Profiler")
    header = {"deviceProperties": devices, "with_stack": 1, "user key": "x", "host_name": "node3"}
    facts = kineto.read(written(tmp_path, [event("cpu_op", "a", 1, 1), span, *extra], **header)).facts
    assert (facts.source, facts.device_kind, facts.with_stack, facts.record_shapes, facts.host_name) == (
        "kineto",
        kind,
        True,
        False,
        "node3",
    )
    assert facts.device_names == {str(device["id"]): device["name"] for device in devices}
    assert facts.activities == (("CPU", "CUDA") if kind != "cpu" else ("CPU",))
    assert (facts.session_start_ns, facts.session_end_ns) == (0, 50000)
    assert facts.metadata["user key"] == "x"


@pytest.mark.parametrize(
    "events", [[], [{"ph": "X", "cat": "renderer", "name": "paint", "ts": 1, "dur": 1}]], ids=["empty", "foreign"]
)
def test_a_trace_of_something_else_is_an_error(tmp_path, events):
    with pytest.raises(CaptureError, match="no event of the PyTorch profiler"):
        kineto.read(written(tmp_path, events))


def label(pid, text):
    return {"ph": "M", "name": "process_labels", "pid": pid, "tid": 0, "ts": 0, "args": {"labels": text}}


def test_events_of_mtia(tmp_path):
    place = {"pid": 17, "tid": 3774}
    events = [
        label(17, "MTIA 17"),
        event("mtia_runtime", "runFunction", 1, 2, args={"correlation": 5, "device": 17, "stream_id": "108"}),
        event("mtia_ccp_events", "pe_exe", 10, 4, **place, args={"correlation": 5, "stream": 108, "row": "0"}),
        event("mtia_ccp_events", "dma_request", 15, 1, **place, args={"stream": 105, "direction": "DEVICE_TO_HOST", "size": 1024}),
        event("mtia_ccp_events", "event_wait", 17, 3, **place, args={"stream": 108, "wait_on_stream": 104}),
    ]
    tables = link(kineto.read(written(tmp_path, events))).check()
    assert rows(tables.kernels, "device", "stream", "name", "kind", "bytes", "copy_direction", "launch_ns") == [
        (17, 108, "pe_exe", "compute", None, None, 1000),
        (17, 105, "dma_request", "memcpy", 1024, "device to host", None),
        (17, 108, "event_wait", "event", None, None, None),
    ]
    assert (tables.facts.device_kind, tables.facts.activities) == ("mtia", ("MTIA",))
    assert issues(tables) == {}


@pytest.mark.parametrize(
    ("category", "kind", "device"),
    [
        pytest.param("hpu_op", "other", "hpu", id="habana"),
        pytest.param("mlu_memcpy", "memcpy", "mlu", id="cambricon"),
        pytest.param("gcu_memset", "memset", "gcu", id="enflame"),
        pytest.param("cuda_event", "event", "cuda", id="cuda-event"),
        pytest.param("cuda_profiler_range", "other", "cuda", id="cupti-range"),
        pytest.param("collective_comm", "communication", "cuda", id="collective"),
    ],
)
def test_categories_of_other_devices(tmp_path, category, kind, device):
    tables = kineto.read(written(tmp_path, [event(category, "x", 10, 4, pid=0, tid=3)])).check()
    assert rows(tables.kernels, "name", "kind", "device", "stream") == [("x", kind, 0, 3)]
    assert tables.facts.device_kind == device
    assert issues(tables) == {}


@pytest.mark.parametrize("labelled", [True, False])
def test_a_category_for_host_and_device_is_sorted_by_its_process(tmp_path, labelled):
    """Habana's plug-in calls both hpu_op, and may name its processes only."""
    events = [
        event("hpu_op", "enqueue", 2, 1, pid=100, tid=100),
        event("hpu_op", "gemm", 10, 4, pid=0, tid=3),
        event("cpu_op", "aten::mm", 1, 3, pid=100, tid=100),
        *([label(100, "CPU"), label(0, "HPU 0")] if labelled else []),
    ]
    tables = kineto.read(written(tmp_path, events)).check()
    assert rows(tables.kernels, "device", "stream", "name", "kind") == [(0, 3, "gemm", "other")]
    assert rows(tables.api_calls, "tid", "name", "level") == [(100, "enqueue", "hpu_op")]
    assert tables.facts.device_kind == "hpu"
    assert issues(tables) == {}


def test_xpu(tmp_path):
    events = [
        event("xpu_sync", "Stream Sync", 8, 3, pid=0, tid=4, args={"device": 0, "stream": 4}),
        event("xpu_runtime", "zeCommandListAppendLaunchKernel", 1, 2, args={"correlation": 9}),
        event("kernel", "gemm", 5, 2, pid=0, tid=4, args={"correlation": 9, "device": 0, "stream": 4}),
    ]
    tables = link(kineto.read(written(tmp_path, events)))
    assert rows(tables.kernels, "name", "launch_ns") == [("gemm", 1000)]
    assert rows(tables.waits, "name", "stream") == [("Stream Sync", 4)]
    assert (tables.facts.device_kind, tables.facts.activities) == ("xpu", ("XPU",))


def test_an_unknown_category_of_a_device_is_shown_and_counted_but_never_called_cpu(tmp_path):
    events = [
        event("warp_events", "by its label", 10, 2, pid=3, tid=1),
        event("warp_events", "by its stream", 13, 2, pid=9, tid=1, args={"stream": 5}),
        event("tea_break", "on the host", 20, 2, pid=100, args={"device": 3}),
        label(3, "WARP 3"),
        label(100, "CPU"),
    ]
    tables = kineto.read(written(tmp_path, events)).check()
    assert rows(tables.kernels, "device", "stream", "name", "kind") == [
        (3, 1, "by its label", "other"),
        (9, 5, "by its stream", "other"),
    ]
    assert tables.facts.device_kind == "warp"
    assert issues(tables) == {("unknown-device-category", "cat warp_events"): 2, ("unknown-kind", "cat tea_break"): 1}


@pytest.mark.parametrize("base", [1 << 61, 10**40, -1, "soon", 1.5])
def test_a_base_that_no_clock_shows_is_left_out_and_counted(tmp_path, base):
    tables = kineto.read(written(tmp_path, [event("cpu_op", "a", 7, 2)], baseTimeNanoseconds=base))
    assert rows(tables.ops, "start_ns", "end_ns") == [(7000, 9000)]
    assert issues(tables)["unreadable-value", "baseTimeNanoseconds"] == 1
