# SPDX-License-Identifier: Apache-2.0
"""The timeline of a capture, ready for queries: slices by row, prepared clusters, samples and arrows as mapped columns.

Built once from the tables, kept in a folder beside the store and opened by memory map. A slice's id is its position when
slices are ordered by row and start.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.analysis.link.groups import group_numbers, rows_by_group
from stepscope.tables import Tables
from stepscope.tables.sealed_folder import Damaged, SealedFolder, seal
from stepscope.tables.whole_folder import replacing_folder
from stepscope.web.timeline.arrows import ARROW, arrows
from stepscope.web.timeline.depth_rows import depth_rows
from stepscope.web.timeline.levels import CLUSTER, Clusters, prepared
from stepscope.web.timeline.slices import SOURCES, Gathered, gather

Ints = npt.NDArray[np.int64]
Array = npt.NDArray[Any]

VERSION = 4
_MOST_HEAD = 4096  # bytes of a npy header
SERIES = ("process", "name", "series", "instance")
NONE = np.iinfo(np.uint32).max
COLUMNS = {
    "start": "<i8", "end": "<i8", "name": "<u4", "source": "<u1", "source_row": "<u4", "parent": "<u4", "self": "<i8",
}  # fmt: skip


@dataclass(frozen=True)
class TraceIndex:
    """One timeline. Times are ns since `base_ns`; `rows` and `tracks` refer to each other and to processes by position."""

    base_ns: int
    length_ns: int
    processes: list[dict[str, Any]]
    tracks: list[dict[str, Any]]  # slice tracks have `rows`, counter tracks `samples`
    row_track: list[int]
    row_bounds: list[int]  # row r holds the slices row_bounds[r] to row_bounds[r + 1]
    names: list[str]
    categories: list[str]  # of arrows
    slices: Mapping[str, Array]
    clusters: Mapping[int, Mapping[int, Clusters]]  # row -> level -> clusters
    samples: Mapping[str, Array]  # time, value
    sample_bounds: Mapping[int, tuple[int, int]]  # counter track -> its samples
    arrows: Mapping[str, Array]
    places: Mapping[str, Array] = field(default_factory=dict)  # source -> id of the slice of each table row

    @property
    def count(self) -> int:
        return self.row_bounds[-1]

    @cached_property
    def row_of_slice_bounds(self) -> Ints:
        return np.array(self.row_bounds, dtype=np.int64)

    def row_of(self, ids: Any) -> Any:
        """The row of each slice."""
        return np.searchsorted(self.row_of_slice_bounds, ids, side="right") - 1

    def part(self, row: int, column: str) -> Array:
        return self.slices[column][self.row_bounds[row] : self.row_bounds[row + 1]]

    def name_and_length(self, number: int) -> tuple[str, int]:
        """Name and length in ns of one slice."""
        return self.names[int(self.slices["name"][number])], int(self.slices["end"][number] - self.slices["start"][number])

    def id_of(self, source: str, row: int) -> int | None:
        """The slice of a table row."""
        place = self.places.get(source)
        if place is None or not 0 <= row < len(place) or place[row] == NONE:
            return None
        return int(place[row])


def build(tables: Tables) -> TraceIndex:
    gathered = gather(tables)
    base, last = _extent(gathered, tables)
    tracks, track = _tracks(gathered)
    slices, row_track, bounds = _rows(gathered.slices, track, base, tracks)
    names, slices["name"] = _dense(slices["name"], gathered.slices["name"])
    samples, sample_bounds = _sampled(gathered, tracks, base)
    places = _places(slices)
    index = TraceIndex(
        base, last - base, _processes(gathered, tables), tracks, row_track, bounds, names, [], slices, {}, samples, sample_bounds,
        {}, places,
    )  # fmt: skip
    clusters = {
        row: prepared(index.part(row, "start"), index.part(row, "end"), bounds[row])
        for row in range(len(row_track))
        if bounds[row + 1] - bounds[row] > 1
    }
    categories, pointed = arrows(tables, index, gathered)
    return replace(index, clusters=clusters, categories=categories, arrows=pointed)


def _extent(gathered: Gathered, tables: Tables) -> tuple[int, int]:
    starts = [gathered.slices["start_ns"].min(), gathered.samples["time_ns"].min(), tables.memory_events["time_ns"].min()]
    ends = [gathered.slices["end_ns"].max(), gathered.samples["time_ns"].max(), tables.memory_events["time_ns"].max()]
    known = [time for time in starts if isinstance(time, int)]
    beyond = [time for time in ends if isinstance(time, int)]
    return min(known, default=0), max(beyond, default=0)


def _processes(gathered: Gathered, tables: Tables) -> list[dict[str, Any]]:
    rank = tables.facts.rank if tables.facts.rank >= 0 else None
    npu = tables.facts.device_kind in ("npu", "")  # the adapter of PyTorch is part of an NPU's software
    return [
        {
            "id": number, "name": process.name, "badge": "PTA" if npu and process.layer.name == "Python" else None,
            "label": process.label, "sort": process.layer.sort, "rank": rank, "pid": process.pid, "layer": process.layer.name,
        }
        for number, process in enumerate(gathered.processes)
    ]  # fmt: skip


def _tracks(gathered: Gathered) -> tuple[list[dict[str, Any]], Ints]:
    """Tracks in display order, and the track of each slice."""
    position = {process.pid: number for number, process in enumerate(gathered.processes)}
    group = group_numbers([gathered.slices], ["pid", "tid"])[0]
    keyed = gathered.slices.select("pid", "tid").with_columns(group=pl.Series(group)).unique("group")
    entries = []
    for pid, tid, number in keyed.iter_rows():
        label, sort = gathered.threads.get((pid, tid), (f"Thread {tid}", tid))
        entries.append((position[pid], sort, tid, label, number))
    entries.sort()
    counters = gathered.samples.select(SERIES).unique(maintain_order=True).rows()
    tracks: list[dict[str, Any]] = []
    number_of = np.zeros(int(group.max(initial=0)) + 1, dtype=np.int64)
    for process in range(len(gathered.processes)):
        for _, sort, tid, label, number in (entry for entry in entries if entry[0] == process):
            number_of[number] = len(tracks)
            tracks.append(
                {"id": len(tracks), "process": process, "kind": "slice", "thread": tid, "label": label, "sort": sort,
                 "rows": [], "slices": 0, "overlapping": 0}
            )  # fmt: skip
        for _, name, series, instance in (entry for entry in counters if entry[0] == process):
            label = name or series or "counter"
            tracks.append(
                {"id": len(tracks), "process": process, "kind": "counter",
                 "label": label if instance is None else f"{label} #{instance}", "sort": len(tracks), "series": series,
                 "unit": _unit(series), "samples": 0, "min": None, "max": None}
            )  # fmt: skip
    return tracks, number_of[group] if group.size else group


def _unit(series: str | None) -> str:
    opening = series.rfind("(") if series else -1
    return series[opening + 1 : -1] if series and opening >= 0 and series.endswith(")") else ""


def _rows(
    frame: pl.DataFrame, track: Ints, base: int, tracks: list[dict[str, Any]]
) -> tuple[dict[str, Array], list[int], list[int]]:
    """Slices ordered by row and start, the track of each row and where each row begins."""
    starts, ends = frame["start_ns"].to_numpy() - base, frame["end_ns"].to_numpy() - base
    order_parts: list[Ints] = []
    self_parts: list[Ints] = []
    parent_parts: list[Ints] = []
    row_track: list[int] = []
    bounds = [0]
    for number, members in rows_by_group(track):
        order = members[_outer_first(starts[members], ends[members])]
        depth, overlapping = depth_rows(starts[order], ends[order])
        # Few rows: sorting 16-bit numbers is linear.
        order = order[np.argsort(depth.astype(np.uint16) if depth.max(initial=0) < 1 << 16 else depth, kind="stable")]
        counts = np.bincount(depth)
        tracks[number].update(rows=list(range(len(row_track), len(row_track) + counts.size)))
        tracks[number].update(slices=int(members.size), overlapping=overlapping)
        parent, own = _family(starts[order], ends[order], counts)
        parent_parts.append(np.where(parent >= 0, parent + bounds[-1], int(NONE)))
        self_parts.append(own)
        order_parts.append(order)
        row_track += [number] * counts.size
        first = bounds[-1]
        bounds += (first + np.cumsum(counts)).tolist()
    order = np.concatenate(order_parts) if order_parts else np.zeros(0, dtype=np.int64)
    name = frame["name"].to_physical().to_numpy()
    columns = {
        "start": starts[order], "end": ends[order], "name": name[order], "source": frame["source"].to_numpy()[order],
        "source_row": frame["row"].to_numpy()[order],
        "parent": np.concatenate(parent_parts) if parent_parts else order,
        "self": np.concatenate(self_parts) if self_parts else order,
    }  # fmt: skip
    return {key: column.astype(COLUMNS[key]) for key, column in columns.items()}, row_track, bounds


def _outer_first(start: Ints, end: Ints) -> Ints:
    """Order by start and, where equal, the longer first. Most tables are sorted by start, so a stable sort is all but linear."""
    order = np.argsort(start, kind="stable")
    sorted_start = start[order]
    same = np.flatnonzero(sorted_start[1:] == sorted_start[:-1])
    if same.size:
        tied = np.unique(np.concatenate((same, same + 1)))
        rows = order[tied]
        order[tied] = rows[np.lexsort((-end[rows], start[rows]))]
    return order


def _family(start: Ints, end: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """Parent (position, -1 at the root) and time without children of slices ordered by row and start."""
    bounds = np.concatenate(([0], np.cumsum(counts)))
    parent = np.full(len(start), -1, dtype=np.int64)
    for row in range(1, len(counts)):
        open_slices = np.arange(bounds[row], bounds[row + 1])
        for above in range(row - 1, -1, -1):
            first, last = bounds[above], bounds[above + 1]
            place = np.searchsorted(start[first:last], start[open_slices], side="right") - 1 + first
            inside = (place >= first) & (end[open_slices] <= end[np.maximum(place, 0)])
            parent[open_slices[inside]] = place[inside]
            open_slices = open_slices[~inside]
            if not open_slices.size:
                break
    length = end - start
    has_parent = parent >= 0
    children = np.bincount(parent[has_parent], weights=length[has_parent], minlength=len(start))
    return parent, length - children.astype(np.int64)


def _dense(codes: Array, names: pl.Series) -> tuple[list[str], Array]:
    """Names in the order of the alphabet, and the number of each slice's name."""
    distinct = names.unique().drop_nulls()
    texts = distinct.cast(pl.String)
    order = texts.arg_sort().to_numpy()
    known = distinct.to_physical().to_numpy()[order]
    number = np.zeros(int(known.max(initial=0)) + 1, dtype="<u4")
    number[known] = np.arange(known.size)
    return texts.gather(order).to_list(), number[codes] if codes.size else codes


