# SPDX-License-Identifier: Apache-2.0
"""Several ranks replayed together: a collective ends on all its ranks one transfer after the last of them reached it.

So what one rank is late by costs all of them, and what mends it is worth what all of them gain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.analysis.partition.model import COMMUNICATION, FROM
from stepscope.analysis.partition.spans import Ints
from stepscope.analysis.replay.schedule import Schedule
from stepscope.tables import Tables

ROUNDS = 200  # what one round moves, the next carries on to the collectives behind it
SETTLED = 1e-5  # of the whole time: less than this is no change
BETWEEN_TWO = "(?i)send|rec|p2p"  # these are no meetings of a group


@dataclass(frozen=True)
class Change:
    """Other weights of one rank's schedule, as in `Schedule.finish`."""

    host: Ints | None = None
    duration: Ints | None = None
    without_waits: npt.NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class Joined:
    """Schedules of the ranks of a run with the collectives in which they meet.

    Attributes:
        tasks: of each rank, its tasks (rows of its schedule) that are meetings; `calls` are the numbers of these.
        apart: by how much the clock of each rank is ahead of the first one's.
        transfer: of each call, what moving the data took: the length on the rank that came last.
    """

    schedules: Sequence[Schedule]
    tasks: Sequence[Ints]
    calls: Sequence[Ints]
    apart: Sequence[int]
    transfer: Ints
    _base: list[int] = field(default_factory=list, repr=False)

    def saved(self, changes: Sequence[Change]) -> list[int]:
        """How much earlier each rank ends with these changes."""
        if not self._base:
            self._base.extend(self.finish([Change()] * len(self.schedules)))
        return [before - after for before, after in zip(self._base, self.finish(changes), strict=True)]

    def finish(self, changes: Sequence[Change]) -> list[int]:
        """When each rank ends, ns after the start of its schedule."""
        durations, moved = [], self.transfer.astype(np.float64)
        for schedule, change, tasks, calls in zip(self.schedules, changes, self.tasks, self.calls, strict=True):
            duration = (schedule.duration if change.duration is None else change.duration).copy()
            scale = duration[tasks] / np.maximum(schedule.duration[tasks], 1)
            moved[calls] = np.minimum(moved[calls], self.transfer[calls] * scale)
            durations.append(duration)
        transfer = moved.astype(np.int64)
        for duration, tasks, calls in zip(durations, self.tasks, self.calls, strict=True):
            duration[tasks] = transfer[calls]
        ended: list[int] = []
        for _ in range(ROUNDS):
            runs = [
                schedule.run(host=change.host, duration=duration, without_waits=change.without_waits)
                for schedule, change, duration in zip(self.schedules, changes, durations, strict=True)
            ]
            before, ended = ended, [run.finish_ns for run in runs]
            if before and max(abs(a - b) for a, b in zip(before, ended, strict=True)) <= SETTLED * max(ended):
                break
            reached = [
                run.start[tasks] + schedule.base_ns - ahead
                for run, schedule, tasks, ahead in zip(runs, self.schedules, self.tasks, self.apart, strict=True)
            ]
            last = np.full(transfer.size, np.iinfo(np.int64).min)
            for times, calls in zip(reached, self.calls, strict=True):
                np.maximum.at(last, calls, times)
            for duration, tasks, calls, times in zip(durations, self.tasks, self.calls, reached, strict=True):
                duration[tasks] = last[calls] - times + transfer[calls]
        return ended


def join_ranks(tables: Sequence[Tables], schedules: Sequence[Schedule]) -> Joined | None:
    """The ranks joined at the collectives that at least two of them have; None when there are none."""
    key = ["op_type", "group", "turn"]
    every = pl.concat(
        [
            _meetings(one).join(_tasks_of(one, schedule), on="row", how="inner").with_columns(place=pl.lit(place))
            for place, (one, schedule) in enumerate(zip(tables, schedules, strict=True))
        ]
    )
    every = every.filter(pl.len().over(key) > 1)
    if not every.height:
        return None
    every = every.with_columns(call=pl.struct(key).rank("dense").cast(pl.Int64) - 1)
    ranks = [every.filter(pl.col("place") == place) for place in range(len(tables))]
    transfer = every.group_by("call").agg((pl.col("end_ns") - pl.col("start_ns")).min().alias("ns")).sort("call")["ns"]
    first = next(part for part in ranks if part.height)
    return Joined(
        schedules,
        [part["task"].to_numpy() for part in ranks],
        [part["call"].to_numpy() for part in ranks],
        [_ahead(part, first) for part in ranks],
        transfer.to_numpy(),
    )


def _meetings(tables: Tables) -> pl.DataFrame:
    """Collectives with their turn among those of their type and group, and the row under which tasks know them."""
    rows = tables.collectives.with_row_index("number")
    rows = rows.filter(~pl.col("op_type").cast(pl.String).str.contains(BETWEEN_TWO).fill_null(False))
    row = pl.coalesce("kernel", "number") if tables.collectives["kernel"].count() else pl.col("number")
    return rows.select(
        pl.col("op_type", "group").cast(pl.String),
        "start_ns",
        "end_ns",
        turn=pl.int_range(pl.len()).over("op_type", "group"),
        row=row.cast(pl.Int64),
    )


def _tasks_of(tables: Tables, schedule: Schedule) -> pl.DataFrame:
    table = FROM.index("kernels" if tables.collectives["kernel"].count() else "collectives")
    tasks = (
        schedule.tasks.drop("task").with_row_index("task").filter((pl.col("kind") == COMMUNICATION) & (pl.col("table") == table))
    )
    return tasks.select(pl.col("task").cast(pl.Int64), "row")


def _ahead(rows: pl.DataFrame, first: pl.DataFrame) -> int:
    """By how much a clock is ahead: a collective ends on all its ranks at once."""
    both = rows.select("call", "end_ns").join(first.select("call", other="end_ns"), on="call", how="inner")
    return int((both["end_ns"] - both["other"]).median() or 0) if both.height else 0
