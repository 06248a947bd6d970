# SPDX-License-Identifier: Apache-2.0
"""When each task ran on chips with the HWTS scheduler: 910A, 310P and relatives (docs/formats/cann.md 6.7)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.formats.cann.chips import Chip
from stepscope.formats.cann.device.flips import Flips, batch_ids
from stepscope.formats.cann.device.task_frame import TASKS, pair, task_frame, type_texts
from stepscope.formats.cann.device.ts_track import Track
from stepscope.formats.cann.folder import Part
from stepscope.formats.cann.layouts import HWTS, HWTS_VECTOR
from stepscope.formats.cann.records import concatenate, read_records
from stepscope.tables import issues, lost

Column = npt.NDArray[Any]

TASK_START, TASK_END = 0, 1
_OF_BLOCKS = (2, 3, 4)  # see `task_parts`
_UNREAD = {5: "counters of a task"}
STREAM_BITS = 0x7FF
_UNSAID_TYPE = "Other"  # where records do not say what a task is
_OF_TASK = ["stream", "task_id", "batch_id"]


def read_tasks(part: Part, chip: Chip, track: Track, queued: pl.DataFrame | None) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
    """Frame TASKS in the order of start, and what was lost.

    Args:
        part: the device's folder.
        chip: its row.
        track: its scheduler's reports, which have the times of tasks that this scheduler does not run.
        queued: tasks of the host with these keys; None when nobody says.
    """
    found = [read_records(part, layout) for layout in (HWTS, HWTS_VECTOR)]
    losses = [row for records in found for row in records.lost]
    losses += [counter_gaps(records.rows["head"], HWTS.file) for records in found if len(records)]
    rows = concatenate([records.rows for records in found if len(records)] or [found[0].rows], HWTS)
    kind = rows["head"] & 7
    losses += unread_kinds(kind)
    stream, task = stream_and_task(rows)
    counter = np.ascontiguousarray(rows["counter"])
    starts, ends = np.flatnonzero(kind == TASK_START), np.flatnonzero(kind == TASK_END)
    key = stream << 16 | task
    first, last = pair(key[starts], counter[starts], key[ends], counter[ends])
    losses.append(lost(issues.START_WITHOUT_END, HWTS.file, len(starts) - len(first), "device tasks"))
    losses.append(lost(issues.END_WITHOUT_START, HWTS.file, len(ends) - len(last), "device tasks"))
    batch = np.zeros(len(rows), np.int64)
    batch[starts] = batch_ids(stream[starts], counter[starts], task[starts], track.flips)
    first, last = starts[first], ends[last]
    types = rows["type"][first] if chip.types else np.full(len(first), 255)
    tasks = task_frame(
        part, stream=stream[first], task=task[first], batch=batch[first], start=counter[first], end=counter[last],
        device_type=type_texts(types, chip.types, unknown="UNKNOWN" if chip.types else _UNSAID_TYPE),
    )  # fmt: skip
    others, state_lost = _from_states(part, chip, track.states, track.flips)
    if others.height and any(first_state == 0 for _, first_state, _ in chip.states.values()):
        # These times stand in for those of tasks that the host queued and the scheduler has no record of.
        others = others.join(tasks, on=_OF_TASK, how="anti", maintain_order="left")
        others = others if queued is None else others.join(queued, on=_OF_TASK, how="semi", maintain_order="left")
    if others.height:
        tasks = pl.concat([tasks, others]).sort("start_ticks", maintain_order=True)
    return tasks, [row for row in (*losses, *state_lost) if row.height]


def stream_and_task(rows: Column) -> tuple[Column, Column]:
    """Numbers of these chips are plain: neither swapped nor coded."""
    return rows["stream"].astype(np.int64) & STREAM_BITS, rows["task"].astype(np.int64)


def counter_gaps(head: Column, source: str) -> pl.DataFrame:
    """Quality row for jumps of the running 4-bit counter, each of which is lost data."""
    number = (head >> 4).astype(np.int8)
    return lost(issues.DROPPED_BY_DEVICE, source, int(np.count_nonzero((number[1:] - number[:-1]) & 15 != 1)))


def unread_kinds(kind: Column) -> list[pl.DataFrame]:
    """Quality rows for records that are about neither tasks nor blocks."""
    counts = np.bincount(kind, minlength=8)
    return [
        lost(
            issues.UNSUPPORTED_KIND if number in _UNREAD else issues.UNKNOWN_KIND,
            HWTS.file,
            int(count),
            f"kind {number}: {_UNREAD[number]}" if number in _UNREAD else f"kind {number}, {HWTS.size} B each",
        )
        for number, count in enumerate(counts)
        if count and number not in (TASK_START, TASK_END, *_OF_BLOCKS)
    ]


def _from_states(part: Part, chip: Chip, states: Column, flips: Flips) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
    """Tasks of the types whose times only the states tell; other types are known from elsewhere."""
    frames, losses = [pl.DataFrame(schema=TASKS)], []
    for number, (name, first_state, last_state) in chip.states.items():
        rows = states.view(f"V{states.dtype.itemsize}")[states["task_type"] == number].view(
            states.dtype
        )  # as bytes: fields overlap
        if not len(rows):
            continue
        stream, task = rows["stream"].astype(np.int64) & STREAM_BITS, rows["task"].astype(np.int64)
        counter, key = np.ascontiguousarray(rows["counter"]), stream << 16 | task
        starts, ends = (np.flatnonzero(rows["status"] == state) for state in (first_state, last_state))
        first, last = pair(key[starts], counter[starts], key[ends], counter[ends])
        losses.append(lost(issues.START_WITHOUT_END, "ts_track.data", len(starts) - len(first), f"tasks of type {name}"))
        losses.append(lost(issues.END_WITHOUT_START, "ts_track.data", len(ends) - len(last), f"tasks of type {name}"))
        first, last = starts[first], ends[last]
        frames.append(
            task_frame(
                part, stream=stream[first], task=task[first], start=counter[first], end=counter[last],
                batch=batch_ids(stream[first], counter[first], task[first], flips),
                device_type=type_texts(np.full(len(first), number), {number: name}),
            )
        )  # fmt: skip
    return pl.concat(frames), losses
