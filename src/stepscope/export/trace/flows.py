# SPDX-License-Identifier: Apache-2.0
"""The arrows of a timeline as JSON events (docs/formats/outputs.md 3.1, 3.3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from stepscope.export.trace.timeline import Timeline
from stepscope.formats.ascend.trace import layers
from stepscope.render.lines import Lines, Part, Whole
from stepscope.render.microseconds import TimeText

# Kinds of NPU tasks that an arrow leads to (docs/formats/outputs.md 3.3).
ARROWS = ("compute", "memcpy", "event")


def arrow_names(device_kind: str) -> tuple[tuple[str, str], tuple[str, str]]:
    """Name and category of arrows to the tasks of a device: from the launching call, and from the operator."""
    if device_kind == "npu":
        return (layers.LAUNCH, layers.LAUNCH), ("torch_to_npu", "async_npu")
    word = "cpu" if device_kind == "cpu" else "gpu"
    return ("ac2g", "ac2g"), (f"torch_to_{word}", f"async_{word}")


def host_flows(timeline: Timeline, clock: TimeText) -> Iterator[Lines]:
    """From enqueue to dequeue, from forward to backward, and those a foreign trace brought."""
    for kind, phase in (("enqueue", "s"), ("dequeue", "f")):
        rows = timeline["queue"].filter((pl.col("kind") == kind) & pl.col("correlation_id").is_not_null())
        yield _host(clock, rows, phase, "enqueue_to_dequeue", "async_task_queue", Whole("correlation_id"))
    flows = timeline.flows
    for kind in flows["kind"].unique().drop_nulls().cast(pl.String).sort().to_list():
        rows = flows.filter(pl.col("kind") == kind)
        for side, phase in (("from", "s"), ("to", "f")):
            ends = rows.select("id", pid=f"{side}_pid", tid=f"{side}_tid", start_ns=f"{side}_ns").drop_nulls()
            yield _host(clock, ends, phase, kind, kind, Whole("id"))


def device_flows(timeline: Timeline, clock: TimeText) -> Iterator[Lines]:
    """From the launch on the host to the task on the device; from the host part of a mark to its device part."""
    for name in ("kernels", "collectives") if timeline.is_npu else ("kernels",):  # collectives of a GPU are kernels
        launched = timeline[name].filter(pl.col("launch_ns").is_not_null() & pl.col("connection_id").is_not_null())
        if timeline.is_npu and name == "kernels":
            # Tasks that hold others (FFTS+) share the launch of what they hold and get no arrow (docs/formats/outputs.md 3.3).
            launched = launched.filter(pl.col("kind").is_in(ARROWS))
        first = launched.filter(~pl.col("extra").fill_null(False))
        if timeline.is_npu:
            yield from _launches(timeline, first, launched, clock)
        else:
            yield from _gpu_launches(timeline, first, launched, clock)
    yield from mark_flows(timeline, clock)


def mark_flows(timeline: Timeline, clock: TimeText) -> Iterator[Lines]:
    """From the host part of a mark to its device part."""
    for name, phase in (("marks", "s"), ("device_marks", "f")):
        rows = timeline[name].filter(pl.col("connection_id").is_not_null() & pl.col("device_start_ns").is_not_null())
        yield _device(clock, rows, phase, f"{layers.MARK}_", layers.MARK, pl.col("connection_id").cast(pl.String))


def operator_flows(timeline: Timeline, clock: TimeText) -> Iterator[Lines]:
    """From the operator to each task that it launched; the id is the start of the task in ns."""
    ops = timeline["ops"]
    name_of, category = arrow_names(timeline.device_kind)[1]
    for name in ("kernels", "collectives") if timeline.is_npu else ("kernels",):
        tasks = timeline[name].filter(pl.col("op").is_not_null())
        if tasks.height:
            row = tasks["op"]
            owners = pl.DataFrame({key: ops[key].gather(row) for key in ("pid", "tid", "start_ns")} | {"id": tasks["start_ns"]})
            yield _host(clock, owners, "s", name_of, category, Whole("id"))
            yield _host(clock, tasks, "f", name_of, category, Whole("start_ns"))


def _launches(timeline: Timeline, first: pl.DataFrame, launched: pl.DataFrame, clock: TimeText) -> Iterator[Lines]:
    starts = first.select("connection_id", start_ns="launch_ns", tid=pl.col("launch_tid").fill_null(0))
    if starts.height:
        pid = timeline.processes.of(layers.CANN, None, None)
        for tid in starts["tid"].unique().sort().to_list():
            timeline.processes.thread(pid, tid, f"Thread {tid}")
        starts = starts.with_columns(pl.lit(pid).alias("pid"))
    yield launch_arrows(clock, starts, "s")
    yield launch_arrows(clock, launched, "f")


def launch_arrows(clock: TimeText, frame: pl.DataFrame, phase: str) -> Lines:
    """One end (`s` or `f`) of the arrows from host to device, by connection id."""
    # connection id << 32: fits 64 bits for every id below 2**31, else only as text (docs/formats/outputs.md 3.3)
    name = pl.col("connection_id")
    shifted = (name * (1 << 32)).cast(pl.String) if _fits(frame) else (name.cast(pl.Int128) * (1 << 32)).cast(pl.String)
    return _device(clock, frame, phase, layers.LAUNCH, layers.LAUNCH, shifted)


def _gpu_launches(timeline: Timeline, first: pl.DataFrame, launched: pl.DataFrame, clock: TimeText) -> Iterator[Lines]:
    starts = first.select("connection_id", start_ns="launch_ns", tid=pl.col("launch_tid").fill_null(0))
    starts = starts.with_columns(pl.lit(timeline.processes.main_pid).alias("pid"))
    yield _host(clock, starts, "s", "ac2g", "ac2g", Whole("connection_id"))
    yield _host(clock, launched, "f", "ac2g", "ac2g", Whole("connection_id"))


def _fits(frame: pl.DataFrame) -> bool:
    most = frame["connection_id"].max()
    return not isinstance(most, int) or most < 1 << 31


def _place(clock: TimeText, frame: pl.DataFrame) -> Sequence[Part]:
    return ('"pid": ', Whole("pid"), ', "tid": ', Whole("tid"), ', "ts": ', *clock.at(frame, "start_ns"))


def _host(clock: TimeText, frame: pl.DataFrame, phase: str, name: str, category: str, identity: Part) -> Lines:
    head = f', {{"ph": "{phase}", "bp": "e", "name": "{name}", "id": '
    return Lines(frame, [head, identity, ", ", *_place(clock, frame), f', "cat": "{category}"}}'])


def _device(clock: TimeText, frame: pl.DataFrame, phase: str, name: str, category: str, identity: pl.Expr) -> Lines:
    bind = ', "bp": "e"' if phase == "f" else ""
    tail: list[Part] = [f', "ph": "{phase}", "cat": "{category}", "id": "', identity, f'"{bind}}}']
    return Lines(frame, [f', {{"name": "{name}', identity, '", ', *_place(clock, frame), *tail])
