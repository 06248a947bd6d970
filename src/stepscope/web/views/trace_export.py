# SPDX-License-Identifier: Apache-2.0
"""A part of the timeline as Chrome JSON, numbers as numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import orjson

from stepscope.web.parameters import Query
from stepscope.web.problems import bad_parameter
from stepscope.web.timeline.index import Ints, TraceIndex
from stepscope.web.views.slices import stretches

MOST_SLICES = 2_000_000
_CHUNK = 20_000


def export(index: TraceIndex, query: Query) -> Iterator[bytes]:
    """The document in pieces; checked before the first piece is written."""
    low, high = query.window(index.length_ns)
    tracks = query.numbers("tracks")
    if tracks is not None and any(track >= len(index.tracks) for track in tracks):
        raise bad_parameter("tracks", "ids of tracks")
    parts = stretches(index, tracks, low, high)
    if sum(last - first for _, first, last in parts) > MOST_SLICES:
        raise bad_parameter("from", f"at most {MOST_SLICES:,} slices; choose a smaller range or fewer tracks")
    split = query.flag("split_overlaps")
    chosen = set(range(len(index.tracks)) if tracks is None else tracks)
    return _document(index, parts, chosen, low, high, split)


def _document(
    index: TraceIndex, parts: list[tuple[int, int, int]], tracks: set[int], low: int, high: int, split: bool
) -> Iterator[bytes]:
    lanes = _lanes(index, split)
    yield b'{"displayTimeUnit":"ns","otherData":{"baseTimeNanoseconds":"%d"},"traceEvents":[' % index.base_ns
    yield orjson.dumps({"name": "stepscope", "ph": "M", "pid": 0, "tid": 0, "args": {}})
    for events in (
        _metadata(index, tracks, lanes),
        _slices(index, parts, lanes),
        _samples(index, tracks, low, high),
        _arrows(index, tracks, lanes, low, high),
    ):
        waiting: list[dict[str, Any]] = []
        for event in events:
            waiting.append(event)
            if len(waiting) >= _CHUNK:
                yield b"," + orjson.dumps(waiting)[1:-1]
                waiting = []
        if waiting:
            yield b"," + orjson.dumps(waiting)[1:-1]
    yield b"]}"


def _lanes(index: TraceIndex, split: bool) -> list[tuple[int, int]]:
    """Process and thread of each row; rows below the first of a track with overlaps are threads of their own with `split`."""
    lanes = []
    numbers = {
        process["id"]: {track["thread"] for track in index.tracks if track["process"] == process["id"] and track["kind"] == "slice"}
        for process in index.processes
    }
    for row, number in enumerate(index.row_track):
        track = index.tracks[number]
        thread = track["thread"]
        if split and track["overlapping"] and row != track["rows"][0]:
            threads = numbers[track["process"]]
            thread = max(threads) + 1
            threads.add(thread)
        lanes.append((index.processes[track["process"]]["pid"], thread))
    return lanes


def _metadata(index: TraceIndex, tracks: set[int], lanes: list[tuple[int, int]]) -> Iterator[dict[str, Any]]:
    shown = {index.tracks[track]["process"] for track in tracks}
    for process in (process for process in index.processes if process["id"] in shown):
        for key, value in (("name", process["name"]), ("labels", process["label"]), ("sort_index", process["sort"])):
            kind = f"process_{key}"
            yield {"name": kind, "ph": "M", "pid": process["pid"], "tid": 0, "args": {key: value}}
    named = set()
    for row, lane in enumerate(lanes):
        track = index.tracks[index.row_track[row]]
        if track["id"] in tracks and lane not in named:
            named.add(lane)
            depth = row - track["rows"][0]
            label = track["label"] if lane[1] == track["thread"] else f"{track['label']} ({depth + 1})"
            yield {"name": "thread_name", "ph": "M", "pid": lane[0], "tid": lane[1], "args": {"name": label}}
            yield {"name": "thread_sort_index", "ph": "M", "pid": lane[0], "tid": lane[1], "args": {"sort_index": track["sort"]}}


def _slices(index: TraceIndex, parts: list[tuple[int, int, int]], lanes: list[tuple[int, int]]) -> Iterator[dict[str, Any]]:
    start, end, name = (index.slices[key] for key in ("start", "end", "name"))
    for _, first, last in parts:
        pid, tid = lanes[int(index.row_of(first))]
        for at in range(first, last, _CHUNK):
            beyond = min(last, at + _CHUNK)
            rows = zip(start[at:beyond].tolist(), end[at:beyond].tolist(), name[at:beyond].tolist(), strict=True)
            for begin, finish, number in rows:
                yield {
                    "name": index.names[number],
                    "ph": "X",
                    "pid": pid,
                    "tid": tid,
                    "ts": begin / 1000,
                    "dur": (finish - begin) / 1000,
                }


def _samples(index: TraceIndex, tracks: set[int], low: int, high: int) -> Iterator[dict[str, Any]]:
    for number, (first, last) in index.sample_bounds.items():
        if number in tracks:
            track = index.tracks[number]
            pid = index.processes[track["process"]]["pid"]
            time, value = index.samples["time"][first:last], index.samples["value"][first:last]
            begin, beyond = np.searchsorted(time, (low, high))
            for at, level in zip(time[begin:beyond].tolist(), value[begin:beyond].tolist(), strict=True):
                yield {
                    "name": track["label"],
                    "ph": "C",
                    "pid": pid,
                    "tid": 0,
                    "ts": at / 1000,
                    "args": {track["series"] or "value": level},
                }


def _arrows(index: TraceIndex, tracks: set[int], lanes: list[tuple[int, int]], low: int, high: int) -> Iterator[dict[str, Any]]:
    arrows = index.arrows
    inside = (np.minimum(arrows["from_ns"], arrows["to_ns"]) >= low) & (np.maximum(arrows["from_ns"], arrows["to_ns"]) < high)
    both: Ints = np.flatnonzero(inside & (arrows["from_id"] >= 0) & (arrows["to_id"] >= 0))
    for number in both.tolist():
        if int(arrows["from_track"][number]) in tracks and int(arrows["to_track"][number]) in tracks:
            category = index.categories[int(arrows["category"][number])]
            for side, phase in (("from", "s"), ("to", "f")):
                pid, tid = lanes[int(index.row_of(int(arrows[f"{side}_id"][number])))]
                bind = {"bp": "e"} if phase == "f" else {}
                yield {
                    "name": category,
                    "cat": category,
                    "ph": phase,
                    "id": number,
                    "pid": pid,
                    "tid": tid,
                    "ts": int(arrows[f"{side}_ns"][number]) / 1000,
                    **bind,
                }
