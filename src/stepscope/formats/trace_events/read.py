# SPDX-License-Identifier: Apache-2.0
"""A Chrome trace of any program as tables: what every event says by its phase, without knowing its categories.

Spans (X, and B with its E) become rows of `ops`, instants and asynchronous ranges rows of `marks`, samples rows of `counters`.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import polars as pl

from stepscope.errors import CaptureError
from stepscope.formats.chrome.events import read_events
from stepscope.formats.kineto.counters import read_counters
from stepscope.tables import ALL_TABLES, TEXT, Facts, Tables, issues, lost
from stepscope.tables.issues import Issue

_INSTANT, _ASYNC, _FLOW = ("i", "I", "R"), ("b", "e", "S", "F"), ("s", "t", "f")
_SILENT = ("M", "C", *_FLOW)  # names of lanes; samples and arrows are read elsewhere or left out
_LATEST_NS = 1 << 61
_FUNCTION_SCOPE = 0


def read(path: Path, *, most_bytes: int | None = None) -> Tables:
    """Read a trace of any program; packed, it may unpack to `most_bytes`.

    Raises:
        CaptureError: nothing in it has a place and a time.
    """
    quality: list[pl.DataFrame] = []
    chunks = [
        events.select("ph", "name", "cat", "id", "pid", "tid", "pid_text", "tid_text", "ts_ns", "dur_ns")
        for events in read_events(path, {}, quality=quality, most_bytes=most_bytes)
    ]
    events = _numbered(pl.concat(chunks)) if chunks else pl.DataFrame()
    found: Counter[tuple[Issue, str]] = Counter()
    timed = _timed(events, found) if events.height else events
    spans = pl.concat([_whole(timed), _paired(timed, found)]) if timed.height else timed
    marks = _marks(timed, found) if timed.height else timed
    counters = read_counters(path, 0) if timed.height and (events["ph"] == "C").any() else ALL_TABLES["counters"].empty()
    if not spans.height + marks.height + counters.height:
        raise CaptureError(
            "the trace has no span, mark or counter",
            where=str(path),
            cause=_phases(events),
            fix="give a trace with complete events (X), or begin and end events (B, E)",
        )
    order = spans.sort("start_ns", "end_ns", descending=[False, True], maintain_order=True)
    tables = Tables(
        {
            "ops": ALL_TABLES["ops"].conform(order.with_columns(scope=_FUNCTION_SCOPE, is_async=False, end_tid="tid")),
            "marks": ALL_TABLES["marks"].conform(marks) if marks.height else ALL_TABLES["marks"].empty(),
            "counters": counters,
            "meta": Facts(source="chrome trace", framework="").table(),
        }
    )
    quality += [lost(issue, path.name, count, detail) for (issue, detail), count in found.items() if count]
    return tables.with_quality(*quality)


def read_foreign(path: Path, problem: CaptureError, *, most_bytes: int | None = None) -> Tables:
    """Read a trace that another reader refused with `problem`; when nothing in it can be shown either, that is the error."""
    try:
        return read(path, most_bytes=most_bytes)
    except CaptureError:
        raise problem from None


def _phases(events: pl.DataFrame) -> str:
    if not events.height:
        return "the list of events is empty"
    counts = events.group_by("ph").len().sort("len", "ph", descending=[True, False])
    return ", ".join(f"{count} of phase {phase or 'none'}" for phase, count in counts.iter_rows())


def _numbered(events: pl.DataFrame) -> pl.DataFrame:
    """Numbers for processes and threads that only have names, beyond all numbers in use."""
    for name in ("pid", "tid"):
        text = events[f"{name}_text"]
        if text.null_count() < events.height:
            used = events[name].max()
            names = text.drop_nulls().unique(maintain_order=True).to_list()
            first = (used if isinstance(used, int) and 0 <= used < _LATEST_NS else 0) + 1
            number = pl.col(f"{name}_text").replace_strict(
                names, range(first, first + len(names)), default=None, return_dtype=pl.Int64()
            )
            events = events.with_columns(pl.coalesce(name, number).alias(name))
    return events


def _timed(events: pl.DataFrame, found: Counter[tuple[Issue, str]]) -> pl.DataFrame:
    described = events.filter(~pl.col("ph").is_in(_SILENT).fill_null(False))
    timed = described.filter(pl.col("ts_ns").is_between(-_LATEST_NS, _LATEST_NS))
    found[issues.EVENT_WITHOUT_TIME, ""] += described.height - timed.height
    known = pl.col("ph").is_in(["X", "B", "E", *_INSTANT, *_ASYNC])
    for phase, count in timed.filter(~known.fill_null(False)).group_by("ph").len().iter_rows():
        found[issues.UNKNOWN_KIND, f"ph {phase or 'none'}"] += count
    # Traces of one thread leave its number out.
    return timed.with_columns(pl.col("pid", "tid").fill_null(0))


def _whole(events: pl.DataFrame) -> pl.DataFrame:
    length = pl.col("dur_ns").fill_null(0).fill_nan(0).clip(0, float(_LATEST_NS)).round().cast(pl.Int64)
    spans = events.filter(pl.col("ph") == "X")
    return spans.select("pid", "tid", pl.col("name").cast(TEXT), start_ns="ts_ns", end_ns=pl.col("ts_ns") + length)


def _paired(events: pl.DataFrame, found: Counter[tuple[Issue, str]]) -> pl.DataFrame:
    """Spans that begin with a B and end with an E: at each depth of a thread the two alternate."""
    thread = ["pid", "tid"]
    ends = events.filter(pl.col("ph").is_in(["B", "E"])).sort("ts_ns", maintain_order=True)
    opens = pl.col("ph") == "B"
    ends = ends.with_columns(depth=pl.when(opens).then(1).otherwise(-1).cum_sum().over(thread))
    ends = ends.with_columns(depth=pl.col("depth") + pl.when(opens).then(0).otherwise(1))
    level = [*thread, "depth"]
    ends = ends.with_columns(
        next_phase=pl.col("ph").shift(-1).over(level),
        end_ns=pl.col("ts_ns").shift(-1).over(level),
        last=pl.col("ph").shift(1).over(level),
    )
    closed = opens & (pl.col("next_phase") == "E").fill_null(False)
    found[issues.START_WITHOUT_END, "B"] += ends.filter(opens & ~closed).height
    found[issues.END_WITHOUT_START, "E"] += ends.filter(~opens & (pl.col("last").ne_missing("B"))).height
    return ends.filter(closed).select("pid", "tid", pl.col("name").cast(TEXT), start_ns="ts_ns", end_ns="end_ns")


def _marks(events: pl.DataFrame, found: Counter[tuple[Issue, str]]) -> pl.DataFrame:
    """Instants, and asynchronous ranges by their category, name and id."""
    message = pl.col("name").cast(TEXT)
    instants = events.filter(pl.col("ph").is_in(_INSTANT)).select(
        "pid", "tid", message=message, kind=pl.lit("marker"), start_ns="ts_ns", end_ns="ts_ns", end_tid="tid"
    )
    key = ["pid", "cat", "name", "id"]
    parts = events.filter(pl.col("ph").is_in(_ASYNC)).sort("ts_ns", maintain_order=True)
    opens = pl.col("ph").is_in(["b", "S"])
    parts = parts.with_columns(
        next_opens=opens.shift(-1).over(key),
        end_ns=pl.col("ts_ns").shift(-1).over(key),
        closing_tid=pl.col("tid").shift(-1).over(key),
    )
    closed = opens & ~pl.col("next_opens").fill_null(True)
    found[issues.START_WITHOUT_END, "asynchronous"] += parts.filter(opens & ~closed).height
    ranges = parts.filter(closed).select(
        "pid", "tid", message=message, kind=pl.lit("start/end"), start_ns="ts_ns", end_ns="end_ns", end_tid="closing_tid"
    )
    return pl.concat([instants, ranges])
