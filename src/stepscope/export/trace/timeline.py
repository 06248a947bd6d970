# SPDX-License-Identifier: Apache-2.0
"""Where every span of a capture stands in a timeline: tables with a `pid` and `tid` of what the user sees.

The frames keep the rows and the order of their tables, so that references by row number stay good.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from stepscope.analysis import overlap
from stepscope.arrays import distinct
from stepscope.export.trace.processes import Processes, distinct_rows, placed
from stepscope.export.trace.task_parts import place_parts
from stepscope.formats.ascend.trace import layers
from stepscope.tables import Tables, device_word

HOST_SPANS = ("ops", "python_calls", "queue")
WHOLE_CONTEXT = -1  # lane of the waits for all streams, as Kineto numbers it


@dataclass(frozen=True)
class Timeline:
    """Frames by what they show, each with pid, tid, start_ns and end_ns; and the processes these pids stand for.

    `flows` is the table of that name, its ends on the threads that the frames name.
    """

    frames: dict[str, pl.DataFrame]
    flows: pl.DataFrame
    processes: Processes
    device_kind: str

    def __getitem__(self, name: str) -> pl.DataFrame:
        return self.frames[name]

    @property
    def is_npu(self) -> bool:
        return self.device_kind == "npu"


def lay_out(tables: Tables) -> Timeline:
    """Give every span its place."""
    kind = tables.facts.device_kind or "npu"
    processes = Processes(main_pid(tables), device_word(kind))
    frames: dict[str, pl.DataFrame] = {}
    for name in HOST_SPANS:
        frames[name] = _on_host(tables[name], processes)
    frames["api_calls"] = _api_calls(tables.api_calls, processes, kind)
    _python_threads(frames, processes, own_api=kind != "npu")
    gc = placed(tables.gc_pauses.with_columns(tid=pl.col("pid").fill_null(processes.main_pid)), processes, layers.PYTHON_GC)
    frames["gc_pauses"] = _named(gc, processes, layers.PYTHON_GC.name)
    marks = _host_marks(tables.marks, processes, _marks_layer(tables))
    frames["marks"] = marks
    frames["kernels"] = _hardware(tables.kernels, processes, kind)
    frames["waits"] = _waits(tables.waits, processes, kind)
    device_marks = tables.marks.filter(pl.col("device_start_ns").is_not_null()).with_columns(
        start_ns="device_start_ns", end_ns=pl.coalesce("device_end_ns", "device_start_ns")
    )
    frames["device_marks"] = _hardware(device_marks, processes, kind)
    frames["collectives"], frames["transfers"] = _communication(tables, processes)
    frames["task_parts"] = place_parts(tables, processes)
    frames["overlap"] = _overlap(tables, processes)
    return Timeline(frames, tables.flows, processes, kind)


def main_pid(tables: Tables) -> int:
    """The process that stands for the capture: the first that any table names."""
    for name in ("ops", "queue", "python_calls", "api_calls", "kernels", "marks", "gc_pauses", "memory_events"):
        pid = tables[name]["pid"].drop_nulls()
        if len(pid):
            return int(pid[0])
    return 0


def _on_host(frame: pl.DataFrame, processes: Processes) -> pl.DataFrame:
    for pid in sorted(distinct(frame["pid"])):
        processes.reserve(pid)
    if not (frame["pid"].null_count() or frame["tid"].null_count()):
        return frame
    return frame.with_columns(pl.col("pid").fill_null(processes.main_pid), pl.col("tid").fill_null(0))


def _python_threads(frames: dict[str, pl.DataFrame], processes: Processes, *, own_api: bool) -> None:
    names = [*HOST_SPANS, *(["api_calls"] if own_api else [])]
    queue = frames["queue"]
    threads = pl.concat([distinct_rows(frames[name][["pid", "tid"]]) for name in names]).unique().sort("pid", "tid")
    dequeuing = set(queue.filter(pl.col("kind") == "dequeue").select("pid", "tid").unique().iter_rows())
    last = threads["tid"].max()
    for pid, tid in threads.iter_rows():
        processes.of(layers.PYTHON, pid, None)
        # Below all others, as the reader looks from the operator down to what the queue made of it.
        processes.thread(pid, tid, f"Thread {tid}", int(last) + 1 if (pid, tid) in dequeuing and isinstance(last, int) else tid)


def _named(frame: pl.DataFrame, processes: Processes, pattern: str) -> pl.DataFrame:
    for pid, tid in sorted(distinct_rows(frame[["pid", "tid"]]).iter_rows()):
        processes.thread(pid, tid, pattern.format(tid=tid))
    return frame


def _api_calls(frame: pl.DataFrame, processes: Processes, kind: str) -> pl.DataFrame:
    frame = frame.with_columns(pl.col("tid").fill_null(0)) if frame["tid"].null_count() else frame
    if kind != "npu":
        return _on_host(frame, processes)
    if not frame.height:
        return frame
    return _named(placed(frame, processes, layers.CANN), processes, "Thread {tid}")


def _marks_layer(tables: Tables) -> str:
    """The program's name, as the vendor's tool has it; beside the layer Python, `python` says what it holds."""
    name = tables.facts.process_name
    beside = any(tables[spans].height for spans in HOST_SPANS)
    return f"{name} ({layers.MARKS.name})" if beside and name.lower().startswith(layers.PYTHON.name.lower()) else name


def _host_marks(marks: pl.DataFrame, processes: Processes, name: str) -> pl.DataFrame:
    marks = marks.with_columns(pl.col("tid").fill_null(0))
    shown = placed(marks, processes, layers.MARKS, device="", name=name.replace("{", "{{").replace("}", "}}") or None)
    return _named(shown, processes, "Thread {tid}")


def _hardware(frame: pl.DataFrame, processes: Processes, kind: str) -> pl.DataFrame:
    name = None if kind == "npu" else layers.CPU_KERNELS.name if kind == "cpu" else f"{device_word(kind)} {{device}}"
    frame = placed(frame.with_columns(tid=pl.col("stream").fill_null(0)), processes, layers.HARDWARE, name=name)
    return _named(frame, processes, "Stream {tid}")


def _waits(frame: pl.DataFrame, processes: Processes, kind: str) -> pl.DataFrame:
    """Waits stand on the stream that they concern; those for all streams have a lane of their own."""
    for device in frame.filter(pl.col("stream").is_null())["device"].unique().to_list():
        pid = processes.of(layers.HARDWARE, None, device, f"GPU {device}")
        processes.thread(pid, WHOLE_CONTEXT, "All streams")
    return _hardware(frame.with_columns(pl.col("stream").fill_null(WHOLE_CONTEXT)), processes, kind)


def _communication(tables: Tables, processes: Processes) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Operators and their plane tasks; a group's planes follow it: tid = group tid + 1 + plane (docs/formats/outputs.md 3.2)."""
    collectives, transfers = tables.collectives, tables.transfers
    if tables.facts.level == "Level0":
        transfers = transfers.clear()
    group = pl.coalesce(pl.col("group").cast(pl.String), pl.lit(""))
    ops = collectives.with_columns(lane=group)
    owner = transfers["collective"]
    lane = ops["lane"].gather(owner) if collectives.height else pl.Series([None] * len(owner), dtype=pl.String)
    tasks = transfers.with_columns(lane=lane.fill_null("").alias("lane"), plane=pl.col("plane").fill_null(0))
    order = ops.group_by("lane", maintain_order=True).agg(pl.col("group_index").min()).sort("group_index", maintain_order=True)
    planes = dict(tasks.group_by("lane").agg(pl.col("plane").max()).iter_rows())
    first_tid: dict[str, int] = {}
    following = 0
    for name in [*order["lane"].to_list(), *sorted(planes)]:
        if name not in first_tid:
            first_tid[name] = following
            following += 2 + max(planes.get(name, -1), -1)
    base = pl.col("lane").replace_strict(first_tid, default=0, return_dtype=pl.Int64)
    shown_ops = placed(ops.with_columns(tid=base), processes, layers.COMMUNICATION)
    shown_tasks = placed(tasks.with_columns(tid=base + 1 + pl.col("plane")), processes, layers.COMMUNICATION)
    for pid, tid, lane_name in shown_ops.select("pid", "tid", "lane").unique().sort("pid", "tid").iter_rows():
        processes.thread(pid, tid, lane_name.join(layers.GROUP) if lane_name else layers.COMMUNICATION.name)
    for pid, tid, plane in shown_tasks.select("pid", "tid", "plane").unique().sort("pid", "tid").iter_rows():
        processes.thread(pid, tid, f"{layers.PLANE}{plane}")
    return shown_ops, shown_tasks


def _overlap(tables: Tables, processes: Processes) -> pl.DataFrame:
    """The four layers of the overlap analysis; none without anything on the device."""
    shown = overlap.device_layers(tables)
    numbers = {name: number for number, name in enumerate(overlap.LAYERS)}
    shown = shown.with_columns(tid=pl.col("layer").replace_strict(numbers, return_dtype=pl.Int64))
    shown = placed(shown, processes, layers.OVERLAP)
    for pid in shown["pid"].unique().to_list():
        for name, number in numbers.items():
            processes.thread(pid, number, name)
    return shown
