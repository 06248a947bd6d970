# SPDX-License-Identifier: Apache-2.0
"""When each task ran on the 310, from the states that its scheduler reports (docs/formats/cann.md 6.8)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.formats.cann.chips import Chip
from stepscope.formats.cann.device.hwts import STREAM_BITS
from stepscope.formats.cann.device.sized_records import TIMELINE_KIND, read_sized
from stepscope.formats.cann.device.task_frame import task_frame, type_texts
from stepscope.formats.cann.device.ts_track import Track
from stepscope.formats.cann.folder import Part
from stepscope.formats.cann.layouts import TIMELINE
from stepscope.tables import TEXT, issues, lost

Column = npt.NDArray[Any]

WAITING, RUNNING, COMPLETE, PENDING = 1, 2, 3, 4
_KNOWN = (WAITING, RUNNING, COMPLETE, PENDING, 7, 8, 9)
# What the vendor's files call the types of tasks.
TYPE_WORDS = {
    0: "kernel AI core task", 1: "kernel AI cpu task", 2: "event record task", 3: "stream wait event task", 4: "fusion issue task",
    5: "memory copy task", 6: "maintenance task", 7: "create stream task", 8: "kernel data dump task", 9: "event notify task",
    10: "pctrace enable task", 11: "create L2 addr task", 12: "model maintaince task", 13: "model execute task",
    14: "notify wait task", 15: "notify record task", 16: "HCCL rdma cpy task", 17: "L2 SDMA memory copy task",
    18: "stream switch task", 19: "stream active task", 20: "label set task", 21: "label switch task", 22: "label goto task",
    23: "profiler trace task", 24: "event reset task", 25: "HCCL rdma db cpy task", 26: "profiler trace task",
    50: "stars common task", 51: "ffts task", 52: "ffts plus task", 64: "profiling enable task", 65: "profiling disable task",
    66: "AI vector task", 67: "add model end graph task", 68: "AICPU schedule task", 69: "active stream task",
    70: "load data dump info task", 71: "stream switch n task", 72: "Host func Callback task", 73: "start online profiling task",
    74: "stop online profiling task", 75: "stream label switch task", 77: "stream label goto task",
    78: "overflow debug register task", 79: "overflow debug unregister task", 80: "L1 fusion dump set task",
    81: "add model exit graph task", 82: "mdc profiling task", 83: "device ring buff set task",
    84: "stream overflow debug register task", 85: "stream overflow debug unregister task", 86: "timeout set task",
    87: "get device message task",
}  # fmt: skip
_DEVICE_TYPES = {0: "AI_CORE", 1: "AI_CPU"}


def read_tasks(part: Part, chip: Chip, track: Track, queued: pl.DataFrame | None) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
    """Frame TASKS with the columns of table `task_states`, and what was lost.

    "complete" closes a run; its start is the last "running" of the same task before it.
    """
    del chip, track, queued
    found, losses = read_sized(part, TIMELINE.file, {TIMELINE_KIND: TIMELINE})
    rows = found[TIMELINE_KIND]
    state = rows["state"].astype(np.int64)
    strange = ~np.isin(state, _KNOWN)
    losses += [
        lost(issues.UNKNOWN_KIND, TIMELINE.file, int(count), f"state {number} of a task")
        for number, count in zip(*np.unique(state[strange], return_counts=True), strict=True)
    ]
    stream, task = rows["stream"].astype(np.int64) & STREAM_BITS, rows["task"].astype(np.int64)
    counter = np.ascontiguousarray(rows["counter"])
    order = np.lexsort((state, counter, task, stream))
    state, counter, stream, task, kind = state[order], counter[order], stream[order], task[order], rows["task_type"][order]
    ends = np.flatnonzero(state == COMPLETE)
    # A run reaches from after the "complete" before it, of the same task.
    new_task = np.ones(len(state), bool)
    new_task[1:] = (stream[1:] != stream[:-1]) | (task[1:] != task[:-1])
    begins = np.maximum.accumulate(np.where(new_task, np.arange(len(state)), 0)) if len(state) else np.empty(0, np.int64)
    after = np.concatenate([[-1], ends[:-1]]) + 1 if len(ends) else ends
    least = np.maximum(begins[ends], after)
    last_of = {number: _last_before(state == number, ends, least) for number in (WAITING, RUNNING, PENDING)}
    running = last_of[RUNNING]
    started = np.where(running >= 0, running, last_of[PENDING])  # the vendor's rule where "running" is missing
    timed = started >= 0
    losses.append(lost(issues.END_WITHOUT_START, TIMELINE.file, int(np.count_nonzero(~timed)), "device tasks"))
    losses.append(lost(issues.START_WITHOUT_END, TIMELINE.file, _open_runs(state, new_task, ends), "device tasks"))
    chosen = ends[timed]
    types = np.minimum(kind[chosen], 255)
    frame = task_frame(
        part, stream=stream[chosen], task=task[chosen], start=counter[started[timed]], end=counter[chosen],
        device_type=type_texts(types, _DEVICE_TYPES, unknown="Other"),
    )  # fmt: skip
    by_start = np.lexsort((np.full(len(chosen), -1), counter[started[timed]]))  # as `task_frame` sorts
    ran = running[timed]
    waiting, pending = last_of[WAITING][timed], last_of[PENDING][timed]
    until = np.where(ran >= 0, np.where(counter[ran] < counter[waiting], chosen, ran), chosen)
    words = type_texts(types, TYPE_WORDS, unknown="").cast(pl.String)
    named = pl.select(pl.when(words == "").then(pl.format("unknown {}", pl.Series(kind[chosen]))).otherwise(words)).to_series()
    return (
        frame.with_columns(
            waiting_ns=pl.Series(_span_ns(part, counter, waiting, until)[by_start]),
            running_ns=pl.Series(_span_ns(part, counter, ran, chosen)[by_start]),
            pending_ns=pl.Series(_span_ns(part, counter, pending, chosen)[by_start]),
            scheduled_type=named[by_start].cast(TEXT),
        ),
        [row for row in losses if row.height],
    )


def _last_before(marked: Column, ends: Column, least: Column) -> Column:
    """Place of the last marked record before each end and not before `least`; -1 where there is none."""
    places = np.flatnonzero(marked)
    at = np.searchsorted(places, ends) - 1
    found = np.where(at >= 0, places[np.maximum(at, 0)] if len(places) else -1, -1)
    return np.where(found >= least, found, -1)


def _open_runs(state: Column, new_task: Column, ends: Column) -> int:
    """Tasks that were running last: no "complete" follows."""
    if not len(state):
        return 0
    number = np.cumsum(new_task) - 1
    last_end = np.full(int(number[-1]) + 1, -1)
    np.maximum.at(last_end, number[ends], ends)
    running = np.flatnonzero(state == RUNNING)
    return len(np.unique(number[running[running > last_end[number[running]]]]))


def _span_ns(part: Part, counter: Column, first: Column, last: Column) -> npt.NDArray[np.float64]:
    """Time between two records; 0 where the first is missing."""
    spans = part.clock.duration_between(counter[np.maximum(first, 0)], counter[last]) if len(first) else np.empty(0)
    return np.where(first >= 0, spans, 0.0)
