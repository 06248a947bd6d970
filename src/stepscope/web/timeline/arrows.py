# SPDX-License-Identifier: Apache-2.0
"""The arrows of a timeline: which slice points to which, by category (docs/formats/outputs.md 3.1, 3.3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.analysis.flows import enqueue_to_dequeue
from stepscope.export.trace.flows import ARROWS
from stepscope.formats.ascend.trace import layers
from stepscope.tables import Tables
from stepscope.web.timeline.slices import Gathered

if TYPE_CHECKING:
    from stepscope.web.timeline.index import TraceIndex

Ints = npt.NDArray[np.int64]
Array = npt.NDArray[Any]

ARROW = {
    "category": "<u1", "from_ns": "<i8", "from_track": "<i4", "from_id": "<i8", "to_ns": "<i8", "to_track": "<i4", "to_id": "<i8",
}  # fmt: skip
End = tuple[Ints, Ints, Ints]  # time, track, slice; -1 where there is none


def arrows(tables: Tables, index: TraceIndex, gathered: Gathered) -> tuple[list[str], dict[str, Array]]:
    """Categories by name, and all arrows sorted by where they begin."""
    finder = _Finder(index)
    parts: dict[str, list[tuple[End, End]]] = {}
    for category, start, end in _pairs(tables, finder, gathered):
        if start[0].size:
            parts.setdefault(category, []).append((start, end))
    categories = sorted(parts)
    columns: dict[str, Array] = {name: np.zeros(0, dtype=dtype) for name, dtype in ARROW.items()}
    rows = [(number, *pair) for number, category in enumerate(categories) for pair in parts[category]]
    if rows:
        columns["category"] = np.concatenate([np.full(start[0].size, number) for number, start, _ in rows])
        for side, place in (("from", 1), ("to", 2)):
            for part, name in enumerate(("ns", "track", "id")):
                columns[f"{side}_{name}"] = np.concatenate([row[place][part] for row in rows])  # type: ignore[index]
    order = np.argsort(columns["from_ns"], kind="stable")
    return categories, {name: column[order].astype(ARROW[name]) for name, column in columns.items()}


def _pairs(tables: Tables, finder: _Finder, gathered: Gathered) -> Iterator[tuple[str, End, End]]:
    timeline = gathered.timeline
    for name in ("kernels", "collectives"):
        if name == "collectives" and not timeline.is_npu:
            continue
        tasks = tables[name].with_row_index("row")
        if timeline.is_npu:
            owned = tasks.filter(pl.col("op").is_not_null())
            yield "async_npu", finder.of_rows("ops", owned["op"]), finder.of_rows(name, owned["row"])
        known = tasks.filter(pl.col("launch_ns").is_not_null() & pl.col("connection_id").is_not_null())
        if timeline.is_npu and name == "kernels":
            known = known.filter(pl.col("kind").is_in(ARROWS))
        pid = timeline.processes.of(layers.CANN, None, None) if timeline.is_npu else timeline.processes.main_pid
        starts = finder.at(
            pl.Series([pid], dtype=pl.Int64).new_from_index(0, known.height), known["launch_tid"].fill_null(0), known["launch_ns"]
        )
        yield "HostToDevice" if timeline.is_npu else "ac2g", starts, finder.of_rows(name, known["row"])
    queued = enqueue_to_dequeue(tables.queue)
    yield "async_task_queue", finder.of_rows("queue", queued["enqueue"]), finder.of_rows("queue", queued["dequeue"])
    flows = tables.flows
    for kind in flows["kind"].unique().drop_nulls().cast(pl.String).sort().to_list():
        rows = flows.filter(pl.col("kind") == kind).drop_nulls(["from_ns", "to_ns"])
        yield kind, *(finder.at(rows[f"{side}_pid"], rows[f"{side}_tid"], rows[f"{side}_ns"]) for side in ("from", "to"))
    marks = tables.marks.with_row_index("row").filter(
        pl.col("connection_id").is_not_null() & pl.col("device_start_ns").is_not_null()
    )
    if timeline.is_npu:
        yield "MsTx", finder.of_rows("marks", marks["row"]), finder.of_rows("device_marks", marks["row"])


class _Finder:
    """Slices by the row of their table, or by thread and time."""

    def __init__(self, index: TraceIndex):
        self._index = index
        pids = [process["pid"] for process in index.processes]
        self._track = {(pids[track["process"]], track["thread"]): track for track in index.tracks if track["kind"] == "slice"}
        self._row_track = np.array(index.row_track, dtype=np.int64)

    def of_rows(self, source: str, rows: pl.Series) -> End:
        place = self._index.places.get(source)
        number = rows.to_numpy().astype(np.int64)
        if place is None or not number.size:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        ids = place[number].astype(np.int64)
        return self._index.slices["start"][ids], self._row_track[self._index.row_of(ids)], ids

    def at(self, pid: pl.Series, tid: pl.Series, time: pl.Series) -> End:
        """The innermost slice of each thread at each time."""
        times = time.to_numpy().astype(np.int64) - self._index.base_ns
        tracks, ids = np.full(times.size, -1, dtype=np.int64), np.full(times.size, -1, dtype=np.int64)
        places = pl.DataFrame({"pid": pid, "tid": tid}).with_row_index("row").group_by("pid", "tid").agg("row")
        for one, thread, rows in places.iter_rows():
            track = self._track.get((one, thread))
            if track is not None:
                members = np.array(rows, dtype=np.int64)
                tracks[members] = track["id"]
                ids[members] = innermost(self._index, track["rows"], times[members])
        return times, tracks, ids


def innermost(index: TraceIndex, rows: list[int], times: Ints) -> Ints:
    """The slice of the deepest row that is open at each time, -1 where none is."""
    ids = np.full(times.size, -1, dtype=np.int64)
    left = np.arange(times.size)
    for row in reversed(rows):
        start, end = index.part(row, "start"), index.part(row, "end")
        place = np.searchsorted(start, times[left], side="right") - 1
        inside = (place >= 0) & ((end[place] > times[left]) | (start[place] == times[left]))
        ids[left[inside]] = place[inside] + index.row_bounds[row]
        left = left[~inside]
        if not left.size:
            break
    return ids
