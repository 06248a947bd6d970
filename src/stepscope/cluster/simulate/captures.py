# SPDX-License-Identifier: Apache-2.0
"""Simulated ranks as captures on disk (Kineto, databases or text of Ascend), so that readers are part of the proof."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from stepscope.cluster.simulate.programs import Call
from stepscope.cluster.simulate.recording import FREQUENCY_MHZ, KERNELS, Recording, kernel_times
from stepscope.cluster.whatif.replay import Floats

LAUNCH_NS = 4_000.0  # from the launch of a task to its start, when the device waits for it
HOST_NS = 5_000.0  # that a host which runs ahead needs for a launch
LAST = 1 << 30
_TORCH = {
    "allreduce": "allreduce",
    "allgather": "_allgather_base",
    "reducescatter": "_reduce_scatter_base",
    "alltoall": "all_to_allv",
}
HCCL = {
    "allreduce": "hcom_allReduce_",
    "allgather": "hcom_allGather_",
    "reducescatter": "hcom_reduceScatter_",
    "alltoall": "hcom_alltoallv_",
    "send": "hcom_send_",
    "recv": "hcom_receive_",
}


@dataclass(frozen=True)
class Task:
    """A kernel (call is None) or a call, in true time."""

    launch: float
    start: float
    end: float
    name: str
    shapes: str
    call: Call | None
    lane: str
    step: int


def write_captures(
    folder: Path, recording: Recording, form: str, missing: Sequence[int] = (), *, analysis: bool = False, ahead: bool = False
) -> None:
    """Write a capture of every rank that is not missing.

    Args:
        form: kineto, db or text.
        analysis: with analysis.db beside each database.
        ahead: the host launches a step as fast as it can and waits for nothing but its own work; else each task just in time.
    """
    if form == "text":
        from stepscope.cluster.simulate.text_captures import write_text_captures

        write_text_captures(folder, recording, missing)
        return
    for rank in range(recording.plan.world):
        if rank not in missing:
            tasks = tasks_of(recording, rank)
            tasks = _launched_ahead(recording, rank, tasks) if ahead else tasks
            if form == "kineto":
                _write_kineto(folder, recording, rank, tasks)
            else:
                _write_database(folder, recording, rank, tasks, analysis)


def _launched_ahead(recording: Recording, rank: int, tasks: list[Task]) -> list[Task]:
    """The tasks with launches of a host that runs ahead of the device: only its own work, and the end of a step, hold it up."""
    own = recording.ranks[rank]
    held = [end for cause, start, end in own.work if cause != "compute" and end - start > HOST_NS]
    blocks = np.sort(np.array([*held, *(start for _, start, _ in own.bounds)]))
    launched: list[Task] = []
    host = 0.0
    for task in tasks:
        place = int(np.searchsorted(blocks, task.launch + LAUNCH_NS + 1, side="right")) - 1
        before = host
        host = max(before + HOST_NS, float(blocks[max(place, 0)]) - LAUNCH_NS)
        host = max(min(host, max(task.launch, task.start - LAUNCH_NS)), before + 1000)
        launched.append(replace(task, launch=host))
    return launched


def tasks_of(recording: Recording, rank: int) -> list[Task]:
    """Kernels and calls of a rank in the order of their launches."""
    own = recording.ranks[rank]
    times, _, shapes = kernel_times(recording, rank)
    # A heavier stage has larger tensors here, not slower kernels.
    shapes = f"{shapes},{round(1000 * recording.weight(rank))}"
    share = times / times.sum()
    tasks: list[tuple[int, Task]] = []  # with the place among those that are launched at once: calls first
    bounds = own.bounds
    ends = np.array([end for _, _, end in bounds])
    for cause, start, end in own.work:
        if cause != "compute":
            continue
        step = min(int(np.searchsorted(ends, start, side="right")), len(bounds) - 1)
        at = start
        for name, part in zip(KERNELS, share, strict=True):
            until = at + part * (end - start)
            tasks.append((LAST, Task(start - LAUNCH_NS, at, until, name, shapes, None, "", step)))
            at = until
    for call, issue, start, end, lane, step, place in own.calls:
        tasks.append((place, Task(issue - LAUNCH_NS, start, end, call[3], "", call, lane, step)))
    return [task for _, task in sorted(tasks, key=lambda one: (one[1].launch, one[0], one[1].start))]


def groups_of(recording: Recording, rank: int) -> dict[tuple[str, tuple[int, ...]], tuple[str, list[int]]]:
    """By kind and members of a call: name of the group and its ranks, the same on all ranks."""
    found = {}
    for call, *_ in recording.ranks[rank].calls:
        kind = "pp" if call[1].startswith("pp") else call[1]
        members = sorted(call[2])
        found[call[1], call[2]] = (f"{kind}_{'_'.join(map(str, members[:4]))}_{len(members)}", members)
    return found


def distributed_args(recording: Recording, rank: int) -> dict[str, int]:
    """What the metadata of a capture say about the layout."""
    plan = recording.plan
    sizes = {"tensor_model_parallel_size": plan.tp, "pipeline_model_parallel_size": plan.pp, "data_parallel_size": plan.dp}
    return {"world_size": plan.world, "rank": rank, **sizes}


_HOST_CAUSES = {
    "data_loading": ("cpu_op", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"),
    "allocation": ("cuda_runtime", "cudaMalloc"),
    "checkpoint": ("user_annotation", "save_checkpoint"),
}


def _write_kineto(folder: Path, recording: Recording, rank: int, tasks: list[Task]) -> None:
    plan = recording.plan
    groups = groups_of(recording, rank)
    streams = {"": 7}
    events: list[dict[str, Any]] = []

    def local(times: Sequence[float]) -> list[float]:
        return [value / 1000 for value in (recording.local(rank, times)).tolist()]

    for step, start, end in recording.ranks[rank].bounds:
        first, beyond = local([start - 2 * LAUNCH_NS, end - 2 * LAUNCH_NS])
        events.append(_span("user_annotation", f"ProfilerStep#{step}", first, beyond - first, 1, 1))
    for number, task in enumerate(tasks, 1):
        launch, start, end = local([task.launch, task.start, task.end])
        stream = streams.setdefault(task.lane, 7 + len(streams))
        args: dict[str, Any] = {"device": rank % plan.per_host, "stream": stream, "correlation": number}
        name = task.name
        if task.call is not None:
            _, kind, members, op, _, size = task.call
            group, ranks = groups[kind, members]
            sends = members[0] == rank
            word = ("send" if sends else "recv") if op == "p2p" else _TORCH[op]
            args |= {
                "Collective name": word,
                "In msg nelems": size // 4,
                "dtype": "Float",
                "Group size": len(ranks),
                "Process Group Name": group,
                "Process Group Description": group.split("_")[0],
                "Process Group Ranks": str(ranks),
            }
            if op == "p2p":
                args["Dst Rank" if sends else "Src Rank"] = members[sends]
            name = f"ncclDevKernel_{word}_RING_LL"
        else:
            *sizes, weight = (int(word) for word in task.shapes.split(","))
            args |= {"grid": [*(size // 64 for size in sizes), weight, 1], "block": [128, 1, 1]}
        events.append(_span("kernel", name, start, end - start, rank % plan.per_host, stream, args))
        events.append(_span("cuda_runtime", "cudaLaunchKernel", launch, 1.0, 1, 1, {"correlation": number}))
    for cause, start, end in recording.ranks[rank].work:
        first, beyond = local([start, end])
        if cause in _HOST_CAUSES:
            category, name = _HOST_CAUSES[cause]
            events.append(_span(category, name, first, beyond - first - 2, 1, 1))
        elif cause == "gc":
            events.append(_span("python_function", "gc: collect", first, beyond - first - 2, 1, 1))
    listed = dict(groups.values())
    header = {
        "schemaVersion": 1,
        "host_name": f"host{plan.host(rank)}",
        "deviceProperties": [{"id": rank % plan.per_host, "name": "simulated GPU"}],
        "distributedInfo": {
            "backend": "nccl",
            "rank": rank,
            "world_size": plan.world,
            "pg_config": [{"pg_name": name, "pg_desc": name.split("_")[0], "ranks": ranks} for name, ranks in listed.items()],
        },
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"rank-{rank}.pt.trace.json").write_bytes(orjson.dumps({**header, "traceEvents": events}))


def _span(
    category: str, name: str, start: float, length: float, pid: int, tid: int, args: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": start,
        "dur": max(length, 0.0),
        "args": args or {},
    }


def _write_database(folder: Path, recording: Recording, rank: int, tasks: list[Task], analysis: bool) -> None:
    plan = recording.plan
    capture = folder / f"host{plan.host(rank)}_{1000 + rank}_20251127120000000_ascend_pt"
    output = capture / "ASCEND_PROFILER_OUTPUT"
    output.mkdir(parents=True, exist_ok=True)
    groups = groups_of(recording, rank)
    info = {"config": {"common_config": {"activities": ["ProfilerActivity.CPU", "ProfilerActivity.NPU"]}}, "rank_id": rank}
    (capture / f"profiler_info_{rank}.json").write_bytes(orjson.dumps(info))
    listed = {name: {"group_name": name.split("_")[0], "global_ranks": ranks} for name, ranks in groups.values()}
    metadata = {"parallel_group_info": listed, "distributed_args": distributed_args(recording, rank)}
    (capture / "profiler_metadata.json").write_bytes(orjson.dumps(metadata))
    path = output / f"ascend_pytorch_profiler_{rank}.db"
    path.unlink(missing_ok=True)
    database = sqlite3.connect(path)
    with database:
        _fill_database(database, recording, rank, tasks, groups, metadata)
    database.close()
    if analysis:
        from stepscope.cluster.simulate.text_captures import write_analysis

        write_analysis(output / "analysis.db", recording, rank)


_INTEGERS = {
    "STEP_TIME": "id startNs endNs",
    "SESSION_TIME_INFO": "startTimeNs endTimeNs",
    "RANK_DEVICE_MAP": "rankId deviceId",
    "TASK": "startNs endNs deviceId connectionId globalTaskId globalPid taskType contextId streamId taskId modelId",
    "COMPUTE_TASK_INFO": "name globalTaskId blockDim mixBlockDim taskType opType inputFormats inputDataTypes inputShapes "
    "outputFormats outputDataTypes outputShapes attrInfo",
    "COMMUNICATION_OP": "opName startNs endNs connectionId groupName opId relay retry dataType algType count opType",
    "CANN_API": "startNs endNs type globalTid connectionId name",
    "AICORE_FREQ": "deviceId timestampNs freq",
    "CONNECTION_IDS": "id connectionId",
}
_MIXED = {
    "STRING_IDS": "id INTEGER PRIMARY KEY, value TEXT",
    "META_DATA": "name TEXT, value TEXT",
    "HOST_INFO": "hostUid TEXT, hostName TEXT",
    "NPU_INFO": "id INTEGER, name TEXT",
    "ENUM_HCCL_DATA_TYPE": "id INTEGER PRIMARY KEY, name TEXT",
    "ENUM_API_TYPE": "id INTEGER PRIMARY KEY, name TEXT",
    "PYTORCH_API": "startNs TEXT, endNs TEXT, globalTid INTEGER, connectionId INTEGER, name INTEGER, sequenceNumber INTEGER, "
    "fwdThreadId INTEGER, inputDtypes INTEGER, inputShapes INTEGER, callchainId INTEGER, type INTEGER",
}


def _fill_database(
    database: sqlite3.Connection,
    recording: Recording,
    rank: int,
    tasks: list[Task],
    groups: dict[Any, tuple[str, list[int]]],
    metadata: dict[str, Any],
) -> None:
    plan, device, thread = recording.plan, rank % recording.plan.per_host, (1 << 32) + 1
    for table, columns in {
        **{name: words.replace(" ", " INTEGER, ") + " INTEGER" for name, words in _INTEGERS.items()},
        **_MIXED,
    }.items():
        database.execute(f"CREATE TABLE {table} ({columns})")
    texts: dict[str, int] = {}

    def text(value: str) -> int:
        return texts.setdefault(value, len(texts) + 1)

    def local(times: Sequence[float] | Floats) -> list[int]:
        return [int(value) for value in recording.local(rank, times).tolist()]

    bounds = recording.ranks[rank].bounds
    for step, start, end in bounds:
        first, beyond = local([start - 2 * LAUNCH_NS, end - 2 * LAUNCH_NS])
        database.execute("INSERT INTO STEP_TIME VALUES (?, ?, ?)", (step, first, beyond))
    database.execute("INSERT INTO SESSION_TIME_INFO VALUES (?, ?)", tuple(local([bounds[0][1] - 1e6, bounds[-1][2] + 1e6])))
    database.execute("INSERT INTO HOST_INFO VALUES (?, ?)", (str(plan.host(rank)), f"host{plan.host(rank)}"))
    database.execute("INSERT INTO NPU_INFO VALUES (?, ?)", (device, "Ascend910B"))
    database.execute("INSERT INTO RANK_DEVICE_MAP VALUES (?, ?)", (rank, device))
    database.executemany(
        "INSERT INTO META_DATA VALUES (?, ?)", [(key, orjson.dumps(value).decode()) for key, value in metadata.items()]
    )
    database.execute("INSERT INTO ENUM_HCCL_DATA_TYPE VALUES (4, 'FP32')")
    database.executemany(
        "INSERT INTO ENUM_API_TYPE VALUES (?, ?)", [(20000, "acl"), (10000, "node"), (5500, "communication"), (5000, "runtime")]
    )
    frequency = FREQUENCY_MHZ
    fault = recording.fault
    if (fault.kind == "frequency" and fault.rank == rank) or (fault.kind == "host" and plan.host(fault.rank) == plan.host(rank)):
        frequency /= fault.factor
    database.execute("INSERT INTO AICORE_FREQ VALUES (?, ?, ?)", (device, local([bounds[0][1]])[0], round(frequency)))
    turns: dict[str, int] = {}
    for number, task in enumerate(tasks, 1):
        launch, start, end = local([task.launch, task.start, task.end])
        database.execute(
            "INSERT INTO CANN_API VALUES (?, ?, ?, ?, ?, ?)", (launch, launch + 1000, 10000, thread, number, text("launch"))
        )
        if task.call is None:
            database.execute(
                "INSERT INTO TASK VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (start, end, device, number, number, 1 << 32, text("AI_CORE"), 4294967295, 2, number, 4294967295),
            )
            database.execute(
                "INSERT INTO COMPUTE_TASK_INFO VALUES (?, ?, 8, 0, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    text(task.name),
                    number,
                    text("AI_CORE"),
                    text(task.name),
                    *[text("ND")] * 2,
                    text(task.shapes),
                    *[text("N/A")] * 4,
                ),
            )
            continue
        _, kind, members, op, _, size = task.call
        group, _ = groups[kind, members]
        word = HCCL[("send" if members[0] == rank else "recv") if op == "p2p" else op]
        turn = turns[group] = turns.get(group, -1) + 1
        database.execute(
            "INSERT INTO COMMUNICATION_OP VALUES (?, ?, ?, ?, ?, ?, 0, 0, 4, ?, ?, ?)",
            (text(f"{word}_{group[-3:]}_{turn}_1"), start, end, number, text(group), number, text("MESH"), size // 4, text(word)),
        )
    for cause, start, end in recording.ranks[rank].work:
        first, beyond = local([start, end])
        for name, kind_ in _database_causes(cause):
            row = (str(first), str(beyond - 2000), thread, None, text(name), None, None, None, None, None, kind_)
            if cause == "allocation":
                key = 1_000_000 + len(texts) * 1000 + first % 1000
                database.execute(
                    "INSERT INTO CANN_API VALUES (?, ?, ?, ?, ?, ?)",
                    (first, beyond - 2000, 5000, thread, key, text(name)),
                )
            else:
                database.execute("INSERT INTO PYTORCH_API VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    database.executemany("INSERT INTO STRING_IDS VALUES (?, ?)", [(number, value) for value, number in texts.items()])


def _database_causes(cause: str) -> Iterator[tuple[str, int]]:
    if cause == "data_loading":
        yield "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 50001
    elif cause == "checkpoint":
        yield "save_checkpoint", 50001
    elif cause == "allocation":
        yield "aclrtMalloc", 50001
