# SPDX-License-Identifier: Apache-2.0
"""A trace for Perfetto: the events of trace_view.json with numeric times that keep every nanosecond, all spans nested.

`ts` counts microseconds from the first event; `otherData.baseTimeNanoseconds` is that event's time since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from stepscope.errors import CaptureError
from stepscope.export.trace.arrows import arrow_events
from stepscope.export.trace.counters import counter_events
from stepscope.export.trace.lanes import SPANS, with_lanes
from stepscope.export.trace.spans import device_spans, gc_spans, operator_spans, python_spans
from stepscope.export.trace.timeline import Timeline, lay_out
from stepscope.export.trace.view import has_events, metadata, write_array
from stepscope.formats.ascend.trace.layers import CANN
from stepscope.render.atomic import replacing
from stepscope.render.gzip_stream import packed
from stepscope.render.lines import Lines
from stepscope.render.microseconds import RelativeNumber, TimeText
from stepscope.tables import Tables


def write_perfetto(tables: Tables, path: Path) -> Path:
    """Write the trace; compressed when the name ends in `.gz`."""
    if not has_events(tables):
        raise CaptureError("nothing to show: the capture has no event", fix="capture with at least one activity")
    timeline = lay_out(tables)
    base = _first_ns(tables, timeline)
    with replacing(path) as handle, packed(handle, path.suffix == ".gz") as sink:
        head = f'{{"displayTimeUnit": "ns", "otherData": {{"baseTimeNanoseconds": "{base}"}}, "traceEvents": '
        sink.write(memoryview(head.encode()))
        write_array(_events(tables, timeline, RelativeNumber(base)), sink)
        sink.write(memoryview(b"}"))
    return path


def _events(tables: Tables, timeline: Timeline, clock: TimeText) -> Iterator[Lines]:
    """The events of trace_view.json, outer spans first, arrows as Perfetto wants them."""
    pruned = tables.facts.level == "Level0"
    hidden = {"api_calls"} if pruned and timeline.is_npu else set()
    hidden |= set() if timeline.is_npu else {"collectives", "transfers"}  # collectives of a GPU are kernels
    nested = with_lanes(timeline)
    arrows = list(arrow_events(timeline, nested, tuple(name for name in SPANS if name not in hidden), clock))
    nested = _longest_first(nested)
    for part in (python_spans, operator_spans, gc_spans):
        yield from part(nested, clock)
    yield from device_spans(nested, clock, with_api=not pruned)
    yield from counter_events(nested, tables.counters, clock)
    yield from arrows
    yield metadata(nested, without=CANN.name if pruned else None)


def _longest_first(timeline: Timeline) -> Timeline:
    frames = {
        name: frame.sort("start_ns", "end_ns", descending=[False, True], maintain_order=True)
        for name, frame in timeline.frames.items()
    }
    return replace(timeline, frames=frames)


def _first_ns(tables: Tables, timeline: Timeline) -> int:
    """Time of the first event of any kind."""
    starts = [frame["start_ns"].min() for frame in timeline.frames.values()]
    starts += [tables.counters["time_ns"].min(), tables.flows["from_ns"].min(), tables.flows["to_ns"].min()]
    starts += [tables[name]["launch_ns"].min() for name in ("kernels", "collectives")]
    return min((start for start in starts if isinstance(start, int)), default=0)
