# SPDX-License-Identifier: Apache-2.0
"""A schedule from a capture, calibrated so that an unchanged run reproduces it."""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.analysis.partition.layers import LAYERS
from stepscope.analysis.partition.model import DeviceModel
from stepscope.analysis.partition.spans import Ints
from stepscope.analysis.replay.schedule import Schedule
from stepscope.analysis.replay.waits import wait_targets, waits

DEPENDENCY_NS = 20_000  # a task that starts later than this after it could ...
RELEASE_NS = 50_000  # ... and this soon after a task of another stream ended depends on that task


def build_schedule(model: DeviceModel) -> Schedule | None:
    """The schedule of the windows of a model; None when no launches are known."""
    tasks = model.tasks.with_row_index("task").filter(
        pl.col("issue_ns").is_not_null() & (pl.col("start_ns") >= model.start_ns) & (pl.col("start_ns") < model.end_ns)
    )
    if not tasks.height:
        return None
    tasks = tasks.sort("issue_ns", "start_ns", maintain_order=True)
    issue, start, end = (tasks[name].to_numpy() for name in ("issue_ns", "start_ns", "end_ns"))
    found = waits(model, tasks["issue_tid"].drop_nulls().unique().to_list())
    target, tail = wait_targets(found, issue, end)

    moments = np.concatenate((issue, found["start_ns"].to_numpy()))
    order = np.argsort(moments, kind="stable")
    # Behind the last event that matters there are only waits for nothing, such as those of the profiler's own stop.
    matters = np.concatenate((np.ones(issue.size, dtype=np.bool_), target >= 0))[order]
    order = order[: int(np.flatnonzero(matters)[-1]) + 1]
    at, is_wait = moments[order], order >= issue.size
    kept = int(is_wait.sum())
    found, target, tail = found.head(kept), target[:kept], tail[:kept]
    left_at = np.concatenate((issue, found["end_ns"].to_numpy()))[order]
    base = min(int(at[0]), model.start_ns)
    previous = np.maximum.accumulate(np.concatenate(([base], left_at[:-1])))
    host = np.maximum(at - previous, 0)
    tid = np.concatenate((tasks["issue_tid"].fill_null(-1).to_numpy(), found["tid"].fill_null(-1).to_numpy()))[order]
    layers = _layers(model, tid, previous, np.maximum(at, previous), host)
    # A wait that waited for nothing is work of the host before the next event.
    idle = target < 0
    own = (found["end_ns"] - found["start_ns"]).to_numpy()
    np.add.at(host, np.flatnonzero(is_wait)[idle] + 1, own[idle])

    stream = tasks["stream"].fill_null(0).to_numpy()
    residual, depends_on, dependency = _releases(stream, issue, start, end)
    finish = int(max(end.max(), left_at.max())) - base
    return Schedule(
        base, finish, tasks, stream, is_wait, host, layers, end - start, residual, depends_on, dependency, found, target, tail
    )  # fmt: skip


def _layers(model: DeviceModel, tid: Ints, start: Ints, end: Ints, host: Ints) -> dict[str, Ints]:
    """The host's work before each event by layer of the thread of that event."""
    rest = host.copy()
    found = {layer: np.zeros(host.size, dtype=np.int64) for layer in LAYERS[:-1]}
    for one in pl.Series(tid[(host > 0) & (tid >= 0)]).unique().sort().to_list():
        rows = np.flatnonzero((tid == one) & (host > 0))
        for layer, spans in model.layers(one).items():
            spent = spans.within(start[rows], end[rows])
            found[layer][rows] = spent
            rest[rows] -= spent
    return found | {LAYERS[-1]: rest}


def _releases(stream: Ints, issue: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """Of each task: the residual, the task of another stream that released it (-1 for none), and how long after that it started."""
    by_stream = pl.DataFrame({"stream": stream, "end": end}).select(pl.col("end").cum_max().shift(1).over("stream").fill_null(0))
    could = np.maximum(issue, by_stream.to_series().to_numpy())
    residual = np.maximum(start - could, 0)
    by_end = np.argsort(end, kind="stable")
    ends = end[by_end]
    place = np.searchsorted(ends, start, side="right") - 1
    other = by_end[np.maximum(place, 0)]
    depends = (
        (place >= 0)
        & (residual > DEPENDENCY_NS)
        & (start - ends[np.maximum(place, 0)] < RELEASE_NS)
        & (stream[other] != stream)
        & (end[other] > could)
        & (other < np.arange(start.size))
    )
    return np.where(depends, 0, residual), np.where(depends, other, -1), np.where(depends, start - end[other], 0)
