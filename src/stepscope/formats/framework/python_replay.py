# SPDX-License-Identifier: Apache-2.0
"""Which Python calls ran when, and who called whom: the tracer's stream of calls and returns, replayed.

Returns do not name their call, so the replay is that of a stack per thread (docs/formats/framework.md 6.5). It needs no
loop: the depth after each event is a running sum, and calls and returns of one depth alternate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope.formats.framework.clock import FrameworkClock
from stepscope.tables import ALL_TABLES, TEXT, issues, lost

MODULE_MARK = "######"
_C_CALL = 2
Ints = NDArray[Any]


def python_calls_table(events: pl.DataFrame, texts: pl.DataFrame, clock: FrameworkClock) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
    """The table `python_calls` from raw tracer events and the texts of their keys, and what did not fit."""
    source = "torch.python_tracer_func"
    valid = events["tag"] <= 3
    losses = [lost(issues.UNKNOWN_KIND, source, int((~valid).sum()), "tag of Python events")]
    if not valid.all():
        events = events.filter(valid)
    if not events.height:
        return ALL_TABLES["python_calls"].empty(), losses
    time, thread = clock.to_epoch_ns(events["time"]).to_numpy(), events["thread_id"].to_numpy()
    order = _by_thread(thread, time)
    events, time = events[order], time[order]
    calls = events["tag"].to_numpy() % 2 == 0
    first = _first_of_thread(events["thread_id"].to_numpy())
    stack = _replay(calls, first)
    rows = np.flatnonzero(calls)
    end = np.where(stack.close >= 0, time[stack.close], time[_last_of_thread(first)])[rows]
    parent = stack.parent[rows]
    call_rows = events[rows].select(
        pl.col("process_id").alias("pid"), pl.col("thread_id").alias("tid"), "key", (pl.col("tag") == _C_CALL).alias("is_c")
    )
    frame = call_rows.with_columns(
        pl.Series("start_ns", time[rows]),
        pl.Series("end_ns", end),
        pl.Series("call_id", rows - first[rows]),
        pl.Series("parent_id", np.where(parent >= 0, parent - first[rows], 0)),
    )
    losses += [
        lost(issues.END_WITHOUT_START, source, stack.ignored, "Python calls"),
        lost(
            issues.START_WITHOUT_END,
            source,
            int((stack.close[rows] < 0).sum()),
            "Python calls: they end at the last time of their thread",
        ),
    ]
    return ALL_TABLES["python_calls"].conform(_with_names(frame, texts)), losses


def _by_thread(thread: Ints, time: Ints) -> Ints:
    """Order by thread, then by time; events come almost in the order of time, which a stable sort makes use of."""
    threads, by_time = pl.Series(thread).unique().sort().to_numpy(), np.argsort(time, kind="stable")
    if threads.size < 2:
        return by_time
    number = np.searchsorted(threads, thread)
    small = number.astype(np.uint16) if threads.size <= np.iinfo(np.uint16).max else number  # sorting 16 bits is linear
    return by_time[np.argsort(small[by_time], kind="stable")]


@dataclass(frozen=True)
class _Stack:
    close: Ints  # event that returns from the call; -1 for calls left open (and for returns)
    parent: Ints  # event of the caller; -1 at the root (and for returns)
    ignored: int


def _replay(calls: NDArray[np.bool_], first: Ints) -> _Stack:
    """Match calls with returns; `first` is the event with which the thread of each event begins."""
    count = calls.size
    height = np.cumsum(np.where(calls, 1, -1))
    height -= (height - np.where(calls, 1, -1))[first]
    # A stack cannot be emptier than empty: what sank below is added back. Each thread is moved far below
    # the one before it, so that one running minimum serves all of them.
    below = first * 2
    floor = np.minimum(np.minimum.accumulate(height - below) + below, 0)
    before = np.append(0, floor[:-1])
    before[first] = 0
    ignored = floor < before
    depth = height - floor
    level = np.where(calls, depth, depth + 1)
    # Levels of one thread lie side by side, those of different threads apart: `first` grows by at least
    # the number of levels a thread can have.
    slot = first + level
    kept = np.flatnonzero(~ignored)
    order = kept[np.argsort(slot[kept], kind="stable")]
    close = np.full(count, -1, np.int64)
    follows = calls[order[:-1]] & ~calls[order[1:]] & (slot[order[:-1]] == slot[order[1:]])
    close[order[:-1][follows]] = order[1:][follows]
    return _Stack(close, _parents(calls, slot, level), int(ignored.sum()))


def _parents(calls: NDArray[np.bool_], slot: Ints, level: Ints) -> Ints:
    """The nearest call before each call that is one level up; -1 at the root."""
    parent = np.full(calls.size, -1, np.int64)
    rows = np.flatnonzero(calls)
    if rows.size:
        order = np.argsort(slot[rows], kind="stable")
        place = (slot[rows] * calls.size + rows)[order]
        inner = rows[level[rows] > 1]
        parent[inner] = rows[order][np.searchsorted(place, (slot[inner] - 1) * calls.size + inner) - 1]
    return parent


def _first_of_thread(threads: Ints) -> Ints:
    starts = np.append(True, threads[1:] != threads[:-1])
    return np.maximum.accumulate(np.where(starts, np.arange(threads.size), 0))


def _last_of_thread(first: Ints) -> Ints:
    begins = np.flatnonzero(first == np.arange(first.size))
    ends = np.append(begins[1:], first.size) - 1
    return np.repeat(ends, np.diff(np.append(begins, first.size)))


def _with_names(calls: pl.DataFrame, texts: pl.DataFrame) -> pl.DataFrame:
    """Add name, kind and module number; they depend on thread and key only, so they are computed once per pair."""
    latest = texts.filter(pl.col("value").is_not_null()).unique("key", keep="last", maintain_order=True).select("key", "value")
    pairs = (
        calls.select("tid", "key")
        .unique(maintain_order=True)
        .join(latest, on="key", how="left", maintain_order="left")
        .with_columns(pl.col("value").fill_null(pl.col("key").cast(pl.String)))
    )
    modules = _modules(pairs.filter(pl.col("value").str.contains(MODULE_MARK, literal=True)))
    named = pairs.join(modules, on=["tid", "key"], how="left").select(
        "tid", "key", "module_id", name=pl.coalesce("module_name", "value").cast(TEXT)
    )
    kind = (
        pl.when(pl.col("module_id").is_not_null()).then(pl.lit("module")).when("is_c").then(pl.lit("c")).otherwise(pl.lit("python"))
    )
    return calls.join(named, on=["tid", "key"], how="left", maintain_order="left").with_columns(kind.cast(TEXT).alias("kind"))


def _modules(pairs: pl.DataFrame) -> pl.DataFrame:
    """Number the objects of each class in each thread in the order in which they were first called."""
    split = pl.col("value").str.splitn(MODULE_MARK, 2).struct
    parts = pairs.select("tid", "key", split.field("field_0").alias("class"), split.field("field_1").alias("object"))
    objects = parts.unique(["tid", "class", "object"], keep="first", maintain_order=True).with_columns(
        (pl.int_range(pl.len()).over("tid", "class")).cast(pl.Int64).alias("module_id")
    )
    return parts.join(objects.drop("key"), on=["tid", "class", "object"], how="left").select(
        "tid", "key", "module_id", pl.format("nn.Module: {}_{}", "class", "module_id").alias("module_name")
    )
