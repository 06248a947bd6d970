# SPDX-License-Identifier: Apache-2.0
"""When each task ran, from the scheduler's start and end records (docs/formats/cann.md 4.1, 4.3, 4.4)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.formats.cann.device.flips import Flips, batch_ids
from stepscope.formats.cann.folder import Part
from stepscope.formats.cann.layouts import STARS
from stepscope.formats.cann.records import read_records
from stepscope.tables import TEXT, issues, lost

Column = npt.NDArray[Any]

TASK_START, TASK_END, SUB_START, SUB_END = 0, 1, 34, 35
# Functions that do not say when a task ran.
_UNREAD = {
    22: "start of a fusion task", 23: "end of a fusion task", 24: "QoS", 25: "SIO", 26: "accelerator PMU", 27: "chip transfer",
    28: "inter-SoC", 29: "low power", 36: "start of a block", 37: "end of a block",
}  # fmt: skip

# sqe types: what the scheduler was asked to run.
SQE_TYPES = {
    0: "AI_CORE", 1: "AI_CPU", 2: "AIV_SQE", 3: "PLACE_HOLDER_SQE", 4: "EVENT_RECORD_SQE", 5: "EVENT_WAIT_SQE",
    6: "NOTIFY_RECORD_SQE", 7: "NOTIFY_WAIT_SQE", 8: "WRITE_VALUE_SQE", 9: "VQ6_SQE", 10: "TOF_SQE", 11: "SDMA_SQE", 12: "VPC_SQE",
    13: "JPEGE_SQE", 14: "JPEGD_SQE", 15: "DSA_SQE", 16: "ROCCE_SQE", 17: "PCIE_DMA_SQE", 18: "HOST_CPU_SQE", 19: "CDQM_SQE",
    20: "C_CORE_SQE",
}  # fmt: skip
_PLAIN_IDS = (3, 4)  # place holders and event records never swap their numbers

# Kinds of sub tasks of an FFTS+ task.
SUB_TASK_TYPES = {
    0: "AIC", 1: "AIV", 3: "Notify Wait", 4: "Notify Record", 5: "Write Value", 6: "MIX_AIC", 7: "MIX_AIV", 8: "SDMA",
    9: "Data Context", 10: "Invalidate Data Context", 11: "Writeback Data Context", 12: "AI_CPU", 13: "Load Context", 15: "DSA",
}  # fmt: skip

TASKS = {
    "stream": pl.Int64(), "task_id": pl.Int64(), "batch_id": pl.Int64(), "context_id": pl.Int64(), "start_ns": pl.Int64(),
    "end_ns": pl.Int64(), "start_ticks": pl.UInt64(), "end_ticks": pl.UInt64(), "device_type": TEXT,
    "duration_ns": pl.Float64(),
}  # fmt: skip


def task_ids(stream: Column, task: Column, sqe: Column | int, wide: bool) -> tuple[Column, Column]:
    """Stream and task number from the two coded fields of a record; PMU records have sqe type 0."""
    s, t = stream.astype(np.int64), task.astype(np.int64)
    if wide:
        swapped = (s & 0x8000 != 0) & ~np.isin(sqe, _PLAIN_IDS)
        return np.where(swapped, t, s) & 0x7FFF, np.where(swapped, (t & 0x8000) | (s & 0x7FFF), t)
    long_task = s & 0x1000 != 0
    swapped = (s & 0x2000 != 0) & ~long_task
    number = np.where(long_task, (t & 0x1FFF) | (s & 0xE000), np.where(swapped, (s & 0x0FFF) | (t & 0xF000), t))
    return np.where(swapped, t & 0x0FFF, s) % 2048, number


def task_keys(stream: Column, task: Column, context: Column) -> npt.NDArray[np.uint64]:
    """One number per (stream, task, context); context -1 is the whole task. 15 + 16 + 17 bits."""
    key: npt.NDArray[np.uint64] = ((stream << 33) | (task << 17) | (context + 1)).astype(np.uint64)
    return key


def counter_gaps(head: Column, source: str) -> pl.DataFrame:
    """Quality row for jumps of the running 4-bit counter, each of which is lost data."""
    number = (head >> 6 & 15).astype(np.int8)
    gaps = int(np.count_nonzero((number[1:] - number[:-1]) & 15 != 1))
    return lost(issues.DROPPED_BY_DEVICE, source, gaps)


def unread_functions(function: Column, read: tuple[int, ...], source: str) -> list[pl.DataFrame]:
    """Quality rows for records of other functions than those read."""
    return [
        lost(issues.UNSUPPORTED_KIND if number in _UNREAD else issues.UNKNOWN_KIND, source, int(count), _function_text(number))
        for number, count in enumerate(np.bincount(function, minlength=64))
        if count and number not in read
    ]


def _function_text(function: int) -> str:
    return f"function {function}: {_UNREAD[function]}" if function in _UNREAD else f"function {function}"


def read_tasks(part: Part, wide: bool, flips: Flips) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
    """Frame TASKS in the order of start (whole tasks before their sub tasks), and what was lost."""
    records = read_records(part, STARS)
    rows = records.rows
    head = np.ascontiguousarray(rows["head"])
    function = head & 63
    losses = [*records.lost, counter_gaps(head, STARS.file)]
    losses += unread_functions(function, (TASK_START, TASK_END, SUB_START, SUB_END), STARS.file)

    sub = (function == SUB_START) | (function == SUB_END)
    stream, task = task_ids(rows["stream"], rows["task"], np.where(sub, 0, head >> 10), wide)
    context = np.where(sub, rows["sub_task"].astype(np.int64), -1)
    key = task_keys(stream, task, context)
    counter = np.ascontiguousarray(rows["counter"])
    starts = np.flatnonzero((function == TASK_START) | (function == SUB_START))
    ends = np.flatnonzero((function == TASK_END) | (function == SUB_END))
    batch = np.zeros(len(rows), np.int64)
    for of_kind in (starts[~sub[starts]], starts[sub[starts]]):
        batch[of_kind] = batch_ids(stream[of_kind], counter[of_kind], task[of_kind], flips)

    first, last = pair(key[starts], counter[starts], key[ends], counter[ends])
    losses.append(lost(issues.START_WITHOUT_END, STARS.file, len(starts) - len(first), "device tasks"))
    losses.append(lost(issues.END_WITHOUT_START, STARS.file, len(ends) - len(last), "device tasks"))
    first, last = starts[first], ends[last]
    order = np.lexsort((context[first], counter[first]))
    first, last = first[order], last[order]
    frame = pl.DataFrame(
        {
            "stream": stream[first],
            "task_id": task[first],
            "batch_id": batch[first],
            "context_id": context[first],
            "start_ns": part.clock.ns(counter[first]),
            "end_ns": part.clock.ns(counter[last]),
            "start_ticks": counter[first],
            "end_ticks": counter[last],
            "device_type": _type_texts(sub[first], head[first] >> 10, rows["sub_type"][first] & 0xFF),
            "duration_ns": part.clock.duration_between(counter[first], counter[last]),
        },
        schema=TASKS,
    )
    whole = pl.col("context_id") < 0
    frame = frame.with_columns(pl.when(~whole).then("context_id").alias("context_id"))
    return frame, [row for row in losses if row.height]


def pair(start_key: Column, start: Column, end_key: Column, end: Column) -> tuple[Column, Column]:
    """Places of starts and of the ends that belong to them.

    The n-th start of a key belongs to its n-th end. Where a key has more of one than of the other, or an end would
    lie before its start, a start belongs to the end that follows it before the next start; the rest is left out.
    """
    by_start, by_end = _order(start_key, start), _order(end_key, end)
    sorted_starts, sorted_ends = start_key[by_start], end_key[by_end]
    if np.array_equal(sorted_starts, sorted_ends) and not np.any(end[by_end] < start[by_start]):
        return by_start, by_end
    keys, place = np.unique(np.concatenate([sorted_starts, sorted_ends]), return_inverse=True)
    of_start, of_end = place[: len(by_start)], place[len(by_start) :]
    odd = np.bincount(of_start, minlength=len(keys)) != np.bincount(of_end, minlength=len(keys))
    even = ~odd[of_start]
    backwards = end[by_end[~odd[of_end]]] < start[by_start[even]]
    odd[of_start[even][backwards]] = True
    even_starts, even_ends = by_start[~odd[of_start]], by_end[~odd[of_end]]
    odd_starts, odd_ends = _pair_neighbours(start_key, start, by_start[odd[of_start]], end_key, end, by_end[odd[of_end]])
    return np.concatenate([even_starts, odd_starts]), np.concatenate([even_ends, odd_ends])


def _order(key: Column, time: Column) -> Column:
    """Places in the order of key, then time; records lie almost always in the order of time already."""
    if np.all(time[1:] >= time[:-1]):
        return np.argsort(key, kind="stable")
    return np.lexsort((time, key))


def _pair_neighbours(
    start_key: Column, start: Column, starts: Column, end_key: Column, end: Column, ends: Column
) -> tuple[Column, Column]:
    """Starts that are directly followed by an end of their key, a start coming first at equal times."""
    key = np.concatenate([start_key[starts], end_key[ends]])
    time = np.concatenate([start[starts], end[ends]])
    order = np.lexsort((time, key))  # stable: starts stay before ends
    is_start = order < len(starts)
    met = np.flatnonzero(is_start[:-1] & ~is_start[1:] & (key[order[:-1]] == key[order[1:]]))
    return starts[order[met]], ends[order[met + 1] - len(starts)]


def _type_texts(sub: Column, sqe: Column, sub_type: Column) -> pl.Series:
    words = [SQE_TYPES.get(number, "UNKNOWN") for number in range(64)]
    words += [SUB_TASK_TYPES.get(number, "UNKNOWN") for number in range(256)]
    place = np.where(sub, 64 + sub_type.astype(np.int64), sqe.astype(np.int64))
    texts: pl.Series = pl.Series(words, dtype=pl.String).cast(TEXT).gather(pl.Series(place))
    return texts
