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

_GPU_TURNS = {"memcpy": 0, "memset": 1}  # kinds of GPU tasks that are written before all others


def host_spans(timeline: Timeline, clock: TimeText) -> Iterator[Lines]:
    """Operators, task queue, Python calls and garbage collections."""
    yield from operator_spans(timeline, clock)
    yield from python_spans(timeline, clock)
    yield from gc_spans(timeline, clock)


def operator_spans(timeline: Timeline, clock: TimeText) -> Iterator[Lines]:
    yield _host(clock, timeline["ops"], [Text("name")], OPERATOR, args.written(args.OPS))
    for kind in ("enqueue", "dequeue"):
        rows = timeline["queue"].filter(pl.col("kind") == kind)
        yield _host(clock, rows, [kind.capitalize(), Text("name", _after_at)], kind, args.written(args.QUEUE))


def python_spans(timeline: Timeline, clock: TimeText) -> Iterator[Lines]:
    yield _host(clock, timeline["python_calls"], [Text("name")], PYTHON_CALL, args.written(args.PYTHON_CALLS))


def gc_spans(timeline: Timeline, clock: TimeText) -> Iterator[Lines]:
    yield _host(clock, timeline["gc_pauses"], [GC], GC, [])


def turns(timeline: Timeline, name: str) -> pl.Series:
    """Which of the spans of one frame are written before which: they are written group by group."""
    frame = timeline[name]
    match name:
        case "queue":
            turn = pl.col("kind") == "dequeue"
        case "marks":
            turn = ~_is_named()
        case "api_calls":
            known = {level: number for number, level in enumerate(_levels(frame))}
            turn = pl.col("level").cast(pl.String).replace_strict(known, default=0, return_dtype=pl.Int64)
        case "kernels" if not timeline.is_npu:
            turn = pl.col("kind").cast(pl.String).replace_strict(_GPU_TURNS, default=len(_GPU_TURNS), return_dtype=pl.Int64)
        case _:
            return pl.zeros(frame.height, pl.Int64, eager=True)
    return frame.select(turn.cast(pl.Int64).fill_null(0)).to_series()


def _levels(frame: pl.DataFrame) -> list[str | None]:
    """Levels of API calls, outer ones first: a call of a GPU's runtime holds that of its driver."""
    levels = frame["level"].unique().cast(pl.String).sort().to_list()
    return sorted(levels, key=lambda level: (level or "").endswith("_driver"))


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
    yield from _task_parts(timeline["task_parts"], clock)
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
    for level in _levels(frame):
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


def _is_named() -> pl.Expr:
    return pl.col("connection_id").is_not_null() | pl.col("domain").is_not_null()


def _marks(timeline: Timeline, clock: TimeText) -> Iterator[Lines]:
    marks = timeline["marks"]
    named = _is_named()
    yield _device(clock, marks.filter(named), [Text("message")], args.written(args.select(args.MARKS, "kind", "domain")))
    category, kind = (args.written(args.select(args.MARKS, key)) for key in ("category", "kind"))
    payload = ', "Payload_type": 0, "Payload_value": 0, "Message_type": 0, '
    yield _device(clock, marks.filter(~named), [Text("message")], [*category, payload, *kind])
    parts = args.written(args.select(args.TASKS, "stream", "task_id"), task_id=str(NONE32))
    yield _device(clock, timeline["device_marks"], [Text("message")], parts)


def _task_parts(frame: pl.DataFrame, clock: TimeText) -> Iterator[Lines]:
    fusion = pl.col("kind").cast(pl.String) == "fusion"
    yield _device(clock, frame.filter(fusion), [Text("name")], args.written(args.FUSIONS))
    yield _device(clock, frame.filter(~fusion), [Text("name")], args.written(args.BLOCKS, batch_id="0", context_id=str(NONE32)))


def _gpu_spans(timeline: Timeline, clock: TimeText) -> Iterator[Lines]:
    """Runtime calls and device tasks with the names and categories that PyTorch's own traces have."""
    calls = timeline["api_calls"]
    for level in filter(None, _levels(calls)):
        parts = args.written(args.select(args.GPU_TASKS, "connection_id"))
        yield _host(clock, calls.filter(pl.col("level") == level), [Text("name")], escaped(level), parts)
    kernels = timeline["kernels"]
    shape = {name: pl.lit("[") + pl.col(name).cast(pl.String) + pl.lit("]") for name in ("grid", "block")}
    parts = args.written(args.GPU_TASKS, **shape)
    for kind, category in (*((kind, f"gpu_{kind}") for kind in _GPU_TURNS), (None, "kernel")):
        other = ~pl.col("kind").is_in(list(_GPU_TURNS)).fill_null(False)
        rows = kernels.filter(other if kind is None else pl.col("kind") == kind)
        yield _host(clock, rows, [Text("name")], category, parts)
    waits = args.written(args.select(args.GPU_TASKS, "device", "stream", "connection_id"))
    yield _host(clock, timeline["waits"], [Text("name")], "cuda_sync", waits)


def _after_at(text: str) -> str:
    return f"@{escaped(text)}"
