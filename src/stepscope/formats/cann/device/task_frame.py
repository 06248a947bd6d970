# SPDX-License-Identifier: Apache-2.0
"""Runs of device tasks as a frame, from starts and ends whatever chip recorded them (docs/formats/cann.md 4.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.formats.cann.folder import Part
from stepscope.tables import TEXT

Column = npt.NDArray[Any]

TASKS = {
    "stream": pl.Int64(), "task_id": pl.Int64(), "batch_id": pl.Int64(), "context_id": pl.Int64(), "start_ns": pl.Int64(),
    "end_ns": pl.Int64(), "start_ticks": pl.UInt64(), "end_ticks": pl.UInt64(), "device_type": TEXT,
    "duration_ns": pl.Float64(),
}  # fmt: skip


def task_frame(
    part: Part,
    *,
    stream: Column,
    task: Column,
    start: Column,
    end: Column,
    device_type: pl.Series,
    batch: Column | int = 0,
    context: Column | int = -1,
) -> pl.DataFrame:
    """Frame TASKS in the order of start, whole tasks (context -1) before their parts; times are counter values."""
    number = len(stream)
    parts = np.broadcast_to(np.asarray(context, np.int64), number)
    frame = pl.DataFrame(
        {
            "stream": stream.astype(np.int64),
            "task_id": task.astype(np.int64),
            "batch_id": np.broadcast_to(np.asarray(batch, np.int64), number),
            "context_id": parts,
            "start_ns": part.clock.ns(start),
            "end_ns": part.clock.ns(end),
            "start_ticks": start.astype(np.uint64),
            "end_ticks": end.astype(np.uint64),
            "device_type": device_type,
            "duration_ns": part.clock.duration_between(start, end),
        },
        schema=TASKS,
    )[np.lexsort((parts, start))]
    return frame.with_columns(pl.when(pl.col("context_id") >= 0).then("context_id").alias("context_id"))


def turns(key: Column) -> Column:
    """How many rows of the same key come before each row."""
    order = np.argsort(key, kind="stable")
    first = np.ones(len(key), bool)
    first[1:] = key[order[1:]] != key[order[:-1]]
    place = np.arange(len(key))
    before = np.empty(len(key), np.int64)
    before[order] = place - np.maximum.accumulate(np.where(first, place, 0)) if len(key) else place
    return before


def type_texts(numbers: Column, words: Mapping[int, str], count: int = 256, unknown: str = "UNKNOWN") -> pl.Series:
    """Names of types below `count`; words are looked up once each."""
    names = pl.Series([words.get(number, unknown) for number in range(count)], dtype=pl.String).cast(TEXT)
    texts: pl.Series = names.gather(pl.Series(numbers.astype(np.int64)))
    return texts


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
