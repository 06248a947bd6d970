"""Captures on the simulated NPU: what the device did is in the files, as hardware's collector would have written it."""

from __future__ import annotations

import csv
import functools
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import polars as pl
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from npu_process import on_npu, reason_without_device  # noqa: E402

STEPS = (1, 2)
DOCUMENTED = {
    "kernel_details.csv", "operator_details.csv", "step_trace_time.csv", "trace_view.json", "memory_record.csv",
    "operator_memory.csv", "op_statistic.csv", "api_statistic.csv", "npu_module_mem.csv", "l2_cache.csv", "analysis.db",
    "ascend_pytorch_profiler.db",
}  # fmt: skip
# Of blocks that were there before: no capture can know where they came from.
OLDER = "allocated-before-recording"


def profiled(folder: Path, work, *, level="Level1", activities=("CPU", "NPU"), schedule=None, config=(), **switches) -> Path:
    """Profile `work(prof)` and return its capture."""
    from stepscope import profiler

    settings = profiler._ExperimentalConfig(profiler_level=getattr(profiler.ProfilerLevel, level), **dict(config))
    with profiler.profile(
        activities=[getattr(profiler.ProfilerActivity, name) for name in activities],
        schedule=schedule,
        experimental_config=settings,
        on_trace_ready=profiler.tensorboard_trace_handler(str(folder), analyse_flag=False),
        **switches,
    ) as prof:
        work(prof)
    (capture,) = folder.glob("*_ascend_pt")
    return capture


def tables_of(capture: Path):
    from stepscope.capture import open_capture

    return open_capture(capture).tables


waited_for: dict[str, threading.Event | threading.Barrier] = {}


@functools.cache
def gate():
    """An operator whose kernel waits for what the test names."""
    library = torch.library.Library("simnpu_capture", "FRAGMENT")
    library.define("gate(Tensor x, str name) -> Tensor")

    def kernel(x, name):
        if name in waited_for:
            waited_for[name].wait(30)
        return x + 1

    library.impl("gate", kernel, "CPU")
    return library


@functools.cache
def training():
    """Two steps of training at level 1 with everything on: the capture, what the device recorded, memory in use at the end."""
    from stepscope import profiler
    from stepscope.simnpu.records import Records

    torch.manual_seed(0)
    model = torch.nn.TransformerEncoderLayer(32, 2, 64, batch_first=True).to("npu")
    optimizer = torch.optim.AdamW(model.parameters())
    batch, side = torch.randn(2, 8, 32), torch.npu.Stream()
    x = torch.ones(4, device="npu")
    gate()

    def step():
        optimizer.zero_grad()
        torch.ops.simnpu_capture.gate(x, "host")
        if "host" in waited_for:
            x + 1
            waited_for["host"].set()
        side.wait_stream(torch.npu.current_stream())
        with torch.npu.stream(side):
            torch.ops.simnpu_capture.gate(x, "other stream")
        torch.ops.simnpu_capture.gate(x, "other stream")
        loss = model(batch.to("npu")).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    def work(prof):
        for _ in range(4):
            step()
            prof.step()

    step(), step(), x + 1
    torch.npu.synchronize()
    waited_for["host"], waited_for["other stream"] = threading.Event(), threading.Barrier(2)
    drained, tasks = [], Records.tasks
    Records.tasks = lambda records: drained.append(tasks(records)) or drained[-1]
    try:
        capture = profiled(
            Path(tempfile.mkdtemp()), work, schedule=profiler.schedule(wait=0, warmup=1, active=2, repeat=1), record_shapes=True,
            profile_memory=True, with_stack=True, config={"l2_cache": True},
        )  # fmt: skip
    finally:
        Records.tasks = tasks
        waited_for.clear()
    return capture, np.concatenate(drained), torch.npu.memory_allocated()