def _sampled(gathered: Gathered, tracks: list[dict[str, Any]], base: int) -> tuple[dict[str, Array], dict[int, tuple[int, int]]]:
    time, value = gathered.samples["time_ns"].to_numpy() - base, gathered.samples["value"].to_numpy()
    group = group_numbers([gathered.samples], SERIES)[0]
    edges = np.flatnonzero(np.diff(group, prepend=-1, append=-1)).tolist() if group.size else []
    bounds = {}
    counters = [track for track in tracks if track["kind"] == "counter"]
    for track, (first, last) in zip(counters, pairwise(edges), strict=True):
        bounds[track["id"]] = (first, last)
        good = value[first:last][~np.isnan(value[first:last])]
        track.update(
            samples=last - first, min=float(good.min()) if good.size else None, max=float(good.max()) if good.size else None
        )
    return {"time": time.astype("<i8"), "value": value.astype("<f8")}, bounds


def _places(slices: Mapping[str, Array]) -> dict[str, Array]:
    places = {}
    for code, source in enumerate(SOURCES):
        ids = np.flatnonzero(slices["source"] == code)
        if ids.size:
            rows = slices["source_row"][ids]
            place = np.full(int(rows.max()) + 1, NONE, dtype="<u4")
            place[rows] = ids
            places[source] = place
    return places


