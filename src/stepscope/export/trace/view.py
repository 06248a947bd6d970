# SPDX-License-Identifier: Apache-2.0
"""trace_view.json: the whole capture as one timeline that trace viewers load (docs/formats/outputs.md 3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import polars as pl

from stepscope.export.trace.counters import counter_events
from stepscope.export.trace.flows import device_flows, host_flows, operator_flows
from stepscope.export.trace.spans import device_spans, host_spans
from stepscope.export.trace.timeline import Timeline, lay_out
from stepscope.render.atomic import ByteSink, replacing
from stepscope.render.json_text import escaped
from stepscope.render.lines import Lines, write_lines
from stepscope.render.microseconds import MicrosecondText, TimeText
from stepscope.tables import Tables

SHOWN = (
    "ops", "python_calls", "queue", "api_calls", "kernels", "collectives", "transfers", "marks", "gc_pauses", "counters"
)  # fmt: skip


def write(tables: Tables, path: Path) -> list[Path]:
    """Write the timeline; nothing when the capture has no event."""
    if not has_events(tables):
        return []
    with replacing(path) as handle:
        write_array(events(tables, lay_out(tables), MicrosecondText()), handle)
    return [path]


def has_events(tables: Tables) -> bool:
    return any(tables[name].height for name in SHOWN)


def write_array(kinds: Iterable[Lines], handle: ByteSink) -> int:
    """Write all events as one JSON array; returns their number."""
    handle.write(memoryview(b"["))
    # Every event begins with the `, ` that parts it from the one before; the first one has none before it.
    count = write_lines(_Without(handle, 2), kinds)
    handle.write(memoryview(b"]"))
    return count


class _Without:
    """Leaves out the first bytes of what is written."""

    def __init__(self, handle: ByteSink, count: int):
        self._handle, self._left_out = handle, count

    def write(self, data: memoryview, /) -> None:
        self._handle.write(data[self._left_out :])
        self._left_out = 0


def events(tables: Tables, timeline: Timeline, clock: TimeText) -> Iterator[Lines]:
    """Framework part, device part, arrows between them, and what the layers are called."""
    pruned = tables.facts.level == "Level0"
    yield from host_spans(timeline, clock)
    yield from host_flows(timeline, clock)
    yield from device_spans(timeline, clock, with_api=not pruned)
    yield from counter_events(timeline, tables.counters, clock)
    yield from device_flows(timeline, clock)
    # Last of the device part: the events above have named their processes and threads by now.
    yield metadata(timeline)
    yield from operator_flows(timeline, clock)


def metadata(timeline: Timeline, *, without: str | None = None) -> Lines:
    """Names, labels and order of processes and threads; not of a layer whose events are left `without`."""
    rows = []
    for process in timeline.processes:
        if process.layer.name == without:
            continue
        entries = [
            ("process_name", 0, f'"name": "{escaped(process.name)}"'),
            ("process_labels", 0, f'"labels": "{escaped(process.label)}"'),
            ("process_sort_index", 0, f'"sort_index": {process.layer.sort}'),
        ]
        for tid, name, sort in timeline.processes.threads(process.pid):
            entries.append(("thread_name", tid, f'"name": "{escaped(name)}"'))
            entries.append(("thread_sort_index", tid, f'"sort_index": {sort}'))
        for kind, tid, args in entries:
            place = f'"pid": {process.pid}, "tid": {tid}'
            if process.layer.framework:
                rows.append(f', {{"ph": "M", "name": "{kind}", {place}, "args": {{{args}}}}}')
            else:
                rows.append(f', {{"name": "{kind}", {place}, "ph": "M", "args": {{{args}}}}}')
    return Lines(pl.DataFrame({"line": rows}, schema={"line": pl.String}), [pl.col("line")])