@on_npu
def test_every_task_is_there_with_its_own_times():
    from stepscope.simnpu.records import KERNEL

    capture, tasks, _ = training()
    tables = tables_of(capture)
    assert tables.quality.filter(pl.col("issue") != OLDER).to_dicts() == []
    kernels = tables.kernels.filter(~pl.col("extra"))
    (prof,) = capture.glob("PROF_*")
    start = json.loads((prof / "host" / "start_info").read_text())
    offset = int(start["collectionTimeBegin"]) * 1000 - int(start["clockMonotonicRaw"])
    ours = sorted(zip(kernels["stream"], kernels["start_ns"], kernels["end_ns"], strict=True))
    device = sorted(
        zip(tasks["stream"].tolist(), (tasks["start"] + offset).tolist(), (tasks["end"] + offset).tolist(), strict=True)
    )
    assert len(device) > 100
    assert (tasks["description"][tasks["kind"] == KERNEL] > 0).all()
    shorter = kernels["core"].is_in(["MIX_AIC", "MIX_AIV"]).sum()  # a MIX kernel is the sub task, a tick inside its task
    assert len(set(ours) & set(device)) == len(device) - shorter
    assert len(ours) == len(device)
    assert kernels.filter(pl.col("op").is_null())["name"].cast(pl.String).is_in(["EVENT_RECORD", "EVENT_WAIT"]).all()
    names = tables.ops["name"].cast(pl.String)
    matmuls = kernels.filter(pl.col("name").cast(pl.String).str.contains("MatMulV2"))
    assert set(names.gather(matmuls["op"])) <= {"aten::mm", "aten::addmm", "aten::bmm"}
    assert set(matmuls["core"].cast(pl.String)) == {"AI_CORE"}


@on_npu
def test_time_passes_in_one_direction():
    capture, tasks, _ = training()
    tables = tables_of(capture)
    kernels = tables.kernels.filter(~pl.col("extra")).sort("stream", "start_ns")
    assert (kernels["start_ns"] > kernels["launch_ns"]).all()
    inside = kernels.filter(pl.col("stream") == pl.col("stream").shift(1), pl.col("start_ns") < pl.col("end_ns").shift(1))
    assert inside.to_dicts() == []
    spans = {stream: rows.select("start_ns", "end_ns").rows() for (stream,), rows in kernels.group_by("stream")}
    assert len(spans) == 2
    first, second = spans.values()
    assert any(a[0] < b[1] and b[0] < a[1] for a in first for b in second)
    waits = tasks["start"] - tasks["launch_end"]
    assert (waits > 0).all()
    in_order = tasks[np.argsort(tasks["connection"])]
    assert (in_order["enqueue_end"][1:] < in_order["end"][:-1]).any(), "the host is ahead of the device"
    queue = tables.queue
    assert queue["kind"].value_counts().height == 2
    assert queue.filter(pl.col("kind") == "enqueue").height == len(tasks)


@on_npu
def test_the_documented_files_hold_what_was_recorded():
    from stepscope.analyser import analyse
    from stepscope.simnpu.records import KERNEL

    capture, tasks, allocated = training()
    analyse(str(capture), export_type=["text", "db"])
    output = capture / "ASCEND_PROFILER_OUTPUT"
    from_database = tables_of(output / "ascend_pytorch_profiler.db").facts
    assert from_database.device_names == {"0": "Simulated NPU"}
    assert "counters of cores and caches" in from_database.modelled
    assert {path.name for path in output.iterdir()} >= DOCUMENTED
    rows = list(csv.DictReader((output / "kernel_details.csv").open(newline="")))
    assert len(rows) == (tasks["kind"] == KERNEL).sum()
    assert {row["Step Id"] for row in rows} == {str(step) for step in STEPS}
    assert all(float(row["aicore_time(us)"]) + float(row["aiv_time(us)"]) > 0 for row in rows)
    busy = [float(row["aicore_time(us)"]) <= float(row["Duration(us)"]) for row in rows]
    assert all(busy)
    for step in csv.DictReader((output / "step_trace_time.csv").open(newline="")):
        parts = sum(float(step[name]) for name in ("Computing", "Communication(Not Overlapped)", "Free"))
        assert parts == pytest.approx(float(step["Stage"]), abs=0.01)
        assert float(step["Computing"]) > 0
        assert float(step["Free"]) > 0
    used = [float(row["Device Self Duration(us)"]) for row in csv.DictReader((output / "operator_details.csv").open(newline=""))]
    kernels = sum(float(row["Duration(us)"]) for row in rows)
    assert sum(used) == pytest.approx(kernels + _copies(tasks), rel=1e-3)
    events = tables_of(capture).memory_events.filter(pl.col("device_type") == "npu", pl.col("component") == "PTA")
    assert events["total_allocated"].item(-1) == allocated
    moved = events.filter(pl.col("action") != "block_free")
    assert (moved["total_allocated"].diff() == moved["bytes"].cast(pl.Float64))[1:].all()
    trace = json.loads((output / "trace_view.json").read_text())
    kinds = {(event.get("cat"), event["ph"]) for event in trace}
    assert kinds >= {(cat, end) for cat in ("async_npu", "HostToDevice", "async_task_queue") for end in "sf"}
    assert {event["args"]["name"] for event in trace if event["name"] == "process_name"} >= {"Python", "CANN", "Ascend Hardware"}


