# SPDX-License-Identifier: Apache-2.0
"""Events of a Chrome trace, as frames of bounded size with exact times.

Reads a plain list of events (Ascend) and an object with `traceEvents` (Kineto), pretty-printed or compact, gzip or not.
Memory depends on the size of a chunk, not on that of the file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import orjson
import polars as pl

from stepscope.errors import CaptureError
from stepscope.formats.chrome.borders import Events, by_brackets, by_pattern, events_of, flat, separator
from stepscope.formats.chrome.codec_events import event_kernel
from stepscope.formats.chrome.columns import text_columns
from stepscope.formats.chrome.inflate import blocks
from stepscope.formats.chrome.repair import repair_lines
from stepscope.formats.chrome.templates import Templates
from stepscope.formats.chrome.typing import ParsedTexts, Texts, absent_columns, event_frame
from stepscope.tables import issues, lost
from stepscope.tables.issues import Issue

# Larger buffers come from the kernel each time and cost more in page faults than they save.
CHUNK_BYTES = 16 << 20
_PART_BYTES = 4 << 20
_HEAD_BYTES = 1 << 20
# A list that begins so late, or an event so long, is damage and not data.
_PATIENCE_BYTES = 64 << 20

_Bytes = TypeVar("_Bytes", bytes, memoryview)

_FIELDS = ("ph", "name", "cat", "id", "bp", "s", "pid", "tid", "ts", "dur")
_OPENING = re.compile(rb'[{,]\s*"traceEvents"\s*:\s*\[')
# Above 2^43 us a double no longer tells neighbouring nanoseconds apart, so such numbers must be read as text.
_INEXACT_US = 1 << 43
_LONG_NUMBER = re.compile(rb'([{,]\s*"ts"\s*:\s*)(-?\d{13,}\.\d+)')
_ENCODING_MARK = b"\xef\xbb\xbf"


def read_events(
    path: Path,
    args: Mapping[str, pl.DataType],
    *,
    quality: list[pl.DataFrame],
    header: dict[str, Any] | None = None,
    guards: Mapping[str, str] | None = None,
    chunk_bytes: int = CHUNK_BYTES,
    most_bytes: int | None = None,
) -> Iterator[pl.DataFrame]:
    """Yield the events of a trace in file order, some tens of megabytes of JSON at a time.

    Columns: ph, name, cat, id, bp, s (String); pid, tid (Int64) and pid_text, tid_text where they are not numbers;
    ts_ns (Int64, exact); dur_ns (Float64); and `args.<key>` for each key of `args`, null where the value does not fit the
    type. Lists and objects requested as String come as JSON text; the key `*` stands for all arguments as one JSON text.

    Args:
        path: the trace, plain or gzip.
        args: argument keys wanted, with their types (String, Boolean or a number).
        quality: receives what was lost, after the last frame.
        header: receives the keys beside `traceEvents`, after the last frame.
        guards: for some keys of `args`, a text that every event with the key contains; a key costs time only where
            its guard is found.
        chunk_bytes: bytes of JSON read at a time.
        most_bytes: bytes that a packed trace may unpack to; None: as many as a trace would.
    """
    events = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        reading = _Reading(path, args, guards or {}, chunk_bytes, pool, most_bytes)
        for frame in reading.frames():
            events += frame.height
            yield frame
    if not events and reading.lost:
        what = "; ".join(issue.sentence_for(count) for (issue, _), count in reading.lost.items())
        raise CaptureError("the trace holds no whole event", where=str(path), cause=what, fix="capture again; the file is damaged")
    quality += [lost(issue, path.name, count, detail) for (issue, detail), count in reading.lost.items()]
    if header is not None:
        header.update(reading.header)


def _without_events(text: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(text.removeprefix(_ENCODING_MARK))
    except orjson.JSONDecodeError:
        return {}
    return {key: value for key, value in found.items() if key != "traceEvents"} if isinstance(found, dict) else {}


class _Reading:
    """One pass over one trace: what is left of the bytes, and what was lost so far."""

    def __init__(
        self,
        path: Path,
        args: Mapping[str, pl.DataType],
        guards: Mapping[str, str],
        chunk_bytes: int,
        pool: ThreadPoolExecutor,
        most_bytes: int | None,
    ):
        self._most_bytes = most_bytes
        self.path, self.args, self.guards, self.chunk_bytes, self._pool = path, args, guards, chunk_bytes, pool
        self.lost: dict[tuple[Issue, str], int] = {}
        self.header: dict[str, Any] = {}
        self._head = b""  # everything up to the opening bracket of the list
        self._pattern_failures = 0
        self._long_numbers = False
        self._similar = "*" not in args  # events repeat a few templates
        self._templates = Templates()
        self._absent = absent_columns(args)
        self._kernel = event_kernel(args, self._absent)

    def note(self, issue: Issue, count: int, detail: str = "") -> None:
        if count:
            self.lost[issue, detail] = self.lost.get((issue, detail), 0) + count

    def _note_cut(self, rest: bytes) -> None:
        left = len(rest.strip(b" ,"))
        self.note(issues.TRUNCATED_RECORD, int(left > 0), f"{left:,} bytes of an event")

    def frames(self) -> Iterator[pl.DataFrame]:
        stream = blocks(self.path, self.chunk_bytes, self.note, self._most_bytes)
        data = self._skip_to_events(stream)
        border: bytes | None = None
        for block in chain(stream, [None]):
            if border is None or border not in data:
                border = separator(data[:_HEAD_BYTES]) or border  # merged traces: another program wrote this part
            frame, rest = self._by_pattern(data, border)
            if frame is not None:
                yield frame
                data = rest
                if block is not None:
                    data += block
                    continue
            pieces = by_brackets(data)
            yield from self._tolerant(pieces.lines, border)
            yield from self._between(pieces.skipped, border)
            data = pieces.rest
            if pieces.closed:
                yield from self._after_list(data + (block or b"") + b"".join(stream), border)
                return
            if block is not None:
                if len(data) > _PATIENCE_BYTES:
                    yield from self._salvage(data, border)
                    data = b""
                data += block
        yield from self._cut_off(data, border)

    def _by_pattern(self, data: bytes, border: bytes | None) -> tuple[pl.DataFrame | None, bytes]:
        """The events up to the last separator, and the bytes from there on; no frame when the pattern does not hold."""
        if border is None or self._pattern_failures > 1:
            return None, data
        pattern = border
        stretches, rest = by_pattern(data, pattern, _part_bytes(data))
        if not stretches:
            return None, data
        frame = self._together(lambda stretch: self._by_kernel(stretch) or self._part(events_of(stretch, pattern)), stretches)
        self._pattern_failures += frame is None
        return frame, rest

    def _skip_to_events(self, stream: Iterator[bytes]) -> bytes:
        """Read up to the first event; returns what was read from there on."""
        start = b""
        for block in stream:
            start = (start + block).removeprefix(_ENCODING_MARK).lstrip() if not start else start + block
            if start[:1] == b"[":
                self._head = b"["
                return start[1:]
            if start and start[:1] != b"{":
                raise self._unusable("it is not JSON", f"it begins with {start[:20]!r}")
            if opening := _OPENING.search(start):
                self._head = start[: opening.end()]
                return start[opening.end() :]
            if len(start) > _PATIENCE_BYTES:
                break
        if not start:
            raise self._unusable("the file is empty", "the capture was stopped before anything was written")
        raise self._unusable("it has no list of events", 'a JSON object without "traceEvents", or cut off before them')

    def _unusable(self, what: str, cause: str) -> CaptureError:
        return CaptureError(
            f"not a trace: {what}",
            where=str(self.path),
            cause=cause,
            fix="give a Chrome trace: a JSON list of events, or an object with traceEvents",
        )

    def _after_list(self, tail: bytes, border: bytes | None) -> Iterator[pl.DataFrame]:
        """What follows the bracket that closes the list: nothing, the rest of the header, or damage."""
        if self._head == b"[":
            if not tail[1:].strip():
                return
        elif header := _without_events(self._head + tail):
            self.header = header
            return
        else:
            self.header = _without_events(self._head + b"]}")
            if tail[1:].strip() == b"}":
                return
        if border and flat(border) in flat(tail):
            self.note(issues.UNREADABLE_EVENT, 1, "looks like the end of the list")
            yield from self._salvage(tail, border)
        else:
            self.note(issues.UNREADABLE_BYTES, len(tail) - 1, "after the events")

    def _cut_off(self, rest: bytes, border: bytes | None) -> Iterator[pl.DataFrame]:
        """The file ended inside the list."""
        self.header = _without_events(self._head + b"]}") if self._head != b"[" else {}
        self.note(issues.TRUNCATED_FILE, 1, "inside the list of events")
        if border and flat(border) in flat(rest):
            yield from self._salvage(rest, border)
        else:
            self._note_cut(rest)

    def _salvage(self, data: bytes, border: bytes | None) -> Iterator[pl.DataFrame]:
        """Events around a damaged one: every object between two separators."""
        border = flat(border) if border else None
        stretches, rest = by_pattern(flat(data), border, len(data)) if border else ([], b"")
        if not border or not stretches:
            self.note(issues.UNREADABLE_EVENT, 1, "no end found")
            return
        yield from self._tolerant(repair_lines(events_of(stretches[0], border).lines(), self.note))
        last = by_brackets(rest)
        yield from self._tolerant(last.lines)
        if last.closed and self._head != b"[":
            self.header = _without_events(self._head + last.rest) or self.header
        elif not last.closed:
            self._note_cut(last.rest)

    def _between(self, skipped: bytes, border: bytes | None) -> Iterator[pl.DataFrame]:
        """What lies between events and should not: nothing, or events hidden by damage before them."""
        if border and flat(border) in skipped:
            yield from self._tolerant(skipped, border)
        else:
            self.note(issues.UNREADABLE_BYTES, len(skipped), "between events")

    def _strict(self, lines: bytes) -> pl.DataFrame | None:
        """The frame of these lines; None when one of them is not an event."""
        return self._together(lambda part: self._by_kernel(part, by_lines=True) or self._part(Events.of_lines(part)), _parts(lines))

    def _together(self, work: Callable[[_Bytes], _Part], pieces: list[_Bytes]) -> pl.DataFrame | None:
        """One frame of all pieces, each worked on by a core of its own; None when the parser refuses one."""
        try:
            parts = list(self._pool.map(work, pieces))
        except pl.exceptions.PolarsError:
            return None
        for read, name in (("ts_ns", "ts"), ("dur_ns", "dur")):
            unread = sum(part.text_counts[name] - part.frame[read].count() for part in parts)
            self.note(issues.UNREADABLE_VALUE, unread, f"{name} is not a number in range")
        return pl.concat(part.frame for part in parts)

    def _by_kernel(self, text: bytes | memoryview, *, by_lines: bool = False) -> _Part | None:
        found = self._kernel.read(text, by_lines=by_lines) if self._kernel else None
        return _Part(*found) if found else None

    def _part(self, events: Events) -> _Part:
        texts = self._as_text(events)
        text_counts = {name: texts.count(name) if name in texts.names() else 0 for name in ("ts", "dur")}
        return _Part(event_frame(texts, self.args, self._absent), text_counts)

    def _as_text(self, events: Events) -> Texts:
        """Fields and arguments (`args.<key>`) as text, columns absent where no event has them."""
        wanted = [*_FIELDS, *(f"args.{key}" for key in self.args)]
        quick = text_columns(events, wanted, self._templates) if self._similar else None
        if quick is None or not quick.names() or len(quick.odd) > quick.height // 4:
            # Kineto: most events hold lists. Looking for templates again and again would cost more than it saves.
            self._similar = False
            return ParsedTexts(self._by_parser(events.lines()))
        if not len(quick.odd):
            return quick
        # Lines that match no template go through the parser and back to their place.
        parsed = self._by_parser(quick.odd_lines)
        if parsed.height != len(quick.odd):
            return ParsedTexts(self._by_parser(events.lines()))
        plain = np.delete(np.arange(quick.height), quick.odd)
        order = np.empty(quick.height, np.uint32)
        order[plain], order[quick.odd] = np.arange(len(plain)), len(plain) + np.arange(len(quick.odd))
        read = pl.DataFrame([quick.text(key) for key in quick.names()])
        return ParsedTexts(pl.concat([read[plain], parsed], how="diagonal")[order])

    def _by_parser(self, lines: bytes) -> pl.DataFrame:
        long_numbers = self._long_numbers  # another part may set it while this one is parsed
        if long_numbers:
            lines = _LONG_NUMBER.sub(rb'\1"\2"', lines)
        # An empty line first: bytes that look like a compressed file at the beginning would be taken for one.
        events = pl.read_ndjson(BytesIO(b"\n" + lines), schema=self._schema(lines))
        if not long_numbers and _inexact(events["ts"], lines):
            self._long_numbers = True
            return self._by_parser(lines)
        fields = events.select(_FIELDS)
        return fields.hstack([value.alias(f"args.{key}") for key, value in _arguments(events).items()])

    def _schema(self, lines: bytes) -> dict[str, pl.DataType]:
        """Everything as text: a value of an unexpected type is then no reason to refuse the file."""
        found = {text for text in set(self.guards.values()) if text.encode() in lines}
        keys = [key for key in self.args if key not in self.guards or self.guards[key] in found]
        schema: dict[str, pl.DataType] = {name: pl.String() for name in _FIELDS}
        if keys:
            schema["args"] = pl.String() if "*" in keys else pl.Struct({key: pl.String() for key in keys})
        return schema

    def _tolerant(self, lines: bytes, border: bytes | None = None) -> Iterator[pl.DataFrame]:
        """The frames of these lines, those left out that cannot be read."""
        if not lines.strip():
            return
        frame = self._strict(lines)
        for all_lines in (False, True):
            if frame is None:
                # Long numbers are quoted before the repair, which reads numbers as doubles.
                lines = repair_lines(
                    _LONG_NUMBER.sub(rb'\1"\2"', lines), self.note, flat(border) if border else None, all_lines=all_lines
                )
                frame = self._strict(lines)
        if frame is None:
            self.note(issues.UNREADABLE_EVENT, lines.count(b"\n") + 1, "refused by the JSON parser")
        elif frame.height:
            yield frame


@dataclass(frozen=True)
class _Part:
    """Events, and how many of them had a text for `ts` and `dur`."""

    frame: pl.DataFrame
    text_counts: dict[str, int]


def _part_bytes(data: bytes) -> int:
    """One piece per core, unless there is little."""
    return max(_PART_BYTES, len(data) // (os.cpu_count() or 1) + 1)


def _parts(lines: bytes) -> list[bytes]:
    size = _part_bytes(lines)
    borders = [0]
    while len(lines) - borders[-1] > size and (end := lines.find(b"\n", borders[-1] + size)) >= 0:
        borders.append(end + 1)
    return [lines[begin:end].removesuffix(b"\n") for begin, end in pairwise([*borders, len(lines)])]


def _inexact(time: pl.Series, lines: bytes) -> bool:
    """Whether the parser read times as doubles that cannot hold them."""
    latest = time.cast(pl.Float64, strict=False).max()
    if not isinstance(latest, float) or latest < _INEXACT_US:
        return False
    quoted = lines.count(b'"ts": "') + lines.count(b'"ts":"')
    return quoted < time.count() and _LONG_NUMBER.search(lines) is not None


def _arguments(events: pl.DataFrame) -> dict[str, pl.Series]:
    if "args" not in events.columns:
        return {}
    if events.schema["args"] == pl.String():
        return {"*": events["args"]}
    return {field.name: field for field in events["args"].struct.unnest()}
