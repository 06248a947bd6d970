# SPDX-License-Identifier: Apache-2.0
"""A trace for Perfetto: the events of trace_view.json with numeric times that keep every nanosecond, all spans nested.

`ts` counts microseconds from the first event; `otherData.baseTimeNanoseconds` is that event's time since the epoch.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stepscope.errors import CaptureError
from stepscope.export.trace.lanes import with_lanes
from stepscope.export.trace.timeline import Timeline, lay_out
from stepscope.export.trace.view import events, has_events, write_array
from stepscope.render.atomic import ByteSink, replacing
from stepscope.render.microseconds import RelativeNumber
from stepscope.tables import Tables

_GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_LEVEL = 4  # level 6 takes twice the time for 8 % less


def write_perfetto(tables: Tables, path: Path) -> Path:
    """Write the trace; compressed when the name ends in `.gz`."""
    if not has_events(tables):
        raise CaptureError("nothing to show: the capture has no event", fix="capture with at least one activity")
    timeline = with_lanes(lay_out(tables))
    base = _first_ns(tables, timeline)
    with replacing(path) as handle, _sink(handle, path.suffix == ".gz") as sink:
        head = f'{{"displayTimeUnit": "ns", "otherData": {{"baseTimeNanoseconds": "{base}"}}, "traceEvents": '
        sink.write(memoryview(head.encode()))
        write_array(events(tables, timeline, RelativeNumber(base)), sink)
        sink.write(memoryview(b"}"))
    return path


def _first_ns(tables: Tables, timeline: Timeline) -> int:
    """Time of the first event of any kind."""
    starts = [frame["start_ns"].min() for frame in timeline.frames.values()]
    starts += [tables.counters["time_ns"].min(), tables.flows["from_ns"].min(), tables.flows["to_ns"].min()]
    starts += [tables[name]["launch_ns"].min() for name in ("kernels", "collectives")]
    return min((start for start in starts if isinstance(start, int)), default=0)


class _Gzip:
    """One gzip stream; the events come in large pieces, so each is compressed as it comes."""

    def __init__(self, handle: ByteSink):
        self._handle = handle
        self._pack = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
        self._check, self._size = 0, 0
        handle.write(memoryview(_GZIP_HEADER))

    def write(self, data: memoryview, /) -> None:
        self._check = zlib.crc32(data, self._check)
        self._size += len(data)
        self._handle.write(memoryview(self._pack.compress(data)))

    def finish(self) -> None:
        self._handle.write(memoryview(self._pack.flush()))
        tail = self._check.to_bytes(4, "little") + (self._size & 0xFFFFFFFF).to_bytes(4, "little")
        self._handle.write(memoryview(tail))


@contextmanager
def _sink(handle: ByteSink, compressed: bool) -> Iterator[ByteSink]:
    if not compressed:
        yield handle
        return
    packed = _Gzip(handle)
    yield packed
    packed.finish()
