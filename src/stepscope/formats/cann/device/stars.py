# SPDX-License-Identifier: Apache-2.0
"""When each task ran, from the scheduler's start and end records (docs/formats/cann.md 4.1, 4.3, 4.4)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.formats.cann.chips import STARS_TYPES
from stepscope.formats.cann.device.flips import Flips, batch_ids
from stepscope.formats.cann.device.task_frame import pair, task_frame, type_texts
from stepscope.formats.cann.folder import Part
from stepscope.formats.cann.layouts import STARS
from stepscope.formats.cann.records import read_records
from stepscope.tables import issues, lost

Column = npt.NDArray[Any]

TASK_START, TASK_END, SUB_START, SUB_END = 0, 1, 34, 35
# Functions that do not say when a task ran.
_UNREAD = {
    22: "start of a fusion task", 23: "end of a fusion task", 24: "QoS", 25: "SIO", 26: "accelerator PMU", 27: "chip transfer",
    28: "inter-SoC", 29: "low power", 36: "start of a block", 37: "end of a block", 41: "counters of a block",
}  # fmt: skip

_PLAIN_IDS = (3, 4)  # place holders and event records never swap their numbers

# Kinds of sub tasks of an FFTS+ task.
SUB_TASK_TYPES = {
    0: "AIC", 1: "AIV", 3: "Notify Wait", 4: "Notify Record", 5: "Write Value", 6: "MIX_AIC", 7: "MIX_AIV", 8: "SDMA",
    9: "Data Context", 10: "Invalidate Data Context", 11: "Writeback Data Context", 12: "AI_CPU", 13: "Load Context", 15: "DSA",
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


def unread_functions(function: Column, read: tuple[int, ...], source: str, size: int) -> list[pl.DataFrame]:
    """Quality rows for records of other functions than those read, each of `size` bytes."""
    return [
        lost(
            issues.UNSUPPORTED_KIND if number in _UNREAD else issues.UNKNOWN_KIND, source, int(count), _function_text(number, size)
        )
        for number, count in enumerate(np.bincount(function, minlength=64))
        if count and number not in read
    ]


def _function_text(function: int, size: int) -> str:
    return f"function {function}: {_UNREAD[function]}" if function in _UNREAD else f"function {function}, {size} B each"


def read_tasks(part: Part, wide: bool, flips: Flips) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
    """Frame TASKS in the order of start (whole tasks before their sub tasks), and what was lost."""
    records = read_records(part, STARS)
    rows = records.rows
    head = np.ascontiguousarray(rows["head"])
    function = head & 63
    losses = [*records.lost, counter_gaps(head, STARS.file)]
    losses += unread_functions(function, (TASK_START, TASK_END, SUB_START, SUB_END), STARS.file, STARS.size)

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
    frame = task_frame(
        part, stream=stream[first], task=task[first], batch=batch[first], context=context[first], start=counter[first],
        end=counter[last], device_type=_type_texts(sub[first], head[first] >> 10, rows["sub_type"][first] & 0xFF),
    )  # fmt: skip
    return frame, [row for row in losses if row.height]


def _type_texts(sub: Column, sqe: Column, sub_type: Column) -> pl.Series:
    words = {**STARS_TYPES, **{64 + number: word for number, word in SUB_TASK_TYPES.items()}}
    return type_texts(np.where(sub, 64 + sub_type.astype(np.int64), sqe.astype(np.int64)), words, 64 + 256)