def _copies(tasks) -> float:
    from stepscope.simnpu.records import COPY_D2D, COPY_H2D

    copied = tasks[(tasks["kind"] >= COPY_H2D) & (tasks["kind"] <= COPY_D2D)]
    return float((copied["end"] - copied["start"]).sum()) / 1000


def calls_lie_apart(prof: Path):
    """The calls of a raw folder, of which no two of a level overlap in a thread."""
    from stepscope.formats.cann import layouts
    from stepscope.formats.cann.folder import open_prof
    from stepscope.formats.cann.records import read_records

    calls = read_records(open_prof(prof).host, layouts.API_EVENT).rows
    for level in (20000, 10000):
        for thread in np.unique(calls["tid"]):
            mine = np.sort(calls[(calls["level"] == level) & (calls["tid"] == thread)], order="begin")
            assert (mine["begin"][1:] >= mine["end"][:-1]).all()
    return calls


@on_npu
def test_records_keep_the_rules_by_which_every_parser_joins_them():
    """docs/formats/cann.md 8, on the bytes."""
    from stepscope.formats.cann import layouts
    from stepscope.formats.cann.folder import open_prof
    from stepscope.formats.cann.records import read_records

    capture, _, _ = training()
    (folder,) = capture.glob("PROF_*")
    prof = open_prof(folder)
    host, device = prof.host, prof.devices[0]
    calls = calls_lie_apart(folder)
    tracks = read_records(host, layouts.TASK_TRACK).rows
    nodes, outer = calls[calls["level"] == 10000], np.sort(calls[calls["level"] == 20000], order="begin")
    around = outer[np.searchsorted(outer["begin"], nodes["begin"], "right") - 1]
    assert (around["end"] >= nodes["end"]).all(), "calls nest"
    for layout in (layouts.NODE_BASIC_INFO, layouts.TENSOR_INFO, layouts.CONTEXT_ID_INFO, layouts.TASK_TRACK):
        rows = read_records(host, layout).rows
        assert len(rows)
        inside = [
            ((calls["tid"] == row["tid"]) & (calls["begin"] < row["stamp"]) & (row["stamp"] <= calls["end"])).any() for row in rows
        ]
        assert all(inside), f"{layout.file} lies in a call of its thread"
    copies = read_records(host, layouts.MEMCPY_INFO).rows
    stamps = set(zip(tracks["tid"][tracks["task_type"] == 5], tracks["stamp"][tracks["task_type"] == 5], strict=True))
    assert set(zip(copies["tid"], copies["stamp"], strict=True)) == stamps
    stars = read_records(device, layouts.STARS).rows
    counters = read_records(device, layouts.PMU).rows
    for rows in (stars, counters):
        running = rows["head"] >> 6 & 15
        assert (np.diff(running.astype(int)) % 16 == 1).all(), "the running number counts up"
    assert len(counters) >= len(nodes)
    starts = np.sort(stars["counter"][stars["head"] & 63 == 0])
    assert (device.clock.ns(starts) > host.clock.ns(np.sort(tracks["stamp"]))).all(), "nothing runs before it is launched"


@on_npu
@pytest.mark.parametrize(
    ("level", "activities", "levels", "described"),
    [
        pytest.param("Level_none", ("CPU", "NPU"), set(), None, id="none"),
        pytest.param("Level0", ("CPU", "NPU"), {"acl", "node"}, False, id="0"),
        pytest.param("Level1", ("NPU",), {"acl", "node"}, True, id="1-without-host"),
        pytest.param("Level2", ("CPU", "NPU"), {"acl", "node", "runtime"}, True, id="2"),
    ],
)
def test_levels_differ_as_documented(level, activities, levels, described, tmp_path):
    x, there = torch.randn(8, 8, device="npu"), torch.randn(8, 8, device="npu:1")
    torch.nonzero(x), x @ x, there @ there

    def work(prof):
        (x @ x).sum(), torch.nonzero(x), there @ there

    capture = profiled(tmp_path, work, level=level, activities=activities, profile_memory=True)
    assert (capture / "FRAMEWORK").exists() == ("CPU" in activities)
    tables = tables_of(capture)
    assert tables.quality.filter(pl.col("issue") != OLDER).to_dicts() == []
    assert set(tables.api_calls["level"].cast(pl.String)) == levels
    kernels = tables.kernels.filter(~pl.col("extra"))
    assert kernels.height == (0 if described is None else 4)
    assert set(kernels["device"]) == (set() if described is None else {0, 1})
    if described is not None:
        assert (kernels["op_type"].null_count() == 0) == described
        assert tables.kernel_metrics.height == (0 if level == "Level0" else 3)
    assert tables.aicpu_tasks.height == (1 if level == "Level2" else 0)
    said = json.loads(next(capture.glob("profiler_info*.json")).read_text())["collector"]
    assert said["device"] == "npu_sim"
    assert "counters of cores and caches" in said["modelled"]


