# SPDX-License-Identifier: Apache-2.0
"""On which queue of the device each communication call ran. Calls of one queue run one after the other."""

from __future__ import annotations

from collections import Counter

import numpy as np
import polars as pl

from stepscope.analysis.partition.spans import Ints
from stepscope.cluster.digest import SAME_NS
from stepscope.cluster.match import P2P

QUEUE_NS = 20_000  # between two calls of one queue
AT_ONCE_NS = 1_000  # clocks of the device may show the begin this much before the end that it waited for
LEAST_WAITS = 3  # so often calls of one group wait for those of another, when both are on one queue


def group_or_stream() -> pl.Expr:
    """The queue as the capture names it: the stream, else the group, whose calls are mostly on one."""
    return pl.coalesce(pl.col("stream").cast(pl.String), pl.col("group").cast(pl.String)).fill_null("?")


def common_queues(calls: pl.DataFrame, launch: Ints) -> pl.Series:
    """Queue of each call: groups without streams whose calls wait for the end of another group's are on one queue with it.

    Args:
        calls: stream, group, op, start_ns, end_ns.
        launch: when the host launched each.
    """
    lane = calls.select(lane=group_or_stream())["lane"]
    start, end = calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy()
    free = (calls["stream"].is_null() & ~calls["op"].is_in(P2P)).to_numpy()
    if np.count_nonzero(free) < 2 * LEAST_WAITS or lane.filter(pl.Series(free)).n_unique() < 2:
        return lane
    by_operator = (lane + "/" + calls["op"]).to_list()
    names = lane.to_list()
    for name in set(lane.filter(pl.Series(free))):
        rows = np.flatnonzero((lane == name).to_numpy())
        if _overlap(start[rows], end[rows]):
            for row in rows.tolist():
                names[row] = by_operator[row]
    number = pl.Series(names).rank("dense").to_numpy().astype(np.int64) - 1
    order = np.argsort(end, kind="stable")
    last = order[np.maximum(np.searchsorted(end[order], start + AT_ONCE_NS, side="right") - 1, 0)]
    waited = (start - end[last] < QUEUE_NS) & (start - end[last] >= -AT_ONCE_NS) & (launch < end[last] - QUEUE_NS)
    waited &= free & free[last] & (number != number[last])
    pairs = Counter(tuple(sorted(pair)) for pair in zip(number[waited].tolist(), number[last[waited]].tolist(), strict=True))
    queue = np.arange(int(number.max()) + 1)
    for (one, other), count in pairs.most_common():
        together = np.isin(queue[number], (queue[one], queue[other]))
        if count >= LEAST_WAITS and not _overlap(start[together], end[together]):
            queue[queue == queue[other]] = queue[one]
    first = np.full(queue.size, -1)
    first[queue[number[::-1]]] = np.arange(number.size)[::-1]
    return pl.Series("lane", [names[first[queue[one]]] for one in number.tolist()], dtype=pl.String)


def _overlap(start: Ints, end: Ints) -> bool:
    """Whether any two of these run at the same time."""
    order = np.argsort(start, kind="stable")
    return bool((start[order][1:] < np.maximum.accumulate(end[order])[:-1] - SAME_NS).any())
