# SPDX-License-Identifier: Apache-2.0
"""Simulated ranks as text files of the Ascend profiler: the six small ones that a cluster analysis reads."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import polars as pl

from stepscope.analysis.partition.spans import Spans, join, minus, union
from stepscope.cluster.simulate.captures import HCCL, Task, distributed_args, groups_of, tasks_of
from stepscope.cluster.simulate.recording import Recording
from stepscope.export.cluster.ranks import TEXT, RankFiles
from stepscope.formats.ascend.communication import keys
from stepscope.formats.ascend.db.schema import ANALYSIS_DB
from stepscope.formats.cann.write.hash import text_hash
from stepscope.render.sqlite_file import new_database

_KERNELS = (
    "Step Id,Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),"
    "Block Dim,Mix Block Dim,HF32 Eligible,Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,"
    "Output Formats,Context ID"
)
_STEPS = (
    "Device_id,Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,"
    "Communication(Not Overlapped and Exclude Receive),Preparing"
)
_LINK_SHARE = 0.5  # of the time of a call that its packets take on the link


def write_text_captures(folder: Path, recording: Recording, missing: Sequence[int] = ()) -> None:
    """Write the files of every rank that is not missing."""
    for rank in range(recording.plan.world):
        if rank not in missing:
            _write(folder, recording, rank)


def _write(folder: Path, recording: Recording, rank: int) -> None:
    plan = recording.plan
    capture = folder / f"host{plan.host(rank)}_{1000 + rank}_20251127120000000_ascend_pt"
    output = capture / "ASCEND_PROFILER_OUTPUT"
    output.mkdir(parents=True, exist_ok=True)
    groups = groups_of(recording, rank)
    info = {"config": {"common_config": {"activities": ["ProfilerActivity.CPU", "ProfilerActivity.NPU"]}}, "rank_id": rank}
    (capture / f"profiler_info_{rank}.json").write_bytes(orjson.dumps(info))
    listed = {name: {"group_name": name.split("_")[0], "global_ranks": ranks} for name, ranks in groups.values()}
    arguments = distributed_args(recording, rank)
    (capture / "profiler_metadata.json").write_bytes(orjson.dumps({"parallel_group_info": listed, "distributed_args": arguments}))
    tasks, times, names = _in_order(recording, rank)
    _write_kernels(output / "kernel_details.csv", recording, tasks, times, names)
    (output / "step_trace_time.csv").write_text(_step_lines(recording, rank, tasks, times))
    communication, matrix = _documents(recording, rank, tasks, times, names)
    (output / keys.FILE).write_bytes(orjson.dumps(communication))
    (output / keys.MATRIX_FILE).write_bytes(orjson.dumps(matrix))


def write_analysis(path: Path, recording: Recording, rank: int) -> None:
    """Write analysis.db, which says the same as the text files on steps and communication."""
    tasks, times, names = _in_order(recording, rank)
    communication, matrix = _documents(recording, rank, tasks, times, names)
    files = RankFiles(rank, "", TEXT, communication=communication, matrix=matrix)
    figures = [line.split(",") for line in _step_lines(recording, rank, tasks, times).splitlines()[1:]]
    steps = pl.DataFrame(figures, schema=ANALYSIS_DB["StepTraceTime"].names, orient="row")
    with new_database(path) as file:
        file.fill(ANALYSIS_DB["StepTraceTime"], steps)
        for name in ("CommAnalyzerTime", "CommAnalyzerBandwidth", "CommAnalyzerMatrix"):
            file.fill(ANALYSIS_DB[name], files.table(name))


def _in_order(recording: Recording, rank: int) -> tuple[list[Task], list[list[int]], list[tuple[str, str, str] | None]]:
    """Tasks by start, their times on the rank's clock, and the names of calls."""
    tasks = tasks_of(recording, rank)
    times = [[int(value) for value in recording.local(rank, [task.start, task.end]).tolist()] for task in tasks]
    order = sorted(range(len(tasks)), key=lambda place: times[place])
    tasks, times = [tasks[place] for place in order], [times[place] for place in order]
    return tasks, times, _names(recording, rank, tasks)


def _names(recording: Recording, rank: int, tasks: Sequence[Task]) -> list[tuple[str, str, str] | None]:
    """Name, operator and group of each call; None for kernels."""
    groups = groups_of(recording, rank)
    turns: dict[str, int] = {}
    found: list[tuple[str, str, str] | None] = []
    for task in tasks:
        if task.call is None:
            found.append(None)
            continue
        _, kind, members, op, _, _ = task.call
        group = str(text_hash(groups[kind, members][0]))
        word = HCCL[("send" if members[0] == rank else "recv") if op == "p2p" else op]
        turn = turns[group] = turns.get(group, -1) + 1
        found.append((f"{word}_{group[-3:]}_{turn}_1", word, group))
    return found


def _write_kernels(
    path: Path, recording: Recording, tasks: Sequence[Task], times: Sequence[list[int]], names: Sequence[Any]
) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_KERNELS.split(","))
    for number, (task, (start, end), name) in enumerate(zip(tasks, times, names, strict=True)):
        when = (f"{start // 1000}.{start % 1000:03d}\t", (end - start) / 1000, 0)
        step = recording.ranks[0].bounds[task.step][0]
        if name is not None:
            writer.writerow((step, 4294967295, "N/A", "N/A", name[0], name[1], "N/A", "HCCL", *when, 0, *["N/A"] * 9))
        else:
            tensors = (f'"{task.shapes}"', "FLOAT", "ND")
            row = (step, 4294967295, number, 2, task.name, task.name, "dynamic", "AI_CORE", *when, 8, 0, "NO", *tensors, *tensors)
            writer.writerow((*row, "N/A"))
    path.write_text(text.getvalue(), newline="")


