# SPDX-License-Identifier: Apache-2.0
"""A Kineto trace as tables."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars as pl

from stepscope.errors import CaptureError
from stepscope.formats.chrome.events import read_events
from stepscope.formats.gpu.collectives import collectives
from stepscope.formats.kineto import device, host
from stepscope.formats.kineto.categories import ARGS, GUARDS, with_table_names
from stepscope.formats.kineto.counters import read_counters
from stepscope.formats.kineto.facts import facts_of
from stepscope.tables import ALL_TABLES, Tables, issues, lost
from stepscope.tables.issues import Issue

Rows = Callable[[pl.LazyFrame], pl.LazyFrame]

_READERS: dict[str, tuple[str, Rows]] = {
    "ops": ("op", host.op_rows),
    "collective_ops": ("op", device.collective_op_rows),
    "python_calls": ("python", host.python_rows),
    "api_calls": ("api", host.api_rows),
    "tasks": ("task", device.task_rows),
    "waits": ("wait", device.wait_rows),
    "annotations": ("annotation", host.annotation_rows),
    "memory": ("memory", host.memory_rows),
    "strange": ("strange", device.strange_rows),
    "either_tasks": ("either", device.strange_rows),
    "either_calls": ("either", host.api_rows),
    "session": ("session", lambda events: events.select("start_ns", "end_ns")),
}

_LATEST_BASE_NS = 1 << 61  # in the year 2043; times of events are added to it


def read(path: Path, *, most_bytes: int | None = None) -> Tables:
    """Read a trace of the PyTorch profiler (`.json` or `.json.gz`); times become epoch time where the trace knows it.

    Args:
        path: the trace.
        most_bytes: bytes that it may unpack to.
    """
    quality: list[pl.DataFrame] = []
    header: dict[str, Any] = {}
    parts: defaultdict[str, list[pl.DataFrame]] = defaultdict(list)
    found: Counter[tuple[Issue, str]] = Counter()
    # One chunk is sorted into tables while the next is read.
    with ThreadPoolExecutor(1) as worker:
        chunks = read_events(path, ARGS, quality=quality, header=header, guards=GUARDS, most_bytes=most_bytes)
        for future in [worker.submit(_add_chunk, events, parts, found) for events in chunks]:
            future.result()
    labels = _labels(parts)
    categories = frozenset(pl.concat(parts.pop("categories", [pl.DataFrame({"cat": []}, {"cat": pl.String})]))["cat"].to_list())
    _sort_either(parts, labels)
    _sort_strange(parts, labels, found)
    if not any(frames for name, frames in parts.items() if name in _READERS):
        raise CaptureError(
            "the trace has no event of the PyTorch profiler",
            where=str(path),
            cause=", ".join(f"{count} of {what}" for (_, what), count in found.items()) or "the list of events is empty",
            fix="give a trace that torch.profiler wrote (export_chrome_trace or tensorboard_trace_handler)",
        )
    base_ns = _base(header, found)
    tables, loose = _tables(parts, base_ns)
    found[issues.UNPAIRED_RECORD, "flow events"] += loose
    if "counter" in parts:
        tables = tables.replace(counters=read_counters(path, base_ns))
    session = _session(parts, base_ns)
    quality += [lost(issue, path.name, count, what) for (issue, what), count in found.items()]
    return tables.replace(
        meta=facts_of(path, header, tables, session, frozenset(labels.values()) | categories).table()
    ).with_quality(*quality)


def _base(header: dict[str, Any], found: Counter[tuple[Issue, str]]) -> int:
    """What the times of a trace count from; 0 where it does not say, or says what no clock shows."""
    base_ns = header.get("baseTimeNanoseconds", 0)
    if isinstance(base_ns, int) and 0 <= base_ns < _LATEST_BASE_NS:
        return base_ns
    found[issues.UNREADABLE_VALUE, "baseTimeNanoseconds"] += 1
    return 0


def _add_chunk(events: pl.DataFrame, parts: dict[str, list[pl.DataFrame]], found: Counter[tuple[Issue, str]]) -> None:
    """Add the rows of one chunk to each table's parts."""
    events = with_table_names(_with_threads(events)).filter(pl.col("to").is_not_null())
    groups = dict(events.group_by("to").len().iter_rows())
    for group, count in groups.items():
        if group.startswith("unknown:"):
            found[issues.UNKNOWN_KIND, group.removeprefix("unknown:")] += count
    parts["categories"].append(events.select(pl.col("cat").drop_nulls().unique()))
    if "label" in groups:
        of_processes = pl.col("to") == "label"
        parts["labels"].append(events.filter(of_processes).select("pid", label="args.labels").drop_nulls())
        events = events.filter(~of_processes)
    events = _with_spans(events, found)
    wanted = {name: work for name, work in _READERS.items() if work[0] in groups}
    plans = [rows(events.lazy().filter(pl.col("to") == group)) for group, rows in wanted.values()]
    flows = [group for group in groups if group.startswith("flow:")]
    if flows:
        plans.append(host.flow_rows(events.lazy().filter(pl.col("to").is_in(flows))))
    for name, frame in zip([*wanted, *(["flows"] if flows else [])], pl.collect_all(plans), strict=True):
        if frame.height:
            parts[name].append(frame)
    if "counter" in groups:
        parts["counter"].append(events.clear())


def _labels(parts: dict[str, list[pl.DataFrame]]) -> dict[int, str]:
    """What each process is, as far as the trace says it: CPU, GPU 0, MTIA 17."""
    chunks = parts.pop("labels", [])
    return dict(pl.concat(chunks).iter_rows()) if chunks else {}


