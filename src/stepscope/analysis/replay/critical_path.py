# SPDX-License-Identifier: Apache-2.0
"""What the end of a run depended on, piece by piece: shorten anything else and nothing ends earlier."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.analysis.partition.spans import Ints
from stepscope.analysis.replay.schedule import Run, Schedule

PIECES = {"where": pl.String, "task": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64}


def critical_path(
    schedule: Schedule,
    *,
    host: Ints | None = None,
    duration: Ints | None = None,
    without_waits: npt.NDArray[np.bool_] | None = None,
) -> pl.DataFrame:
    """The pieces of the path in order of time; they tile the time from the start of the schedule to the last end of a task.

    The changes are those of `Schedule.finish`.

    Returns:
        where (`device`: the task ran; `wait`: it was released but had not started; `host`: the host worked towards issuing it),
        task (row of the model's tasks), start_ns and end_ns on the host's epoch clock.
    """
    run = schedule.run(host=host, duration=duration, without_waits=without_waits)
    if not run.end.size:
        return pl.DataFrame(schema=PIECES)
    earlier = earlier_on_stream(schedule)
    free = np.where(earlier >= 0, run.end[np.maximum(earlier, 0)], np.iinfo(np.int64).min)
    by_dependency = np.zeros(run.end.size, dtype=np.bool_)
    rows = np.flatnonzero(schedule.depends_on >= 0)
    released = run.end[schedule.depends_on[rows]] + schedule.dependency_ns[rows]
    by_dependency[rows] = released >= np.maximum(run.issue[rows], free[rows]) + schedule.residual[rows]
    by_stream = ~by_dependency & (free > run.issue)
    waited_for = _waited_for(schedule, run, without_waits)

    path, upto = [], int(run.end.max())
    task = int(np.argmax(run.end))
    start, end, issue = run.start.tolist(), run.end.tolist(), run.issue.tolist()
    depends_on, before = schedule.depends_on.tolist(), earlier.tolist()
    dependent, streamed, host_from = by_dependency.tolist(), by_stream.tolist(), waited_for.tolist()
    while True:
        path.append(("device", task, start[task], upto))
        if dependent[task] or streamed[task]:
            source = depends_on[task] if dependent[task] else before[task]
            if start[task] > end[source]:
                path.append(("wait", task, end[source], start[task]))
            task, upto = source, end[source]
            continue
        if start[task] > issue[task]:
            path.append(("wait", task, issue[task], start[task]))
        source = host_from[task]
        path.append(("host", task, end[source] if source >= 0 else 0, issue[task]))
        if source < 0:
            break
        task, upto = source, end[source]
    numbers = schedule.tasks["task"].to_numpy()
    frame = pl.DataFrame(path[::-1], schema=PIECES, orient="row")
    return frame.with_columns(
        task=pl.Series(numbers[frame["task"].to_numpy()].astype(np.int64)),
        start_ns=pl.col("start_ns") + schedule.base_ns,
        end_ns=pl.col("end_ns") + schedule.base_ns,
    ).filter(pl.col("end_ns") > pl.col("start_ns"))


def earlier_on_stream(schedule: Schedule) -> Ints:
    """The task before each one on its stream, in order of issue; -1 for the first."""
    order = np.argsort(schedule.stream, kind="stable")
    before = np.full(order.size, -1, dtype=np.int64)
    same = schedule.stream[order][1:] == schedule.stream[order][:-1]
    before[order[1:][same]] = order[:-1][same]
    return before


def _waited_for(schedule: Schedule, run: Run, without_waits: npt.NDArray[np.bool_] | None) -> Ints:
    """The task whose end last released the host before it issued each task; -1 when nothing did."""
    events = np.flatnonzero(schedule.is_wait)
    holds = schedule.target >= 0
    if without_waits is not None:
        holds &= ~without_waits
    effective = np.flatnonzero(holds)
    held = run.end[schedule.target[effective]] + schedule.tail[effective] > run.host_at[events[effective]]
    rows = effective[held]
    place = np.searchsorted(events[rows], np.flatnonzero(~schedule.is_wait)) - 1
    return np.where(place >= 0, schedule.target[rows][np.maximum(place, 0)], -1) if rows.size else np.full(place.size, -1)
