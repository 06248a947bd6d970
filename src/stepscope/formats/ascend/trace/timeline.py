# SPDX-License-Identifier: Apache-2.0
"""From the events of an Ascend timeline to tables.

What other events imply (overlap lanes, step lanes, arrows of the framework) is not read: it is computed again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from stepscope.formats.ascend.trace import args
from stepscope.formats.ascend.trace import communication_rows as communication
from stepscope.formats.ascend.trace import counter_rows as counter
from stepscope.formats.ascend.trace import device_rows as device
from stepscope.formats.ascend.trace import host_rows as host
from stepscope.formats.ascend.trace import lanes as lane
from stepscope.formats.ascend.trace import layers as layer
from stepscope.formats.ascend.trace import mark_rows as mark
from stepscope.formats.ascend.trace.args import Argument
from stepscope.formats.ascend.trace.events import arg
from stepscope.formats.chrome.events import read_events
from stepscope.tables import ALL_TABLES, issues, lost


def _guard(arguments: Sequence[Argument], key: str) -> str:
    """The argument of this key as it stands in the JSON."""
    return f'"{args.names(arguments)[key]}"'


# The arguments that are read, and what stands in every stretch of JSON that has them: those of a layer cost no time where
# the layer is not.
_READ: tuple[tuple[Sequence[Argument], str], ...] = (
    (args.MARKS, _guard(args.MARKS, "kind")),
    (device.TASK_ARGS, _guard(args.TASKS, "task_id")),
    (communication.TASK_ARGS, _guard(args.TRANSFERS, "task_type")),
    (communication.OPERATOR_ARGS, _guard(args.COLLECTIVES, "alg_type")),
    (args.OPS, _guard(args.OPS, "seq")),
    (args.PYTHON_CALLS, _guard(args.PYTHON_CALLS, "call_id")),
    (host.API_ARGS, _guard(args.API_CALLS, "level")),
    (args.CPU_KERNELS, '"HostCpuOps"'),
    # Those that events of several layers have.
    (args.QUEUE, _guard(args.QUEUE, "correlation_id")),
    *(((item,), f'"{item.name}"') for item in communication.SHARED_ARGS),
)
ARGS: dict[str, pl.DataType] = {
    **lane.ARGS,
    **counter.ARGS,
    **{name: dtype for arguments, _ in _READ for name, dtype in args.types(arguments).items()},
}
_GUARDS: dict[str, str] = {
    **dict.fromkeys(lane.ARGS, '"M"'),
    **dict.fromkeys(counter.ARGS, '"C"'),
    **{name: guard for arguments, guard in _READ for name in args.types(arguments)},
}


@dataclass(frozen=True)
class Timeline:
    """Tables of a timeline by name (all conformed, absent when empty) and what the timeline says about the capture.

    `generation` is "G1" or "G3" (G2 timelines read as G3), or "" when nothing in it tells. `pids` are the processes
    of the operating system. Kinds of kernels are not known yet: `kernels.kind` is memcpy, event or other.
    """

    frames: dict[str, pl.DataFrame]
    device_ids: tuple[int, ...]
    pids: tuple[int, ...]
    generation: str


# Kinds of events, and the columns that are kept of each. What is not listed is dropped.
_KEPT: dict[str, Callable[[pl.LazyFrame], pl.LazyFrame]] = {
    "meta": lane.metadata,
    "cpu_op": host.op_rows,
    "queue": host.queue_rows,
    "python_function": host.python_rows,
    "GC": host.gc_rows,
    "api": host.api_rows,
    "task": device.task_rows,
    "cpu_kernel": device.cpu_rows,
    "own_flow": device.flow_rows,
    "communication": communication.communication_rows,
    "mark": mark.mark_rows,
    "counter": counter.counter_rows,
    "HostToDevice": device.flow_rows,
    "MsTx": device.flow_rows,
    "pending": lambda events: events,
    "unplaced": lambda events: events.select("pid"),
    "untimed": lambda events: events.select("pid"),
    "strange": lambda events: events.select("pid"),
}

_LAYERS = {
    layer.CANN.name: "api",
    layer.HARDWARE.name: "task",
    layer.OVERLAP.name: "derived",
    layer.COMMUNICATION.name: "communication",
    layer.COMMUNICATION.older: "communication",
    layer.MINDSPORE.name: "cpu_op",
    layer.CPU_KERNELS.name: "cpu_kernel",
    layer.SCOPES.name: "derived",
}
_FRAMEWORK = {
    layer.OPERATOR: "cpu_op", "enqueue": "queue", "dequeue": "queue", layer.PYTHON_CALL: "python_function", layer.GC: "GC",
}  # fmt: skip
_NUMBERS = {kind: number for number, kind in enumerate([*_KEPT, "derived"])}


def read_timeline(paths: Sequence[Path], *, quality: list[pl.DataFrame], most_bytes: int | None = None) -> Timeline:
    """Read one timeline, which may be cut into several files.

    Args:
        paths: trace_view.json, or msprof_*.json with all its slices.
        quality: what cannot be read or placed is appended here.
        most_bytes: bytes that a packed file may unpack to.
    """
    parts: dict[str, list[pl.DataFrame]] = defaultdict(list)
    unknown_counters = 0
    # One chunk is sorted into kinds while the next is read.
    with ThreadPoolExecutor(1) as worker:
        sorting: Future[int] | None = None
        for path in paths:
            for events in read_events(path, ARGS, quality=quality, guards=_GUARDS, most_bytes=most_bytes):
                unknown_counters += sorting.result() if sorting else 0
                sorting = worker.submit(_collect, events, parts, finished=False)
        unknown_counters += sorting.result() if sorting else 0
    # A layer may be named after its events.
    for events in parts.pop("pending", []):
        _collect(events.drop("kind"), parts, finished=True)
    source = ", ".join(path.name for path in paths)
    quality.append(lost(issues.NOT_UNDERSTOOD, source, unknown_counters, "counters"))
    return _tables(parts, source, quality)


def _collect(events: pl.DataFrame, parts: dict[str, list[pl.DataFrame]], *, finished: bool) -> int:
    """Sort the events of a chunk into `parts`; return the number of counters without a known value."""
    meta = events.lazy().filter(pl.col("ph") == "M").pipe(lane.metadata).collect(engine="in-memory")
    if meta.height:
        parts["meta"].append(meta)
    layers = lane.layer_names(pl.concat(parts["meta"])) if parts["meta"] else {}
    kind_of_row = events.lazy().select(kind=_kind(layers, finished=finished)).collect(engine="in-memory")
    marked = events.hstack(kind_of_row)
    there = set(kind_of_row["kind"].unique().to_list())
    kinds = [kind for kind in _KEPT if _NUMBERS[kind] in there and kind != "meta"]
    found = pl.collect_all([_KEPT[kind](marked.lazy().filter(pl.col("kind") == _NUMBERS[kind])) for kind in kinds])
    unknown = 0
    for kind, rows in zip(kinds, found, strict=True):
        if kind == "counter":
            rows, unknown = counter.samples(rows)
        parts[kind].append(rows)
    return unknown


def _kind(layers: dict[int, str], *, finished: bool) -> pl.Expr:
    """What an event is, by phase, category and the layer of its pid; as a number, since a text per event costs far more."""
    unnamed = "unplaced" if finished else "pending"
    pids: dict[str, list[int]] = defaultdict(list)
    for pid, name in layers.items():
        pids[_LAYERS.get(name, "unplaced")].append(pid)
    of_layer = pl.coalesce(*(pl.when(pl.col("pid").is_in(pids[kind])).then(_number(kind)) for kind in pids), _number(unnamed))
    # The layer of marks bears the name of the user's program; its events are known by their type.
    is_mark = arg(args.names(args.MARKS)["kind"]).is_not_null() & of_layer.is_in([_NUMBERS["unplaced"], _NUMBERS[unnamed]])
    placed = pl.when(is_mark).then(_number("mark")).otherwise(of_layer)
    phase, category = pl.col("ph"), pl.col("cat")
    is_flow = (phase == "s") | (phase == "f")
    return (
        pl.when(((phase == "X") | (phase == "C") | is_flow) & pl.col("ts_ns").is_null())
        .then(_number("untimed"))
        .when(phase == "X")
        .then(pl.coalesce(*(pl.when(category == name).then(_number(kind)) for name, kind in _FRAMEWORK.items()), placed))
        .when(is_flow & (category == layer.LAUNCH))
        .then(_number("HostToDevice"))
        .when(is_flow & (category == layer.MARK))
        .then(_number("MsTx"))
        .when(is_flow & (category == layer.MINDSPORE_FLOW[0]))
        .then(_number("own_flow"))
        .when(phase == "C")
        .then(_number("counter"))
        .when(phase == "M")
        .then(_number("meta"))
        .when(is_flow | (phase == "t"))
        .then(_number("derived"))
        .otherwise(_number("strange"))
    )


def _number(kind: str) -> pl.Expr:
    return pl.lit(_NUMBERS[kind], pl.UInt8)


def _tables(parts: dict[str, list[pl.DataFrame]], source: str, quality: list[pl.DataFrame]) -> Timeline:
    def rows(kind: str) -> pl.DataFrame | None:
        found = parts.pop(kind, [])
        return pl.concat(found) if found else None

    meta = rows("meta")
    lanes = lane.lanes(meta if meta is not None else _NO_EVENTS.pipe(lane.metadata).collect(engine="in-memory"))
    _count_unplaced(rows("unplaced"), lanes, source, quality)
    for kind, issue in (("untimed", issues.EVENT_WITHOUT_TIME), ("strange", issues.UNKNOWN_KIND)):
        if (found := rows(kind)) is not None:
            quality.append(lost(issue, source, found.height, "" if kind == "untimed" else "phase"))
    frames: dict[str, pl.DataFrame] = {}
    frames |= _host_tables(rows, lanes)
    frames |= _device_tables(rows, lanes, source, quality)
    samples = rows("counter")
    if samples is not None:
        frames["counters"] = counter.counters(samples, lanes)
    return Timeline(
        {name: frame for name, frame in frames.items() if frame.height}, lanes.device_ids(), lanes.os_pids(), lanes.generation
    )


_NO_EVENTS = pl.LazyFrame(
    schema={
        **dict.fromkeys(("ph", "name", "cat", "id"), pl.String()),
        **dict.fromkeys(("pid", "tid", "ts_ns"), pl.Int64()),
        "dur_ns": pl.Float64(),
        **{f"args.{key}": dtype for key, dtype in ARGS.items()},
    }
)

_Rows = Callable[[str], pl.DataFrame | None]


def _host_tables(rows: _Rows, lanes: lane.Lanes) -> dict[str, pl.DataFrame]:
    frames = {}
    if (found := rows("cpu_op")) is not None:
        frames["ops"] = host.ops(found)
        frames["steps"] = host.steps(frames["ops"])
    if (found := rows("queue")) is not None:
        frames["queue"] = host.queue(found)
    if (found := rows("python_function")) is not None:
        frames["python_calls"] = host.python_calls(found)
    if (found := rows("own_flow")) is not None:
        frames["flows"] = host.flows(device.arrows(found), layer.MINDSPORE_FLOW[1])
    if (found := rows("GC")) is not None:
        frames["gc_pauses"] = host.gc_pauses(found)
    if (found := rows("api")) is not None:
        frames["api_calls"] = host.api_calls(found, lanes)
    return frames


def _device_tables(rows: _Rows, lanes: lane.Lanes, source: str, quality: list[pl.DataFrame]) -> dict[str, pl.DataFrame]:
    def or_none(kind: str) -> pl.DataFrame:
        found = rows(kind)
        return found if found is not None else _KEPT[kind](_NO_EVENTS).collect()

    flows = or_none("HostToDevice")
    launches, mark_arrows = device.arrows(flows), device.arrows(or_none("MsTx"))
    tasks = device.without_step_lanes(or_none("task"), lanes)
    on_device, tasks = mark.device_part(tasks, mark_arrows)
    collectives, transfers = communication.communication(or_none("communication"), launches, lanes)
    kernels = device.kernels(tasks, launches, lanes)
    if (found := rows("cpu_kernel")) is not None:
        on_host = device.cpu_kernels(found, beside_device=kernels.height > 0)
        kernels = ALL_TABLES["kernels"].sort(pl.concat([kernels, on_host]))
    orphans = int((~flows["is_start"]).sum()) - launches.height
    quality.append(lost(issues.END_WITHOUT_START, source, orphans, "launch arrows"))
    return {
        "kernels": kernels,
        "collectives": collectives,
        "transfers": transfers,
        "marks": mark.marks(or_none("mark"), on_device, mark_arrows, lanes),
    }


def _count_unplaced(rows: pl.DataFrame | None, lanes: lane.Lanes, source: str, quality: list[pl.DataFrame]) -> None:
    if rows is None:
        return
    names = (
        rows.join(lanes.processes, on="pid", how="left")
        .group_by("layer")
        .len()
        .sort("len", "layer", descending=[True, False], nulls_last=True)
    )
    detail = ", ".join(f"{layer or 'unnamed layer'}: {count}" for layer, count in names.select("layer", "len").iter_rows())
    quality.append(lost(issues.UNSUPPORTED_KIND, source, rows.height, detail))