def _sort_either(parts: dict[str, list[pl.DataFrame]], labels: dict[int, str]) -> None:
    """Spans of a category for host and device: on a process that ran operators, or is labelled so, they are calls of the host."""
    tasks, calls = parts.pop("either_tasks", []), parts.pop("either_calls", [])
    if not tasks:
        return
    rows, on_host = pl.concat(tasks), pl.concat(calls)
    hosts = {pid for frame in parts["ops"] for pid in frame["pid"].unique().to_list()}
    hosts |= {pid for pid, label in labels.items() if label == device.HOST}
    flags = rows["pid"].is_in(list(hosts - {pid for pid, label in labels.items() if label != device.HOST}))
    parts["tasks"].append(rows.filter(~flags).drop("pid", "cat", "marked"))
    parts["api_calls"].append(on_host.filter(flags))


def _sort_strange(parts: dict[str, list[pl.DataFrame]], labels: dict[int, str], found: Counter[tuple[Issue, str]]) -> None:
    """Spans of unknown categories: those of a device become tasks, the others are counted as lost."""
    chunks = parts.pop("strange", [])
    if not chunks:
        return
    rows = pl.concat(chunks)
    flags = device.on_device(rows, labels)
    for issue, some in ((issues.UNKNOWN_DEVICE_CATEGORY, rows.filter(flags)), (issues.UNKNOWN_KIND, rows.filter(~flags))):
        for category, count in some.group_by("cat").len().iter_rows():
            found[issue, f"cat {category or 'none'}"] += count
    if flags.any():
        parts["tasks"].append(rows.filter(flags).drop("pid", "cat", "marked"))


def _with_threads(events: pl.DataFrame) -> pl.DataFrame:
    """Numbers for lanes that a trace names: `stream 7` of 2021, `1102 (python)`."""
    numbers = []
    for name in ("pid", "tid"):
        if events[f"{name}_text"].null_count() < events.height:
            number = pl.col(f"{name}_text").str.extract(r"(-?\d+)").cast(pl.Int64, strict=False)
            numbers.append(pl.coalesce(name, number).alias(name))
    return events.with_columns(numbers)


def _with_spans(events: pl.DataFrame, found: Counter[tuple[Issue, str]]) -> pl.DataFrame:
    """Half-open spans; a negative or absent length becomes 0 and is counted."""
    timed = events.filter(pl.col("ts_ns").is_not_null())
    found[issues.EVENT_WITHOUT_TIME, ""] += events.height - timed.height
    span = (pl.col("ph") == "X") & (pl.col("to") != "strange")
    wrong = timed.select(
        absent=(span & pl.col("dur_ns").is_null()).sum(), negative=(span & (pl.col("dur_ns") < 0)).sum()
    ).row(0)  # fmt: skip
    found[issues.INVALID_DURATION, "incomplete range"] += wrong[0]
    found[issues.INVALID_DURATION, "negative"] += wrong[1]
    length = pl.col("dur_ns").fill_null(0).clip(0)
    return timed.with_columns(
        start_ns="ts_ns", end_ns=pl.col("ts_ns") + length.round().cast(pl.Int64, strict=False).fill_null(0), duration_ns=length
    )


def _tables(parts: dict[str, list[pl.DataFrame]], base_ns: int) -> tuple[Tables, int]:
    """The tables of all chunks together, and the number of loose ends of arrows."""
    frames: dict[str, pl.DataFrame] = {}
    operators = ALL_TABLES["ops"].empty()
    if parts["ops"]:
        frames["ops"] = operators = host.ops(_concat(parts["ops"], base_ns))
        frames["steps"] = host.steps(operators)
    for name in ("python_calls", "api_calls"):
        if parts[name]:
            frames[name] = ALL_TABLES[name].conform(_concat(parts[name], base_ns))
    if parts["tasks"]:
        described = pl.concat(parts["collective_ops"]) if parts["collective_ops"] else _no_collective_ops(parts["tasks"][0])
        tasks = device.tasks(_concat(parts["tasks"], base_ns), described)
        frames["kernels"] = ALL_TABLES["kernels"].conform(tasks.drop("op_type"))
        frames["collectives"] = collectives(tasks)
    if parts["waits"]:
        frames["waits"] = ALL_TABLES["waits"].conform(_concat(parts["waits"], base_ns))
    if parts["annotations"]:
        frames["marks"] = host.marks(_concat(parts["annotations"], base_ns), operators)
    if parts["memory"]:
        frames["memory_events"] = ALL_TABLES["memory_events"].conform(_concat(parts["memory"], base_ns))
    loose = 0
    if parts["flows"]:
        frames["flows"], loose = host.flows(_concat(parts["flows"], base_ns))
    return Tables(frames), loose


def _no_collective_ops(tasks: pl.DataFrame) -> pl.DataFrame:
    return tasks.clear().select("external_id", *device.COLLECTIVE_COLUMNS)


def _concat(chunks: list[pl.DataFrame], base_ns: int) -> pl.DataFrame:
    """All chunks as one frame, times moved to the epoch; the chunks are released."""
    whole = pl.concat(chunks)
    chunks.clear()
    times = [name for name in whole.columns if name.endswith("_ns") and whole.schema[name] == pl.Int64()]
    return whole.with_columns(pl.col(times) + base_ns) if base_ns else whole


def _session(parts: dict[str, list[pl.DataFrame]], base_ns: int) -> tuple[int, int] | None:
    if not parts["session"]:
        return None
    start, end = pl.concat(parts["session"]).select(pl.col("start_ns").min(), pl.col("end_ns").max()).row(0)
    return int(start) + base_ns, int(end) + base_ns
