# SPDX-License-Identifier: Apache-2.0
"""Questions about slices: one of them in detail, those of a range by name, those whose name matches."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from stepscope.analysis.overlap import FREE
from stepscope.analysis.steps import step_of
from stepscope.tables import Tables
from stepscope.web.frames_of_stack import stack_frames
from stepscope.web.parameters import LARGEST, Query, whole_number
from stepscope.web.problems import Problem, bad_parameter
from stepscope.web.timeline.index import NONE, Array, Ints, TraceIndex
from stepscope.web.timeline.slices import OWN_TABLE, SOURCES
from stepscope.web.views.slice_args import arguments
from stepscope.web.views.trace import raw_us

MOST_LISTED = 200
RANGE_COLUMNS = (
    "Name", "Wall Duration", "Self Time", "Average Wall Duration", "Max Wall Duration", "Min Wall Duration", "Occurrences",
)  # fmt: skip
SORTS = {"name": "name", "wall": "wall", "self": "self", "average": "average", "max": "max", "min": "min", "occurrences": "count"}


def slice_detail(index: TraceIndex, tables: Tables, query: Query) -> dict[str, Any]:
    """All that is known about one slice."""
    number = _slice_id(index, query)
    source = SOURCES[int(index.slices["source"][number])]
    table, table_row = OWN_TABLE.get(source, source), int(index.slices["source_row"][number])
    entry = tables[table].row(table_row, named=True)
    start, end = int(index.slices["start"][number]), int(index.slices["end"][number])
    exact = entry.get("duration_ns")
    step = _step(tables, start + index.base_ns)
    row = int(index.row_of(number))
    children = _children(index, number, row)
    kernels = _kernels(index, tables, source, table_row)
    parent = int(index.slices["parent"][number])
    return {
        **_brief(index, number),
        "duration_ns": exact if exact is not None else end - start,
        "self_ns": int(index.slices["self"][number]),
        "raw_start_us": raw_us(start + index.base_ns),
        "step": step[0] if step else None,
        "step_share": (end - start) / step[1] if step and step[1] else None,
        "table": table,
        "table_row": table_row,
        "args": arguments(source, entry),
        "stack": stack_frames(entry.get("stack")),
        "parent": _brief(index, parent) if parent != NONE else None,
        "children": [_brief(index, child) for child in children[:MOST_LISTED].tolist()],
        "children_count": int(children.size),
        "flows": _flows(index, number),
        "kernels": [_brief(index, kernel) for kernel in kernels],
        "links": _links(tables, source, table_row, entry),
    }


def _slice_id(index: TraceIndex, query: Query) -> int:
    table = query.optional("table")
    if table is None:
        number = query.whole("id", least=0)
        if number is None:
            raise bad_parameter("id", "the id of a slice, or table and row")
        slice_id = number if number < index.count else None
    else:
        slice_id = index.id_of(table, query.number("row", 0))
    if slice_id is None:
        raise Problem(404, "unknown_slice", "no such slice in this capture", hint="the capture may have changed; reload")
    return slice_id


def _brief(index: TraceIndex, number: int) -> dict[str, Any]:
    row = int(index.row_of(number))
    start, end = int(index.slices["start"][number]), int(index.slices["end"][number])
    name = index.names[int(index.slices["name"][number])]
    return {"id": number, "name": name, "track": index.row_track[row], "row": row, "start_ns": start, "duration_ns": end - start}


def _step(tables: Tables, time_ns: int) -> tuple[int, int] | None:
    row = step_of(pl.Series([time_ns]), tables.steps)[0] if tables.steps.height else None
    if row is None:
        return None
    step = tables.steps.row(row, named=True)
    return step["step"], step["end_ns"] - step["start_ns"]


def _children(index: TraceIndex, number: int, row: int) -> Ints:
    start, end = index.slices["start"][number], index.slices["end"][number]
    parts = []
    for below in (other for other in index.tracks[index.row_track[row]]["rows"] if other > row):
        first = index.row_bounds[below]
        low, high = np.searchsorted(index.part(below, "start"), (start, max(int(end), int(start) + 1)))
        parts.append(np.flatnonzero(index.part(below, "parent")[low:high] == number) + first + low)
    children = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
    return np.asarray(children[np.argsort(index.slices["start"][children], kind="stable")], dtype=np.int64)


def _kernels(index: TraceIndex, tables: Tables, source: str, row: int) -> list[int]:
    if source != "ops":
        return []
    ids = []
    for name in ("kernels", "collectives"):
        rows = np.flatnonzero((tables[name]["op"] == row).fill_null(False).to_numpy())[:MOST_LISTED]
        ids += [number for number in (index.id_of(name, int(one)) for one in rows) if number is not None]
    return ids[:MOST_LISTED]


def _flows(index: TraceIndex, number: int) -> list[dict[str, Any]]:
    ends = []
    for direction, own, other in (("out", "from", "to"), ("in", "to", "from")):
        for arrow in np.flatnonzero(index.arrows[f"{own}_id"] == number)[:MOST_LISTED].tolist():
            end = int(index.arrows[f"{other}_id"][arrow])
            place = {"id": None, "name": None, "track": int(index.arrows[f"{other}_track"][arrow])}
            place["track"] = None if place["track"] == -1 else place["track"]
            brief = _brief(index, end) if end >= 0 else {**place, "start_ns": int(index.arrows[f"{other}_ns"][arrow])}
            ends.append({"category": index.categories[int(index.arrows["category"][arrow])], "direction": direction, **brief})
    return ends


def _links(tables: Tables, source: str, row: int, entry: Mapping[str, Any]) -> dict[str, Any]:
    operator = entry["name"] if source == "ops" else None
    if source in ("kernels", "collectives") and entry.get("op") is not None:
        operator = tables.ops["name"][entry["op"]]
    blocks = int((tables.allocations["op"] == row).sum()) if source == "ops" else 0
    return {
        "operator": operator,
        "kernel": entry["name"] if source in ("kernels", "collectives") else None,
        "memory": blocks or None,
        "communication": entry["name"] if source == "collectives" else None,
    }


def next_slice(index: TraceIndex, query: Query) -> dict[str, Any]:
    """The slice that starts next (or before) on the track, or next with the same name in the process."""
    number = _slice_id(index, query)
    forward = query.choice("dir", ("1", "-1")) == "1"
    row = int(index.row_of(number))
    track = index.tracks[index.row_track[row]]
    tracks = [track]
    if query.flag("same"):
        tracks = [other for other in index.tracks if other["process"] == track["process"] and other["kind"] == "slice"]
    start, name = index.slices["start"], index.slices["name"]
    own = (int(start[number]), number)
    best: tuple[int, int] | None = None
    for candidate in (other for one in tracks for other in one["rows"]):
        first, last = index.row_bounds[candidate], index.row_bounds[candidate + 1]
        at = int(np.searchsorted(start[first:last], own[0], side="left" if forward else "right")) + first
        places = np.arange(at, last) if forward else np.arange(at - 1, first - 1, -1)
        if query.flag("same"):
            places = places[name[places] == name[number]]
        for place in places[:3].tolist():  # slices that start together are ordered by id
            key = (int(start[place]), place)
            if (key > own if forward else key < own) and (best is None or (key < best if forward else key > best)):
                best = key
    return {"id": best[1] if best else None}


def next_gap(index: TraceIndex, query: Query) -> dict[str, Any]:
    """The idle time of a device that begins first after `at` (or last before it), of those that take `least` ns or more."""
    forward = query.choice("dir", ("1", "-1")) == "1"
    at, least = query.number("at", -1, least=-1), query.number("least", 0)
    found: list[tuple[int, int]] = []
    for row in (row for track in index.tracks if track["label"] == FREE for row in track["rows"]):
        start, end = index.part(row, "start"), index.part(row, "end")
        if not start.size or SOURCES[int(index.part(row, "source")[0])] != "overlap":
            continue
        edge = int(np.searchsorted(start, at, side="right" if forward else "left"))
        long = np.flatnonzero((end - start >= least)[edge:] if forward else (end - start >= least)[:edge])
        if long.size:
            place = edge + int(long[0]) if forward else int(long[-1])
            found.append((int(start[place]), index.row_bounds[row] + place))
    return {"id": (min(found) if forward else max(found))[1] if found else None}


def range_statistics(index: TraceIndex, body: object) -> dict[str, Any]:
    """Slices of a range by name, with their time inside of it: the rows of `Slice List`."""
    options = _range(index, body)
    group = options.get("group", "name")
    if group not in ("name", "track"):
        raise bad_parameter("group", "name or track")
    sort = options.get("sort", "wall")
    if sort not in SORTS:
        raise bad_parameter("sort", f"one of {', '.join(SORTS)}")
    limit = whole_number("limit", options.get("limit", 1000), 1, 20_000)
    parts = list(stretches(index, options["tracks"], options["from"], options["to"]))
    by = ["name"] if group == "name" else ["track", "name"]
    summed = _summed(index, parts, by, (options["from"], options["to"]))
    order = pl.col("name") if sort == "name" else pl.col(SORTS[sort])
    shown = summed.sort(order, "name", descending=[sort != "name", False]).head(limit)
    rows = [
        [index.names[row["name"]], *(row[key] / 1000 for key in ("wall", "self", "average", "max", "min")), row["count"]]
        for row in shown.iter_rows(named=True)
    ]
    answer = {"columns": list(RANGE_COLUMNS), "rows": rows, "name_ids": shown["name"].to_list(), "total": summed.height}
    if group == "track":
        answer["tracks"] = shown["track"].to_list()
    return {**answer, "slices": sum(high - low for _, low, high in parts)}


def _range(index: TraceIndex, body: object) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise bad_parameter("body", "an object with tracks, from and to")
    tracks = body.get("tracks")
    if tracks is not None:
        if not isinstance(tracks, list):
            raise bad_parameter("tracks", "a list of track ids or null")
        tracks = [whole_number("tracks", track, 0, max(0, len(index.tracks) - 1)) for track in tracks]
    low = whole_number("from", body.get("from", 0), 0, LARGEST)
    high = whole_number("to", body.get("to", index.length_ns + 1), 0, LARGEST)
    if low > high:
        raise bad_parameter("from", "not after to")
    return {**body, "tracks": tracks, "from": low, "to": high}


def stretches(index: TraceIndex, tracks: list[int] | None, low: int, high: int) -> list[tuple[int, int, int]]:
    """Track, first and beyond last id of the slices of each row that have a part in the range."""
    chosen = index.tracks if tracks is None else [index.tracks[track] for track in sorted(set(tracks))]
    parts = []
    for track in chosen:
        for row in track.get("rows", ()):
            first = index.row_bounds[row]
            start, end = index.part(row, "start"), index.part(row, "end")
            begin, beyond = (int(place) for place in np.searchsorted(start, (low, high)))
            begin -= begin > 0 and bool(end[begin - 1] > low)
            if begin < beyond:
                parts.append((track["id"], first + begin, first + beyond))
    return parts


def _summed(index: TraceIndex, parts: list[tuple[int, int, int]], by: list[str], window: tuple[int, int]) -> pl.DataFrame:
    """Sums per row of the timeline first: its columns are views of the map, so nothing is copied together.

    What a slice has outside of the window does not count; only the first and the last of a row can reach out of it.
    """
    start, end, name = (index.slices[key] for key in ("start", "end", "name"))
    wall = pl.col("wall")
    sums = []
    for track, low, high in parts:
        inside = np.minimum(end[low:high], window[1]) - np.maximum(start[low:high], window[0])
        frame = pl.DataFrame({"name": name[low:high], "wall": inside, "self": _self_inside(index, low, high, window)})
        grouped = (
            frame.lazy()
            .group_by("name")
            .agg(
                wall.sum(),
                pl.col("self").sum(),
                wall.max().alias("max"),
                wall.min().alias("min"),
                pl.len().cast(pl.Int64).alias("count"),
            )
        )
        sums.append(grouped.with_columns(track=pl.lit(track, pl.Int64)))
    schema = {
        "name": pl.UInt32,
        **dict.fromkeys(("wall", "self", "max", "min", "count", "track"), pl.Int64),
    }
    whole = pl.concat([pl.DataFrame(schema=schema), *pl.collect_all(sums)])
    return (
        whole.group_by(by)
        .agg(wall.sum(), pl.col("self").sum(), pl.col("max").max(), pl.col("min").min(), pl.col("count").sum())
        .with_columns(average=wall / pl.col("count"))
    )


def _self_inside(index: TraceIndex, low: int, high: int, window: tuple[int, int]) -> Array:
    """Time of slices low to high of one row inside a window, without that of their children."""
    start, end, own = (index.slices[key][low:high] for key in ("start", "end", "self"))
    cut = [place for place in {0, high - low - 1} if start[place] < window[0] or end[place] > window[1]]
    if not cut:
        return own
    changed = np.array(own)
    for place in cut:
        number = low + place
        children = _children(index, number, int(index.row_of(number)))
        pieces = [number, *children.tolist()]
        spent = np.minimum(index.slices["end"][pieces], window[1]) - np.maximum(index.slices["start"][pieces], window[0])
        spent = np.maximum(spent, 0)
        changed[place] = max(int(spent[0] - spent[1:].sum()), 0)
    return changed


def range_slices(index: TraceIndex, body: object) -> dict[str, Any]:
    """The slices of one name in a range, by start."""
    options = _range(index, body)
    name = whole_number("name", options.get("name"), 0, max(0, len(index.names) - 1))
    offset, limit = (
        whole_number("offset", options.get("offset", 0), 0, LARGEST),
        whole_number("limit", options.get("limit", 1000), 1, 20_000),
    )
    parts = stretches(index, options["tracks"], options["from"], options["to"])
    hits = [np.flatnonzero(index.slices["name"][low:high] == name) + low for _, low, high in parts]
    ids = np.concatenate([np.zeros(0, dtype=np.int64), *hits])
    shown = ids[np.argsort(index.slices["start"][ids], kind="stable")][offset : offset + limit]
    tracks = np.array(index.row_track, dtype=np.int64)[index.row_of(shown)] if shown.size else shown
    start, end = index.slices["start"][shown], index.slices["end"][shown]
    listed = {"ids": shown, "start_ns": start, "duration_ns": end - start, "track": tracks}
    return {"total": int(ids.size), **{key: column.tolist() for key, column in listed.items()}}


def search(index: TraceIndex, query: Query) -> dict[str, Any]:
    """Slices whose name matches: how many, the first ones, and where they lie."""
    text = query.text("q")
    if not text:
        raise bad_parameter("q", "what to look for")
    matching = _matching(index, text, query)
    low, high = query.window(index.length_ns)
    limit, px = query.number("limit", 100, least=0, most=5000), query.number("px", 1000, least=1, most=10_000)
    tracks = query.numbers("tracks")
    if tracks is not None and any(track >= len(index.tracks) for track in tracks):
        raise bad_parameter("tracks", "ids of tracks")
    whole = tracks is None and low == 0 and high > index.length_ns
    parts = [(0, 0, index.count)] if whole else stretches(index, tracks, low, high)
    ids = np.concatenate(
        [
            np.zeros(0, dtype=np.int64),
            *(np.flatnonzero(matching[index.slices["name"][first:last]]) + first for _, first, last in parts),
        ]
    )
    start = index.slices["start"][ids]
    first_ns = query.number("after", 0)
    later = np.flatnonzero(start >= first_ns) if first_ns else np.arange(ids.size)
    chosen = _earliest(start[later], limit)
    width = max(1, high - low)
    counts = np.bincount(np.clip((start - low) * px // width, 0, px - 1), minlength=px)
    return {
        "count": int(ids.size),
        "names": int(matching.sum()),
        "hits": [_brief(index, number) for number in ids[later[chosen]].tolist()],
        "density": {"from": low, "to": high, "counts": counts.tolist()},
    }


def _earliest(start: Array, limit: int) -> Ints:
    """Positions of the first by start, in order."""
    if start.size > limit:
        near = np.argpartition(start, limit)[:limit] if limit else np.zeros(0, dtype=np.int64)
        return np.asarray(near[np.argsort(start[near], kind="stable")], dtype=np.int64)
    return np.argsort(start, kind="stable")


def _matching(index: TraceIndex, text: str, query: Query) -> Array:
    """Whether each name matches. The engine's regular expressions take linear time, whatever the user types."""
    pattern = text if query.choice("mode", ("text", "regex")) == "regex" else re.escape(text)
    if query.flag("word"):
        pattern = rf"\b(?:{pattern})\b"
    if not query.flag("case"):
        pattern = f"(?i){pattern}"
    return matches(pl.Series(index.names, dtype=pl.String), pattern, "q")


def matches(texts: pl.Series, pattern: str, parameter: str) -> Array:
    if len(pattern) > 1000:
        raise bad_parameter(parameter, "at most 1,000 characters")
    try:
        hits = texts.str.contains(pattern)
    except pl.exceptions.ComputeError as problem:
        raise bad_parameter(parameter, f"no regular expression: {str(problem).splitlines()[0][:200]}") from None
    return np.asarray(hits.fill_null(False).to_numpy(), dtype=np.bool_)