def save(index: TraceIndex, folder: Path, key: str) -> None:
    """Keep the timeline at `folder`; `key` names the data that it was built from."""
    parts = {**index.slices, **{f"sample_{name}": column for name, column in index.samples.items()}}
    parts |= {f"arrow_{name}": column for name, column in index.arrows.items()}
    parts |= {f"place_{source}": column for source, column in index.places.items()}
    levels, ready = _flat(index.clusters)
    parts |= {f"cluster_{name}": column for name, column in ready.items()}
    manifest = {
        "version": VERSION, "key": key, "base_ns": index.base_ns, "length_ns": index.length_ns, "processes": index.processes,
        "tracks": index.tracks, "row_track": index.row_track, "row_bounds": index.row_bounds, "names": index.names,
        "categories": index.categories, "levels": levels,
        "sample_bounds": [[track, *ends] for track, ends in index.sample_bounds.items()], "places": list(index.places),
    }  # fmt: skip
    with replacing_folder(folder) as new:
        for name, column in parts.items():
            np.save(new / f"{name}.npy", column, allow_pickle=False)
        seal(new, manifest)


def _flat(clusters: Mapping[int, Mapping[int, Clusters]]) -> tuple[list[list[int]], dict[str, Array]]:
    """All clusters as one set of columns, and which part belongs to which row and level."""
    levels, parts, at = [], [], 0
    for row, by_level in clusters.items():
        for level, part in by_level.items():
            levels.append([row, level, at, at + part.bin.size])
            parts.append(part)
            at += part.bin.size
    empty = np.zeros(0, dtype=np.int64)
    return levels, {name: np.concatenate([empty, *(getattr(part, name) for part in parts)]).astype("<i8") for name in CLUSTER}


