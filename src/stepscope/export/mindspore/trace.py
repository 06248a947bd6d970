# SPDX-License-Identifier: Apache-2.0
"""trace_view.json with MindSpore's lanes: framework, CPU kernels, scopes, then the device (docs/formats/mindspore.md 10)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from stepscope.analysis.mindspore.scopes import scope_bars
from stepscope.export.trace.counters import counter_events
from stepscope.export.trace.flows import device_flows
from stepscope.export.trace.spans import device_spans
from stepscope.export.trace.timeline import Timeline, lay_out
from stepscope.export.trace.view import has_events, metadata, write_array
from stepscope.formats.ascend.trace import FILE, args
from stepscope.formats.ascend.trace.layers import CPU_KERNELS, MINDSPORE, MINDSPORE_FLOW, PYTHON_CALL, SCOPES, MindSporeLayer
from stepscope.render.atomic import replacing
from stepscope.render.lines import Lines, Numbers, Part, Text, Whole
from stepscope.render.microseconds import MicrosecondText
from stepscope.render.number_forms import THOUSANDTHS
from stepscope.tables import ALL_TABLES, Tables

PROCESSOR = "CPU"  # core of a kernel that ran on no device
_HOST_TABLES = ("ops", "python_calls", "queue", "gc_pauses", "flows", "steps")


def write(tables: Tables, folder: Path) -> list[Path]:
    """Write the timeline; nothing when the capture has no event."""
    if not has_events(tables):
        return []
    path = folder / FILE
    with replacing(path) as handle:
        write_array(events(tables), handle)
    return [path]


def events(tables: Tables) -> Iterator[Lines]:
    """Every lane with its names first, then the arrows from the framework to the device."""
    yield _names(MINDSPORE, pl.concat([tables.ops["tid"], tables.python_calls["tid"]]))
    yield from _ranges(tables.ops)
    yield _spans(MINDSPORE, tables.python_calls, "tid", PYTHON_CALL)
    yield from _own_flows(tables.flows)
    on_processor = (pl.col("core") == PROCESSOR).fill_null(False)
    kernels = tables.kernels.filter(on_processor)
    yield _names(CPU_KERNELS, kernels["stream"])
    yield _spans(CPU_KERNELS, kernels, "stream", "", args.written(args.CPU_KERNELS))
    yield from _device(tables.replace(kernels=tables.kernels.filter(~on_processor)))
    bars = scope_bars(tables)
    yield _names(SCOPES, bars["depth"])
    yield _spans(SCOPES, bars, "depth")


def _ranges(ops: pl.DataFrame) -> Iterator[Lines]:
    """Spans; a moment is an instant event."""
    moment = pl.col("start_ns") == pl.col("end_ns")
    yield _spans(MINDSPORE, ops.filter(~moment), "tid")
    moments = ops.filter(moment)
    place: list[Part] = [
        f'", "pid": {MINDSPORE.pid}, "tid": ',
        Whole("tid", "0"),
        ', "ts": "',
        Numbers(moments["start_ns"], THOUSANDTHS),
    ]
    yield Lines(moments, [', {"ph": "i", "name": "', Text("name"), *place, '", "cat": "", "args": {}}'])


def _spans(lane: MindSporeLayer, frame: pl.DataFrame, tid: str, category: str = "", parts: Sequence[Part] = ()) -> Lines:
    length = frame["end_ns"] - frame["start_ns"]
    place: list[Part] = [f'", "pid": {lane.pid}, "tid": ', Whole(tid, "0"), ', "ts": "', Numbers(frame["start_ns"], THOUSANDTHS)]
    rest: list[Part] = ['", "dur": "', Numbers(length, THOUSANDTHS), f'", "cat": "{category}", "args": {{', *parts, "}}"]
    return Lines(frame, [', {"ph": "X", "name": "', Text("name"), *place, *rest])


def _names(lane: MindSporeLayer, tids: pl.Series) -> Lines:
    found = tids.fill_null(0).unique(maintain_order=True).to_list()
    rows = [("process_name", 0, f'"name": "{lane.name}"'), ("process_sort_index", 0, f'"sort_index": {lane.sort}')]
    if lane.label:
        rows.append(("process_labels", 0, f'"labels": "{lane.label}"'))
    for tid in found:
        rows += [("thread_name", tid, f'"name": "Thread {tid}"'), ("thread_sort_index", tid, f'"sort_index": {tid}')]
    texts = [f', {{"ph": "M", "name": "{name}", "pid": {lane.pid}, "tid": {tid}, "args": {{{args}}}}}' for name, tid, args in rows]
    return Lines(pl.DataFrame({"line": texts if found else []}, schema={"line": pl.String}), [pl.col("line")])


def _own_flows(flows: pl.DataFrame) -> Iterator[Lines]:
    category, name = MINDSPORE_FLOW
    rows = flows.filter(pl.col("kind") == name)
    for side, phase in (("from", "s"), ("to", "f")):
        ends = rows.select(pl.col("id").reinterpret(signed=False), tid=f"{side}_tid", start_ns=f"{side}_ns")
        yield _arrows(ends, phase, name, category, MINDSPORE.pid)


def _arrows(ends: pl.DataFrame, phase: str, name: str, category: str, pid: int | None) -> Lines:
    process: list[Part] = [f"{pid}"] if pid is not None else [Whole("pid")]
    head = f', {{"name": "{name}", "bp": "e", "ph": "{phase}", "ts": "'
    place: list[Part] = [Numbers(ends["start_ns"], THOUSANDTHS), '", "pid": ', *process, ', "tid": ', Whole("tid", "0")]
    return Lines(ends, [head, *place, ', "id": "', pl.col("id").cast(pl.String), f'", "cat": "{category}"}}'])


def _device(tables: Tables) -> Iterator[Lines]:
    """What CANN shows of the device, and which range of the framework launched what."""
    # The overlap analysis is about a device; the work of the processor shows in its own lane.
    idle = () if tables.kernels.height or tables.collectives.height else ("overlap",)
    bare = tables.replace(**{name: ALL_TABLES[name].empty() for name in (*_HOST_TABLES, *idle)})
    timeline, clock = lay_out(bare), MicrosecondText()
    pruned = tables.facts.level == "Level0"
    yield from device_spans(timeline, clock, with_api=not pruned)
    yield from counter_events(timeline, tables.counters, clock)
    yield from device_flows(timeline, clock)
    yield metadata(timeline)
    yield from _launches(tables, timeline)


def _launches(tables: Tables, timeline: Timeline) -> Iterator[Lines]:
    for name in ("kernels", "collectives"):
        tasks = timeline[name].filter(pl.col("op").is_not_null())
        if not tasks.height:
            continue
        ident = pl.Series("id", tasks["start_ns"].cast(pl.String).str.replace(r"(\d{3})$", ".$1"))
        owners = pl.DataFrame({key: tables.ops[key].gather(tasks["op"]) for key in ("tid", "start_ns")}).with_columns(ident)
        yield _arrows(owners, "s", "mindspore_to_npu", "async_npu", MINDSPORE.pid)
        yield _arrows(tasks.select("pid", "tid", "start_ns").with_columns(ident), "f", "mindspore_to_npu", "async_npu", None)
