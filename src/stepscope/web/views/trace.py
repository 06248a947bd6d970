# SPDX-License-Identifier: Apache-2.0
"""The timeline: its tracks, its names, and what is drawn in a window at a level of detail."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from stepscope.formats.ascend.trace import layers
from stepscope.tables import Tables
from stepscope.web.parameters import LARGEST, Query, whole_number
from stepscope.web.problems import Problem, bad_parameter
from stepscope.web.timeline import levels
from stepscope.web.timeline.binary_columns import encode
from stepscope.web.timeline.index import Array, TraceIndex

MOST_TILES = 256
MOST_NAMES = 200_000
MAX_LEVEL = 62


def meta(index: TraceIndex, tables: Tables) -> dict[str, Any]:
    """Everything that stays the same while a user moves about."""
    bounds = index.row_bounds
    start, end = index.slices["start"], index.slices["end"]
    first_row = {row: track["rows"][0] for track in index.tracks if track["kind"] == "slice" for row in track["rows"]}
    rows = [
        {
            "id": row, "track": track, "depth": row - first_row[row], "slices": bounds[row + 1] - bounds[row],
            "first_ns": int(start[bounds[row]]), "last_ns": int(end[bounds[row + 1] - 1]),
        }
        for row, track in enumerate(index.row_track)
    ]  # fmt: skip
    counts = np.bincount(index.arrows["category"], minlength=len(index.categories))
    steps = tables.steps.select(
        "step", *(pl.col(name) - index.base_ns for name in ("start_ns", "end_ns", "device_start_ns", "device_end_ns"))
    )
    top = max(0, int(index.length_ns // levels.BINS).bit_length())
    return {
        "base_ns": str(index.base_ns),
        "length_ns": index.length_ns,
        "raw_start_us": raw_us(index.base_ns),
        "processes": [_process(process, index) for process in index.processes],
        "tracks": index.tracks,
        "rows": rows,
        "names": len(index.names),
        "slices": index.count,
        "overlapping": sum(track.get("overlapping", 0) for track in index.tracks),
        "counters": len(index.samples["time"]),
        "flows": [{"category": category, "count": int(count)} for category, count in zip(index.categories, counts, strict=True)],
        "steps": steps.to_dicts(),
        "levels": {"bins": levels.BINS, "exact": levels.EXACT, "max_level": top},
    }


def _process(process: dict[str, Any], index: TraceIndex) -> dict[str, Any]:
    """A process with what it stands for: the page orders and folds by it."""
    counted = all(track["kind"] == "counter" for track in index.tracks if track["process"] == process["id"])
    layer = process["layer"]
    about = {layers.OVERLAP.name: "overlap", layers.HARDWARE.name: "device", layers.COMMUNICATION.name: "communication"}
    group = "counters" if counted else about.get(layer, "host" if process["sort"] < layers.HARDWARE.sort else "device")
    return {**{key: value for key, value in process.items() if key != "layer"}, "group": group}


def raw_us(time_ns: int) -> str:
    """Epoch time as the vendor's files write it: microseconds with three digits."""
    sign, time_ns = ("-", -time_ns) if time_ns < 0 else ("", time_ns)
    return f"{sign}{time_ns // 1000}.{time_ns % 1000:03d}"


def names(index: TraceIndex, query: Query) -> dict[str, Any]:
    first = query.number("from", 0, most=len(index.names))
    last = min(query.number("to", len(index.names), least=first), len(index.names), first + MOST_NAMES)
    return {"from": first, "to": last, "names": index.names[first:last]}


def tiles(index: TraceIndex, body: object) -> bytes:
    """Frames of the requested tiles, in order."""
    frames = []
    for row, level, at in _tile_keys(body, "row", len(index.row_track)):
        if (at + 1) << (level + levels.TILE_BITS) > LARGEST:
            row_tile = _tile(index, row, 0, LARGEST >> levels.TILE_BITS >> 1)  # beyond all time: nothing there
        else:
            row_tile = _tile(index, row, level, at)
        frames.append(row_tile)
    return encode(frames)


def _tile(index: TraceIndex, row: int, level: int, at: int) -> dict[str, Array]:
    return levels.tile(
        index.part(row, "start"), index.part(row, "end"), index.part(row, "name"), index.row_bounds[row],
        index.clusters.get(row, {}), level, at,
    )  # fmt: skip


def _tile_keys(body: object, what: str, count: int) -> list[tuple[int, int, int]]:
    if not isinstance(body, list) or not 1 <= len(body) <= MOST_TILES:
        raise bad_parameter("body", f"a list of 1 to {MOST_TILES} entries [{what}, level, index]")
    keys = []
    for entry in body:
        if not isinstance(entry, list) or len(entry) != 3 or not all(type(part) is int for part in entry):
            raise bad_parameter("body", f"each entry is [{what}, level, index], whole numbers")
        number = whole_number(what, entry[0], 0, count - 1) if count else 0
        if not count:
            raise Problem(404, "missing_data", "the timeline is empty")
        keys.append((number, whole_number("level", entry[1], 0, MAX_LEVEL), whole_number("index", entry[2], 0, LARGEST)))
    return keys


def counters(index: TraceIndex, body: object) -> bytes:
    """Frames of the requested counter tiles, in order."""
    frames = []
    for track, level, at in _tile_keys(body, "track", len(index.tracks)):
        if track not in index.sample_bounds:
            raise bad_parameter("track", f"track {track} is not a counter track")
        first, last = index.sample_bounds[track]
        time, value = index.samples["time"][first:last], index.samples["value"][first:last]
        width = levels.BINS << level
        frames.append(_counter_tile(time, value, min(at * width, LARGEST - 1), min((at + 1) * width, LARGEST), level))
    return encode(frames)


def _counter_tile(time: Array, value: Array, left: int, right: int, level: int) -> dict[str, Array]:
    low, high = (int(place) for place in np.searchsorted(time, (left, right)))
    if high - low <= levels.EXACT:
        first = np.arange(low, high)
    else:
        bins = time[low:high] >> level
        first = np.flatnonzero(np.concatenate(([True], bins[1:] != bins[:-1]))) + low
    beyond = np.append(first[1:], high) if first.size else first
    low -= low > 0
    if low < (first[0] if first.size else high):  # the value in force at the left edge
        first, beyond = np.insert(first, 0, low), np.insert(beyond, 0, low + 1)
    some = first.size > 0
    part, offsets = value[low:high], first - low
    return {
        "time": time[first].astype("<f8"),
        "first": value[first].astype("<f8"),
        "min": (np.fmin.reduceat(part, offsets) if some else part).astype("<f8"),
        "max": (np.fmax.reduceat(part, offsets) if some else part).astype("<f8"),
        "last": value[beyond - 1].astype("<f8") if some else part.astype("<f8"),
        "count": (beyond - first).astype("<u4"),
    }
