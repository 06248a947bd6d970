# SPDX-License-Identifier: Apache-2.0
"""The spans of a timeline as JSON events: host part and device part (docs/formats/outputs.md 3.1, 3.3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from stepscope.analysis.sub_tasks import without_parents
from stepscope.export.trace.timeline import Timeline
from stepscope.formats import NONE32
from stepscope.formats.ascend.trace import args
from stepscope.formats.ascend.trace.layers import API_PREFIX, GC, OPERATOR, PYTHON_CALL
from stepscope.render.json_text import escaped, number
from stepscope.render.lines import Lines, Part, Text, Whole
from stepscope.render.microseconds import TimeText


def host_spans(timeline: Timeline, clock: TimeText) -> Iterator[Lines]:
    """Operators, task queue, Python calls and garbage collections."""
    yield _host(clock, timeline["ops"], [Text("name")], OPERATOR, args.written(args.OPS))
    for kind in ("enqueue", "dequeue"):
        rows = timeline["queue"].filter(pl.col("kind") == kind)
        yield _host(clock, rows, [kind.capitalize(), Text("name", _after_at)], kind, args.written(args.QUEUE))
    yield _host(clock, timeline["python_calls"], [Text("name")], PYTHON_CALL, args.written(args.PYTHON_CALLS))
    yield _host(clock, timeline["gc_pauses"], [GC], GC, [])


def device_spans(timeline: Timeline, clock: TimeText, *, with_api: bool) -> Iterator[Lines]:
    """Runtime calls, marks, device tasks, communication and the overlap analysis."""
    if timeline.is_npu:
        if with_api:
            yield from _api_calls(timeline["api_calls"], clock)
        tasks = without_parents(timeline["kernels"])
        yield _device(clock, tasks, [Text("name")], _task_args(tasks))
        yield _device(clock, timeline["collectives"], [Text("name")], args.written(args.COLLECTIVES))
        yield _device(clock, timeline["transfers"], [Text("task_type")], args.written(args.TRANSFERS))
    else:
        yield from _gpu_spans(timeline, clock)
    yield from _marks(timeline, clock)
    yield _device(clock, timeline["overlap"], [Text("layer")], [])


def _host(clock: TimeText, frame: pl.DataFrame, name: Sequence[Part], category: str, parts: Sequence[Part]) -> Lines:
    place = ['", "pid": ', Whole("pid"), ', "tid": ', Whole("tid"), ', "ts": ', *clock.at(frame, "start_ns")]
    rest = [', "dur": ', *clock.lasting(frame), f', "cat": "{category}", "args": {{', *parts, "}}"]
    return Lines(frame, [', {"ph": "X", "name": "', *name, *place, *rest])


def _device(clock: TimeText, frame: pl.DataFrame, name: Sequence[Part], parts: Sequence[Part], category: str = "") -> Lines:
    place = ['", "pid": ', Whole("pid"), ', "tid": ', Whole("tid"), ', "ts": ', *clock.at(frame, "start_ns")]
    cat = f', "cat": "{category}"' if category else ""
    rest = [', "dur": ', *clock.lasting(frame), f', "ph": "X"{cat}, "args": {{', *parts, "}}"]
    return Lines(frame, [', {"name": "', *name, *place, *rest])


def _api_calls(frame: pl.DataFrame, clock: TimeText) -> Iterator[Lines]:
    """`Level@api` with its arguments (docs/formats/outputs.md 3.3); only calls of level acl carry their name as id."""
    for level in frame["level"].unique().cast(pl.String).sort().to_list():
        rows = frame.filter(pl.col("level").eq_missing(pl.lit(level)))
        own = Text("name") if level == "acl" else "0"
        parts = args.written(args.API_CALLS, level=escaped(level or ""), id=own)
        yield _device(clock, rows, [f"{API_PREFIX.get(level or '', 'Api')}@", Text("name")], parts)


def _task_args(frame: pl.DataFrame) -> list[Part]:
    parts = args.written(args.TASKS)
    if frame["bytes"].count():
        # bytes per nanosecond are GB per second
        rate = number(pl.col("bytes") / (pl.col("end_ns") - pl.col("start_ns")))
        parts += args.optional(args.COPIES, rate=pl.when(pl.col("bytes").is_not_null()).then(rate))
    if frame["grid"].count():
        parts += args.optional(args.GRIDS)
    return parts


def _marks(timeline: Timeline, clock: TimeText) -> Iterator[Lines]:
    marks = timeline["marks"]
    named = pl.col("connection_id").is_not_null() | pl.col("domain").is_not_null()
    yield _device(clock, marks.filter(named), [Text("message")], args.written(args.select(args.MARKS, "kind", "domain")))
    category, kind = (args.written(args.select(args.MARKS, key)) for key in ("category", "kind"))
    payload = ', "Payload_type": 0, "Payload_value": 0, "Message_type": 0, '
    yield _device(clock, marks.filter(~named), [Text("message")], [*category, payload, *kind])
    parts = args.written(args.select(args.TASKS, "stream", "task_id"), task_id=str(NONE32))
    yield _device(clock, timeline["device_marks"], [Text("message")], parts)


def _gpu_spans(timeline: Timeline, clock: TimeText) -> Iterator[Lines]:
    """Runtime calls and device tasks with the names and categories that PyTorch's own traces have."""
    calls = timeline["api_calls"]
    for level in calls["level"].unique().drop_nulls().cast(pl.String).sort().to_list():
        parts = args.written(args.select(args.GPU_TASKS, "connection_id"))
        yield _host(clock, calls.filter(pl.col("level") == level), [Text("name")], escaped(level), parts)
    kernels = timeline["kernels"]
    shape = {name: pl.lit("[") + pl.col(name).cast(pl.String) + pl.lit("]") for name in ("grid", "block")}
    parts = args.written(args.GPU_TASKS, **shape)
    for kind, category in (("memcpy", "gpu_memcpy"), ("memset", "gpu_memset"), (None, "kernel")):
        other = ~pl.col("kind").is_in(["memcpy", "memset"]).fill_null(False)
        rows = kernels.filter(other if kind is None else pl.col("kind") == kind)
        yield _host(clock, rows, [Text("name")], category, parts)


def _after_at(text: str) -> str:
    return f"@{escaped(text)}"