WITHOUT_QUEUE = """
import json, os, signal, sys, time
from pathlib import Path
import torch
from stepscope import simnpu
simnpu.load()
sys.path.insert(0, sys.argv[2])
from test_capture import profiled, tables_of
out = Path(sys.argv[1])
x, weight = torch.randn(64, 64, device="npu"), torch.randn(10, 4, device="npu")
x @ x, torch.nn.functional.embedding(torch.tensor([1, 2], device="npu"), weight)

def work(prof):
    for _ in range(3):
        (x @ x).relu_()
    torch.nn.functional.embedding(torch.tensor([1, 99], device="npu"), weight)

tables = tables_of(profiled(out / "whole", work, profile_memory=True))
try:
    torch.npu.synchronize()
    fault = None
except RuntimeError as raised:
    fault = str(raised)
kernels = tables.kernels.filter(~tables.kernels["extra"])
ops = tables.ops["name"]
print(json.dumps({"fault": fault, "queue": tables.queue.height, "quality": tables.quality["issue"].to_list(),
                  "ops": [str(ops[op]) if op is not None else None for op in kernels["op"].to_list()]}), flush=True)

def until_killed(prof):
    for _ in range(60_000):
        x @ x
        time.sleep(0.001)
        (prof_folder,) = (out / "killed").glob("*/PROF_*")
        # A task is two records of 64 bytes; the file is there before they are.
        if sum(path.stat().st_size for path in (prof_folder / "device_0" / "data").glob("stars_soc*")) >= 128:
            os.kill(os.getpid(), signal.SIGKILL)

profiled(out / "killed", until_killed)
"""


@pytest.mark.slow  # starts processes with torch
def test_without_the_task_queue_and_after_a_kill(tmp_path):
    reason = reason_without_device()
    if reason:
        pytest.skip(f"no simulated NPU: {reason}")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_QUEUE, str(tmp_path), str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "TASK_QUEUE_ENABLE": "0", "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["queue"] == 0
    assert set(told["quality"]) <= {OLDER}
    assert told["ops"].count("aten::mm") == 3
    assert told["ops"].count("aten::relu_") == 3
    assert None not in told["ops"]
    # A fault on the device is the script's to hear, also when the profiler waited for the device first.
    assert "aten::embedding failed" in told["fault"]
    (prof,) = (tmp_path / "whole").glob("*/PROF_*")
    assert len(calls_lie_apart(prof)) > 14
    (killed,) = (tmp_path / "killed").glob("*_ascend_pt")
    tables = tables_of(killed)
    assert tables.kernels.height > 0
    assert set(tables.kernels["name"].cast(pl.String)) == {"aclnnMm_MatMulCommon_MatMulV2"}
    assert tables.facts.device_names == {"0": "Simulated NPU"}


WITH_WORKSPACES = """
import json, sys
from pathlib import Path
import torch
from stepscope import simnpu
simnpu.load()
sys.path.insert(0, sys.argv[2])
from test_capture import profiled
out = Path(sys.argv[1])
small, large = torch.randn(64, 64, device="npu"), torch.randn(1024, 1024, device="npu")
for _ in range(2):  # the first call of each tells what its results look like
    small @ small, large @ large, small + small
torch.npu.synchronize()

def work(prof):
    small @ small  # the block of the stream is as large as the warm-up made it
    small + small  # needs none
    large @ large
    with torch.npu.stream(torch.npu.Stream()):
        small @ small  # a block of its own, which grows
        large @ large
    torch.npu.synchronize()

profiled(out, work, profile_memory=True)
"""