def load(folder: Path, key: str) -> TraceIndex | None:
    """Open a kept timeline; None when it is absent, damaged or built from other data."""
    try:
        sealed = SealedFolder(folder)
        manifest = sealed.content
        if manifest["version"] != VERSION or manifest["key"] != key:
            return None

        def mapped(name: str) -> Array:
            return _array(sealed.data(f"{name}.npy"))

        clusters: dict[int, dict[int, Clusters]] = {}
        ready = {name: mapped(f"cluster_{name}") for name in CLUSTER}
        for row, level, first, last in manifest["levels"]:
            clusters.setdefault(row, {})[level] = Clusters(**{name: column[first:last] for name, column in ready.items()})
        return TraceIndex(
            base_ns=manifest["base_ns"],
            length_ns=manifest["length_ns"],
            processes=manifest["processes"],
            tracks=manifest["tracks"],
            row_track=manifest["row_track"],
            row_bounds=manifest["row_bounds"],
            names=manifest["names"],
            categories=manifest["categories"],
            slices={name: mapped(name) for name in COLUMNS},
            clusters=clusters,
            samples={name: mapped(f"sample_{name}") for name in ("time", "value")},
            sample_bounds={track: (first, last) for track, first, last in manifest["sample_bounds"]},
            arrows={name: mapped(f"arrow_{name}") for name in ARROW},
            places={source: mapped(f"place_{source}") for source in manifest["places"]},
        )
    except (Damaged, ValueError, KeyError, TypeError):  # all but the first: sealed, but by another program
        return None


def _array(data: memoryview) -> Array:
    """A view of the mapped bytes of a npy file."""
    head = io.BytesIO(data[:_MOST_HEAD])
    np.lib.format.read_magic(head)
    shape, _, dtype = np.lib.format.read_array_header_1_0(head)
    array: Array = np.frombuffer(data[head.tell() :], dtype)
    return array.reshape(shape)
