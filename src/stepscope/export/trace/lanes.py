# SPDX-License-Identifier: Apache-2.0
"""Lanes in which spans nest: a span that crosses the border of another moves to a lane of its own.

Viewers draw the spans of one thread as a stack. Two that overlap without one holding the other (sub-tasks of one stream,
a Python frame that returns inside an operator) have no place in it; Perfetto drops or misplaces one of them. Of two that
begin together, the one that is written later must not be the longer one. Perfetto's engine also takes negative numbers of
threads, and 0, for the main thread.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.export.trace.spans import turns
from stepscope.export.trace.timeline import Timeline

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

# In the order in which they are written.
SPANS = (
    "python_calls", "ops", "queue", "gc_pauses", "api_calls", "kernels", "waits", "collectives", "transfers", "marks",
    "device_marks", "task_parts", "overlap",
)  # fmt: skip
MOST_LANES = 64
MOST_TURNS = 1000
LARGEST_TID = (1 << 32) - 1


def with_lanes(timeline: Timeline) -> Timeline:
    """The timeline with crossing spans, and threads that Perfetto would mistake, on further threads, named after the first."""
    frames = {name: timeline[name] for name in SPANS if timeline[name].height}
    if not frames:
        return timeline
    whole = pl.concat([frame.select("pid", "tid", "start_ns", "end_ns") for frame in frames.values()])
    track = whole.select(pl.struct("pid", "tid").rank("dense").cast(pl.Int64)).to_series().to_numpy()
    turn = np.concatenate([MOST_TURNS * number + turns(timeline, name).to_numpy() for number, name in enumerate(frames)])
    lane = lanes(track, whole["start_ns"].to_numpy(), whole["end_ns"].to_numpy(), turn)
    moved = _tids(whole.with_columns(lane=pl.Series(lane)), timeline)
    placed, start = dict(timeline.frames), 0
    for name, frame in frames.items():
        placed[name] = frame.with_columns(tid=moved.slice(start, frame.height))
        start += frame.height
    return Timeline(placed, timeline.flows, timeline.processes, timeline.device_kind)


def lanes(track: Ints, start: Ints, end: Ints, turn: Ints | None = None) -> Ints:
    """Number of the lane of each span on its track, 0 for those that may stay.

    Of spans that start together the one with the lower `turn` is written first, else the longer one.
    """
    lane = np.zeros(len(start), dtype=np.int64)
    turn = np.zeros(len(start), dtype=np.int64) if turn is None else turn
    left = np.arange(len(start))
    # One line for all tracks: shifted apart, spans of different tracks never meet.
    origin, width = start.min(), end.max() - start.min() + 1
    begin, finish = start - origin + track * width, np.maximum(end, start) - origin + track * width
    place = np.empty(len(start), dtype=np.int64)
    place[np.lexsort((-finish, turn, begin))] = np.arange(len(start))
    for number in range(1, MOST_LANES):
        left = left[_crossing(begin[left], finish[left], place[left])]
        if not left.size:
            break
        lane[left] = number
    return lane


def _crossing(start: Ints, end: Ints, place: Ints) -> Flags:
    """Whether a span begins inside one written before it that ends inside it: s' <= s < e' < e."""
    order = np.argsort(end, kind="stable")
    ends, places = end[order], place[order]
    low, high = np.searchsorted(ends, start, side="right"), np.searchsorted(ends, end, side="left")
    return _least(places, low, high) < place


def _least(values: Ints, low: Ints, high: Ints) -> Ints:
    """Least of values[low:high] for each pair, the largest integer where that is empty; by doubling windows."""
    least = np.full(len(low), np.iinfo(np.int64).max)
    length = np.maximum(high - low, 0)
    level = np.where(length > 0, np.frexp(length)[1] - 1, -1)
    window = values
    for depth in range(int(level.max(initial=-1)) + 1):
        at = np.flatnonzero(level == depth)
        least[at] = np.minimum(window[low[at]], window[high[at] - (1 << depth)])
        window = np.minimum(window[: -(1 << depth)], window[1 << depth :]) if len(window) > 1 << depth else window
    return least


def _tids(whole: pl.DataFrame, timeline: Timeline) -> pl.Series:
    """The thread of each span; further lanes get numbers that no thread of the process has."""
    processes = timeline.processes
    names = {(process.pid, tid): name for process in processes for tid, name, _ in processes.threads(process.pid)}
    key = ["pid", "tid", "lane"]
    tracks = whole.select(key).unique().sort(key)
    mistaken = (pl.col("tid") < 0) | (pl.col("tid") > LARGEST_TID) | ((pl.col("tid") == 0) & _has_main_thread(tracks))
    last = dict(tracks.filter(~mistaken).group_by("pid").agg(pl.col("tid").max()).iter_rows())
    rows = []
    for pid, tid, lane, first in tracks.with_columns(first=pl.col("lane") == 0).filter(mistaken | ~pl.col("first")).iter_rows():
        last[pid] = last.get(pid, 0) + 1
        name = names.get((pid, tid), str(tid))
        processes.thread(pid, last[pid], name if first else f"{name} ({lane + 1})", sort=tid)
        rows.append((pid, tid, lane, last[pid]))
    schema = {"pid": pl.Int64, "tid": pl.Int64, "lane": pl.Int64, "new": pl.Int64}
    further = pl.DataFrame(rows, schema=schema, orient="row")
    joined = whole.join(further, on=key, how="left", maintain_order="left")
    return joined.select(pl.coalesce("new", "tid").alias("tid")).to_series()


def _has_main_thread(tracks: pl.DataFrame) -> pl.Expr:
    """Whether the process has a thread of its own number, for which Perfetto's engine takes thread 0."""
    processes = tracks.filter(pl.col("tid") == pl.col("pid"))["pid"].unique()
    return pl.col("pid").is_in(processes.implode())
