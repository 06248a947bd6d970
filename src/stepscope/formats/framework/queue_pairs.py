# SPDX-License-Identifier: Apache-2.0
"""When each task was put into and taken from the host task queue: start and end marks, paired."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope.arrays import unique_inverse
from stepscope.formats.framework.clock import FrameworkClock
from stepscope.tables import ALL_TABLES, TEXT, issues, lost

_SOURCE = "torch.op_mark"


def queue_table(marks: pl.DataFrame, clock: FrameworkClock) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
    """The table `queue` from raw marks, and the marks that found no partner (docs/formats/framework.md 6.1)."""
    valid = marks["category"].is_between(0, 3)
    losses = [lost(issues.UNKNOWN_KIND, _SOURCE, int((~valid).sum()), "category of marks")]
    if not valid.all():
        marks = marks.filter(valid)
    if not marks.height:
        return ALL_TABLES["queue"].empty(), losses
    names = marks["name"].cast(TEXT).fill_null("N/A")
    time, category = clock.to_epoch_ns(marks["time"]).to_numpy(), marks["category"].to_numpy()
    group = _groups(marks["thread_id"], names, category >= 2)
    by_time = np.argsort(time, kind="stable")
    order = by_time[np.argsort(group[by_time], kind="stable")]
    ends = category[order] % 2 == 1
    # A reader with one stack per group pops the newest start and then forgets the others, so an end mark
    # pairs with the mark right before it in its group, or with none when that is an end mark too.
    paired = ends[1:] & ~ends[:-1] & (group[order[1:]] == group[order[:-1]])
    start, end = order[:-1][paired], order[1:][paired]
    losses += [
        lost(issues.END_WITHOUT_START, _SOURCE, int(ends.sum()) - end.size, "queue marks"),
        lost(issues.START_WITHOUT_END, _SOURCE, int((~ends).sum()) - start.size, "queue marks"),
    ]
    by_start = np.argsort(time[start], kind="stable")
    start, end = start[by_start], end[by_start]
    last = marks.select("process_id", "thread_id", "correlation_id")[end]
    frame = pl.DataFrame(
        {
            "pid": last["process_id"],
            "tid": last["thread_id"],
            "start_ns": pl.Series(time[start]).set_sorted(),
            "end_ns": time[end],
            "kind": pl.Series(["enqueue", "dequeue"], dtype=TEXT)[(category[end] >= 2).astype(np.uint32)],
            "name": names[end],
            "correlation_id": last["correlation_id"],
        }
    )
    return ALL_TABLES["queue"].conform(frame), losses


def _groups(threads: pl.Series, names: pl.Series, dequeue: NDArray[np.bool_]) -> NDArray[np.integer]:
    """A number per (thread, name, side), as small as it can be: sorting 16-bit numbers is far cheaper."""
    thread = np.searchsorted(threads.unique().sort().to_numpy(), threads.to_numpy())
    name = names.to_physical().to_numpy().astype(np.int64)
    group = (thread * (int(name.max()) + 1) + name) * 2 + dequeue
    if group.max() > np.iinfo(np.uint16).max:
        group = unique_inverse(group)[1]
    return group.astype(np.uint16) if group.max() <= np.iinfo(np.uint16).max else group
