# SPDX-License-Identifier: Apache-2.0
"""Lanes in which spans nest: a span that crosses the border of another moves to a lane of its own.

Viewers draw the spans of one thread as a stack. Two that overlap without one holding the other (sub-tasks of one stream,
a Python frame that returns inside an operator) have no place in it; Perfetto drops or misplaces one of them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.export.trace.timeline import Timeline

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

SPANS = (
    "python_calls", "ops", "queue", "gc_pauses", "api_calls", "marks", "kernels", "device_marks", "collectives", "transfers",
    "overlap",
)  # fmt: skip
MOST_LANES = 64


def with_lanes(timeline: Timeline) -> Timeline:
    """The timeline with crossing spans on further threads, named after the first."""
    frames = {name: timeline[name] for name in SPANS if timeline[name].height}
    if not frames:
        return timeline
    spans = pl.concat([frame.select("pid", "tid", "start_ns", "end_ns") for frame in frames.values()])
    track = spans.select(pl.struct("pid", "tid").rank("dense").cast(pl.Int64)).to_series().to_numpy()
    lane = lanes(track, spans["start_ns"].to_numpy(), spans["end_ns"].to_numpy())
    if not lane.any():
        return timeline
    moved = _tids(spans.with_columns(lane=pl.Series(lane)), timeline)
    placed, start = dict(timeline.frames), 0
    for name, frame in frames.items():
        placed[name] = frame.with_columns(tid=moved.slice(start, frame.height))
        start += frame.height
    flows = _following(timeline.flows, timeline["ops"], placed["ops"])
    return Timeline(placed, flows, timeline.processes, timeline.device_kind)


def lanes(track: Ints, start: Ints, end: Ints) -> Ints:
    """Number of the lane of each span on its track, 0 for those that may stay."""
    lane = np.zeros(len(start), dtype=np.int64)
    left = np.arange(len(start))
    # One line for all tracks: shifted apart, spans of different tracks never meet.
    origin, width = start.min(), end.max() - start.min() + 1
    begin, finish = start - origin + track * width, np.maximum(end, start) - origin + track * width
    for number in range(1, MOST_LANES):
        left = left[_crossing(begin[left], finish[left])]
        if not left.size:
            break
        lane[left] = number
    return lane


def _crossing(start: Ints, end: Ints) -> Flags:
    """Whether a span begins inside another one that ends inside it: s' < s < e' < e."""
    order = np.argsort(end, kind="stable")
    ends, starts = end[order], start[order]
    low, high = np.searchsorted(ends, start, side="right"), np.searchsorted(ends, end, side="left")
    return _least(starts, low, high) < start


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


def _following(flows: pl.DataFrame, before: pl.DataFrame, after: pl.DataFrame) -> pl.DataFrame:
    """The arrows with their ends on the lanes to which the operators there moved."""
    if not flows.height:
        return flows
    moved = before.select("pid", "tid", "start_ns", after["tid"].alias("new")).filter(pl.col("tid") != pl.col("new"))
    moved = moved.unique(["pid", "tid", "start_ns"], keep="first")
    for side in ("from", "to"):
        ends = [f"{side}_pid", f"{side}_tid", f"{side}_ns"]
        found = flows.select(ends).join(moved, left_on=ends, right_on=["pid", "tid", "start_ns"], how="left", maintain_order="left")
        flows = flows.with_columns(pl.coalesce(found["new"], pl.col(f"{side}_tid")).alias(f"{side}_tid"))
    return flows


def _tids(spans: pl.DataFrame, timeline: Timeline) -> pl.Series:
    """The thread of each span; further lanes get numbers that no thread of the process has."""
    processes = timeline.processes
    names = {(process.pid, tid): name for process in processes for tid, name, _ in processes.threads(process.pid)}
    last = dict(spans.group_by("pid").agg(pl.col("tid").max()).iter_rows())
    key = ["pid", "tid", "lane"]
    rows = []
    for pid, tid, lane in spans.filter(pl.col("lane") > 0).select(key).unique().sort(key).iter_rows():
        last[pid] += 1
        processes.thread(pid, last[pid], f"{names.get((pid, tid), tid)} ({lane + 1})", sort=tid)
        rows.append((pid, tid, lane, last[pid]))
    schema = {"pid": pl.Int64, "tid": pl.Int64, "lane": pl.Int64, "new": pl.Int64}
    further = pl.DataFrame(rows, schema=schema, orient="row")
    joined = spans.join(further, on=key, how="left", maintain_order="left")
    return joined.select(pl.coalesce("new", "tid").alias("tid")).to_series()
