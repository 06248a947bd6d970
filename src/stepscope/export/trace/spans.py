# SPDX-License-Identifier: Apache-2.0
"""The spans of a timeline as JSON events: host part and device part (outputs.md 3.1, 3.3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from stepscope.analysis.sub_tasks import without_parents
from stepscope.export.trace.timeline import Timeline
from stepscope.formats import NONE32
from stepscope.render.json_text import escaped, number, several_lines
from stepscope.render.lines import Label, Lines, Part, Text, Whole
from stepscope.render.microseconds import TimeText

_NONE = str(NONE32)
NO_NOTIFY = "18446744073709551615"
API_PREFIX = {"acl": "AscendCL", "model": "Model", "node": "Node", "communication": "Communication", "runtime": "Runtime"}


def host_spans(timeline: Timeline, clock: TimeText) -> Iterator[Lines]:
    """Operators, task queue, Python calls and garbage collections."""
    yield _host(clock, timeline["ops"], [Text("name")], "cpu_op", _op_args())
    correlation: list[Part] = ['"correlation_id": ', Whole("correlation_id", "-1")]
    for kind, word in (("enqueue", "Enqueue"), ("dequeue", "Dequeue")):
        rows = timeline["queue"].filter(pl.col("kind") == kind)
        yield _host(clock, rows, [word, Text("name", _after_at)], kind, correlation)
    yield _host(clock, timeline["python_calls"], [Text("name")], "python_function", _python_args())
    yield _host(clock, timeline["gc_pauses"], ["GC"], "GC", [])


def device_spans(timeline: Timeline, clock: TimeText, *, with_api: bool) -> Iterator[Lines]:
    """Runtime calls, marks, device tasks, communication and the overlap analysis."""
    if timeline.is_npu:
        if with_api:
            yield from _api_calls(timeline["api_calls"], clock)
        tasks = without_parents(timeline["kernels"])
        yield _device(clock, tasks, [Text("name")], _task_args(tasks))
        yield _device(clock, timeline["collectives"], [Text("name")], _collective_args())
        yield _device(clock, timeline["transfers"], [Text("task_type")], _transfer_args())
    else:
        yield from _gpu_spans(timeline, clock)
    yield from _marks(timeline, clock)
    yield _device(clock, timeline["overlap"], [Text("layer")], [])


def _host(clock: TimeText, frame: pl.DataFrame, name: Sequence[Part], category: str, args: Sequence[Part]) -> Lines:
    place = ['", "pid": ', Whole("pid"), ', "tid": ', Whole("tid"), ', "ts": ', *clock.at(frame, "start_ns")]
    rest = [', "dur": ', *clock.lasting(frame), f', "cat": "{category}", "args": {{', *args, "}}"]
    return Lines(frame, [', {"ph": "X", "name": "', *name, *place, *rest])


def _device(clock: TimeText, frame: pl.DataFrame, name: Sequence[Part], args: Sequence[Part], category: str = "") -> Lines:
    place = ['", "pid": ', Whole("pid"), ', "tid": ', Whole("tid"), ', "ts": ', *clock.at(frame, "start_ns")]
    cat = f', "cat": "{category}"' if category else ""
    rest = [', "dur": ', *clock.lasting(frame), f', "ph": "X"{cat}, "args": {{', *args, "}}"]
    return Lines(frame, [', {"name": "', *name, *place, *rest])


def _op_args() -> list[Part]:
    return [
        '"Sequence number": ', Whole("seq", "-1"), ', "Fwd thread id": ', Whole("fwd_thread", "0"),
        Text("shapes", lambda text: _arg("Input Dims", several_lines(text))),
        Text("dtypes", lambda text: _arg("Input type", several_lines(text))),
        Text("stack", lambda text: _arg("Call stack", several_lines(text))),
        Text("modules", lambda text: _arg("Module Hierarchy", text)),
        *_optional("flops"),
    ]  # fmt: skip


def _python_args() -> list[Part]:
    return [
        '"Python id": ', Whole("call_id", "0"), ', "Python parent id": ', Whole("parent_id", "0"),
        *_optional("Python module id", "module_id"),
    ]  # fmt: skip


def _api_calls(frame: pl.DataFrame, clock: TimeText) -> Iterator[Lines]:
    """`Level@api` with its arguments (outputs.md 3.3); only calls of level acl carry their name as id."""
    for level in frame["level"].unique().cast(pl.String).sort().to_list():
        rows = frame.filter(pl.col("level").eq_missing(pl.lit(level)))
        args: list[Part] = [
            '"Thread Id": ', Whole("tid", "0"), ', "Mode": "', Text("mode"), f'", "level": "{escaped(level or "")}", "id": "',
            Text("name") if level == "acl" else "0", '", "item_id": "', Text("item_id", missing="0"),
            '", "connection_id": ', Whole("connection_id", "-1"),
        ]  # fmt: skip
        yield _device(clock, rows, [f"{API_PREFIX.get(level or '', 'Api')}@", Text("name")], args)


def _task_args(frame: pl.DataFrame) -> list[Part]:
    args: list[Part] = [
        '"Model Id": ', Whole("model_id", _NONE), ', "Task Type": "', Text("task_type", missing="N/A"),
        '", "Physic Stream Id": ', Whole("stream", "0"), ', "Task Id": ', Whole("task_id", _NONE),
        ', "Batch Id": ', Whole("batch_id", "0"), ', "Subtask Id": ', Whole("context_id", _NONE),
        ', "connection_id": ', Whole("connection_id", "-1"),
    ]  # fmt: skip
    if frame["bytes"].count():
        # bytes per nanosecond are GB per second
        rate = number(pl.col("bytes") / (pl.col("end_ns") - pl.col("start_ns")))
        args += _optional("size(B)", "bytes")
        args.append(_value("bandwidth(GB/s)", pl.when(pl.col("bytes").is_not_null()).then(rate)))
        args.append(Text("copy_direction", lambda text: _arg("operation", text)))
    if frame["grid"].count():
        args.append(Text("grid", lambda text: _arg("Grid Dim", text)))
        args.append(Text("block", lambda text: _arg("Block Dim", text)))
    return args


def _collective_args() -> list[Part]:
    answer = {
        name: pl.when(pl.col(name)).then(pl.lit('"yes"')).when(~pl.col(name)).then(pl.lit('"no"')) for name in ("relay", "retry")
    }
    return [
        (pl.lit('"rank_size": ') + pl.col("rank_size").cast(pl.String) + pl.lit(", ")),
        '"connection_id": ', Whole("connection_id", "-1"), ', "model id": ', Whole("model_id", _NONE),
        ', "data_type": "', Text("data_type", missing="N/A"), '", "alg_type": "', Text("alg_type", missing="N/A"), '"',
        *_optional("count"), *(_value(name, text) for name, text in answer.items()),
    ]  # fmt: skip


def _transfer_args() -> list[Part]:
    return [
        '"notify_id": "', Text("notify_id", missing=NO_NOTIFY), '"',
        _value("duration estimated(us)", number(pl.col("estimated_us"))),
        ', "stream id": ', Whole("stream", _NONE), ', "task id": ', Whole("task_id", _NONE),
        ', "context id": ', Whole("context_id", _NONE), ', "task type": "', Text("task_type"),
        '", "src rank": ', Whole("src_rank", _NONE), ', "dst rank": ', Whole("dst_rank", _NONE),
        ', "transport type": "', Text("transport", missing="INVALID_TYPE"), '", "size(Byte)": ', Whole("bytes", "0"),
        ', "data type": "', Text("data_type", missing="INVALID_TYPE"),
        '", "link type": "', Text("link", missing="INVALID_TYPE"), '"',
        _value("bandwidth(GB/s)", number(pl.col("bandwidth"))), ', "model id": ', Whole("model_id", _NONE),
    ]  # fmt: skip


def _marks(timeline: Timeline, clock: TimeText) -> Iterator[Lines]:
    marks = timeline["marks"]
    named = pl.col("connection_id").is_not_null() | pl.col("domain").is_not_null()
    event_type: list[Part] = ['"event_type": "', Text("kind"), '"']
    domain: list[Part] = [', "domain": "', Text("domain", missing="default"), '"']
    yield _device(clock, marks.filter(named), [Text("message")], [*event_type, *domain])
    payload: list[Part] = ['"Category": ', Whole("category", "0"), ', "Payload_type": 0, "Payload_value": 0, "Message_type": 0, ']
    yield _device(clock, marks.filter(~named), [Text("message")], [*payload, *event_type])
    args: list[Part] = ['"Physic Stream Id": ', Whole("stream", "0"), f', "Task Id": {NONE32}']
    yield _device(clock, timeline["device_marks"], [Text("message")], args)


def _gpu_spans(timeline: Timeline, clock: TimeText) -> Iterator[Lines]:
    """Runtime calls and device tasks with the names and categories that PyTorch's own traces have."""
    calls = timeline["api_calls"]
    for level in calls["level"].unique().drop_nulls().cast(pl.String).sort().to_list():
        args: list[Part] = ['"correlation": ', Whole("connection_id", "0")]
        yield _host(clock, calls.filter(pl.col("level") == level), [Text("name")], escaped(level), args)
    kernels = timeline["kernels"]
    shape = [(name, pl.lit("[") + pl.col(name).cast(pl.String) + pl.lit("]")) for name in ("grid", "block")]
    args = [
        '"device": ', Whole("device", "0"), ', "stream": ', Whole("stream", "0"), ', "correlation": ', Whole("connection_id", "0"),
        *_optional("External id", "external_id"), *_optional("bytes"), *(_value(name, text) for name, text in shape),
        *_optional("registers per thread", "registers"), *_optional("shared memory", "shared_memory"),
        _value("blocks per SM", number(pl.col("blocks_per_sm"))), _value("est. achieved occupancy %", number(pl.col("occupancy"))),
    ]  # fmt: skip
    for kind, category in (("memcpy", "gpu_memcpy"), ("memset", "gpu_memset"), (None, "kernel")):
        other = ~pl.col("kind").is_in(["memcpy", "memset"]).fill_null(False)
        rows = kernels.filter(other if kind is None else pl.col("kind") == kind)
        yield _host(clock, rows, [Text("name")], category, args)


def _optional(name: str, column: str = "") -> list[Part]:
    """A further argument that is an integer, absent where there is none."""
    return [Label(column or name, f', "{name}": '), Whole(column or name)]


def _value(name: str, value: pl.Expr) -> pl.Expr:
    """A further argument, absent where the value is null."""
    return pl.lit(f', "{name}": ') + value


def _arg(name: str, text: str) -> str:
    return f', "{name}": "{escaped(text)}"'


def _after_at(text: str) -> str:
    return f"@{escaped(text)}"