def _step_lines(recording: Recording, rank: int, tasks: Sequence[Task], times: Sequence[list[int]]) -> str:
    lines = [_STEPS]
    bounds = np.array(times, dtype=np.int64).reshape(-1, 2)
    steps = np.array([task.step for task in tasks])
    calls = np.array([task.call is not None for task in tasks])
    receives = np.array([task.call is not None and task.call[3] == "p2p" and task.call[2][0] != rank for task in tasks])
    for place, (step, _, _) in enumerate(recording.ranks[rank].bounds):
        here = steps == place

        def spans(chosen: Any, here: Any = here) -> Spans:
            return union(bounds[here & chosen, 0], bounds[here & chosen, 1])

        compute, communication = spans(~calls), spans(calls)
        exposed = minus(communication, compute)
        both = join(compute, communication)
        whole = int(bounds[here, 1].max() - bounds[here, 0].min())
        bubble = _length(spans(receives))
        figures = (
            _length(compute), _length(exposed), _length(communication) - _length(exposed), _length(communication),
            whole - _length(both), whole - bubble, bubble, _length(exposed) - bubble, 10_000,
        )  # fmt: skip
        lines.append(",".join(map(str, (rank % recording.plan.per_host, step, *(figure / 1000 for figure in figures)))))
    return "\n".join(lines) + "\n"


def _length(spans: Spans) -> int:
    return int((spans.end - spans.start).sum())


def _documents(
    recording: Recording, rank: int, tasks: Sequence[Task], times: Sequence[list[int]], names: Sequence[Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    communication: dict[str, Any] = {}
    links: dict[tuple[str, str, str, str], list[tuple[float, float, str]]] = {}
    groups = groups_of(recording, rank)
    for task, (start, end), name in zip(tasks, times, names, strict=True):
        if task.call is None:
            continue
        _, kind, members, op, _, size = task.call
        step = f"step{recording.ranks[rank].bounds[task.step][0]}"
        lasted, moved = (end - start) / 1e6, size / 1e6
        transit = min(lasted, 0.01 + moved / 20)
        entry = {
            keys.TIME_INFO: {
                keys.START["start_us"]: start / 1000, keys.TIMES["elapse_ms"]: lasted, keys.LINK["transit_ms"]: transit,
                keys.TIMES["wait_ms"]: (lasted - transit) / 2, keys.TIMES["sync_ms"]: (lasted - transit) / 4,
                keys.TIMES["idle_ms"]: (lasted - transit) / 2, keys.RATIOS["wait_ms"]: 0.0, keys.RATIOS["sync_ms"]: 0.0,
            },
            keys.BANDWIDTH_INFO: {
                transport: {
                    keys.LINK["transit_mb"]: moved * used, keys.LINK["transit_ms"]: transit * _LINK_SHARE * used,
                    keys.LINK["bandwidth"]: round(moved / transit / _LINK_SHARE, 4) * used, keys.PACKETS["large_packet_ratio"]: 0,
                    keys.SIZES: {str(moved / 2): [2, transit * _LINK_SHARE]} if transport == "HCCS" else {},
                }
                for transport, used in (("RDMA", 0), ("HCCS", 1), ("PCIE", 0), ("SDMA", 1), ("SIO", 0))
            },
        }  # fmt: skip
        p2p = "p2p" if op == "p2p" else "collective"
        document = communication.setdefault(step, {"p2p": {}, "collective": {}})
        document[p2p][f"{name[0]}@{name[2]}"] = entry
        ranks = groups[kind, members][1]
        own = ranks.index(rank)
        word = name[1].removeprefix("hcom_").rstrip("_").lower()
        for other, peer in enumerate(ranks):
            # Large groups are rings, small ones are joined each with each.
            if other == own or (op != "p2p" and (len(ranks) <= 8 or abs(other - own) in (1, len(ranks) - 1))) or members[0] == rank:
                key = (step, p2p, f"{word}|{name[2]}", f"{own}-{other}|{'LOCAL' if peer == rank else 'HCCS'}")
                links.setdefault(key, []).append((moved / len(ranks), transit * _LINK_SHARE, name[0]))
    matrix: dict[str, Any] = {step: {"p2p": {}, "collective": {}} for step in communication}
    for (step, p2p, operator, pair), several in links.items():
        word, group = operator.split("|")
        link, transport = pair.split("|")
        several.sort(key=lambda one: one[0] / one[1], reverse=True)
        total = (sum(one[0] for one in several), sum(one[1] for one in several), "")
        for tag, (moved, lasted, called) in (
            ("top1", several[0]), ("middle", several[len(several) // 2]), ("bottom1", several[-1]), ("total", total),
        ):  # fmt: skip
            figures = {keys.TRANSPORT: transport, keys.LINK["transit_mb"]: moved, keys.LINK["transit_ms"]: lasted}
            figures[keys.LINK["bandwidth"]] = round(moved / lasted, 4)
            if called:
                figures[keys.OP_NAME] = called
            matrix[step][p2p].setdefault(f"{word}-{tag}@{group}", {})[link] = figures
    return communication, matrix