@pytest.mark.slow  # starts a process with torch
def test_workspaces_with_task_queue_2(tmp_path):
    """What kernels need besides their tensors is allocated by the dequeue thread, in files and database under WORKSPACE."""
    reason = reason_without_device()
    if reason:
        pytest.skip(f"no simulated NPU: {reason}")
    done = subprocess.run(
        [sys.executable, "-c", WITH_WORKSPACES, str(tmp_path), str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "TASK_QUEUE_ENABLE": "2", "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    (capture,) = tmp_path.glob("*_ascend_pt")
    tables = tables_of(capture)
    events = tables.memory_events.filter(tables.memory_events["component"] == "WORKSPACE")
    mb = 1 << 20
    signed = [(str(action), size // mb, lent // mb, held // mb) for action, size, lent, held in
              events.select("action", "bytes", "total_allocated", "total_reserved").iter_rows()]  # fmt: skip
    assert signed == [
        *[("malloc", 6, 6, 6), ("free", -6, 0, 6)] * 2,
        ("malloc", 2, 0, 8), ("malloc", 2, 2, 8), ("free", -2, 0, 8),
        ("free", -2, 0, 6), ("malloc", 6, 0, 12), ("malloc", 6, 6, 12), ("free", -6, 0, 12),
    ]  # fmt: skip
    dequeues = tables.queue.filter(tables.queue["kind"] == "dequeue")
    assert set(events["tid"]) == set(dequeues["tid"])
    assert (events["total_active"] == events["total_allocated"]).all()
    lent = tables.allocations.filter(
        (tables.allocations["component"] == "WORKSPACE") & tables.allocations["release_ns"].is_not_null()
    )
    assert lent["name"].to_list() == ["aten::mm"] * 4
    assert set(tables.quality["issue"]) <= {OLDER}
    assert "sizes of workspaces" in tables.facts.modelled

    from stepscope import analyse

    analyse(str(capture), export_type=["text", "db"])
    output = capture / "ASCEND_PROFILER_OUTPUT"
    with (output / "memory_record.csv").open(newline="") as file:
        written = [row for row in csv.DictReader(file) if row["Component"] == "WORKSPACE"]
    assert [float(row["Total Reserved(MB)"]) for row in written] == [held for *_, held in signed]
    with (output / "operator_memory.csv").open(newline="") as file:
        sizes = [float(row["Size(KB)"]) for row in csv.DictReader(file) if row["Name"] == "aten::mm"]
    assert [size for size in sizes if size >= 2048 and size != 4096] == [6144, 6144, 2048, 2048, 6144, 6144]
    with sqlite3.connect(output / "ascend_pytorch_profiler.db") as database:
        rows = database.execute(
            "select totalReserved from MEMORY_RECORD join STRING_IDS on component = id where value = 'WORKSPACE' order by timestamp"
        ).fetchall()
    assert [held // mb for (held,) in rows] == [held for *_, held in signed]


@on_npu
def test_attributes_and_cache_rates_reach_the_files(tmp_path):
    """Text is enough for op_attr: the database is written beside it."""
    from stepscope.analyser import analyse

    x = torch.randn(64, 64, device="npu")
    torch.nn.functional.leaky_relu(x, 0.25)
    config = {"l2_cache": True, "op_attr": True, "export_type": "text"}
    capture = profiled(tmp_path, lambda prof: torch.nn.functional.leaky_relu(x, 0.5), config=config)
    analyse(str(capture))
    output = capture / "ASCEND_PROFILER_OUTPUT"
    with (output / "l2_cache.csv").open(newline="") as file:
        (rates,) = csv.DictReader(file)
    assert 0 < float(rates["Hit Rate"]) <= 1
    with sqlite3.connect(output / "ascend_pytorch_profiler.db") as database:
        attributes = database.execute("SELECT value FROM COMPUTE_TASK_INFO JOIN STRING_IDS ON id = attrInfo").fetchall()
    assert attributes == [("negative_slope:0.5",)]


@on_npu
def test_a_fault_of_ours_ends_the_device_part_only(tmp_path):
    from stepscope.simnpu.capture import DeviceCapture

    def broken(self, now, *, last=False):
        raise OSError("no space left")

    x = torch.ones(4, device="npu")
    take, DeviceCapture.take = DeviceCapture.take, broken
    try:
        capture = profiled(tmp_path, lambda prof: x + 1)
    finally:
        DeviceCapture.take = take
    assert tables_of(capture).ops.height > 0
    assert (x + 1).tolist() == [2.0] * 4
