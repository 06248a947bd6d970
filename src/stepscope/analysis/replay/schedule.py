# SPDX-License-Identifier: Apache-2.0
"""A schedule that can be run again with other weights.

The host is one lane: it works, issues tasks and waits. A task starts when it is issued and its stream is free, plus a residual
that was measured; some tasks also depend on a task of another stream. A wait returns when its task has ended, plus a tail.

Times only jump where the host waits or a task depends on another stream. Everything between is a *block*: tasks of one stream
whose end is the largest of three sums, which are computed for all blocks at once; only blocks are walked one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.analysis.partition.spans import Ints

NEVER = np.iinfo(np.int64).min // 4


@dataclass(frozen=True)
class Run:
    """One run of a schedule: when each task started and ended, ns after the start of the schedule."""

    finish_ns: int
    start: Ints
    end: Ints
    issue: Ints
    host_at: Ints  # when the host reached each event
    released: Ints  # of each segment: when its wait returned


@dataclass(frozen=True)
class Schedule:
    """Events of the host lane and tasks in order of issue; times are ns after `base_ns`.

    Attributes:
        base_ns: time zero on the host's epoch clock.
        finish_ns: when everything had ended in reality.
        tasks: the model's tasks in order of issue, with `task`, their row in the model.
        is_wait: of each event, whether it is a wait; else it issues the next task.
        host_ns: work of the host before each event.
        layers: the same by layer of the host; they sum to `host_ns` where no wait without effect is part of it.
        duration, residual: of each task.
        depends_on, dependency_ns: task of another stream (-1 for none), and how long after its end the task started.
        waits: the waits (see `waits.WAITS`), with `target` and `tail`; only those with a target hold the host up.
    """

    base_ns: int
    finish_ns: int
    tasks: pl.DataFrame
    stream: Ints
    is_wait: npt.NDArray[np.bool_]
    host_ns: Ints
    layers: dict[str, Ints]
    duration: Ints
    residual: Ints
    depends_on: Ints
    dependency_ns: Ints
    waits: pl.DataFrame
    target: Ints
    tail: Ints

    @cached_property
    def error(self) -> float:
        """How far an unchanged run ends from reality, as a share of it."""
        return abs(self.base_finish_ns - self.finish_ns) / max(self.finish_ns, 1)

    @cached_property
    def base_finish_ns(self) -> int:
        return self.finish()

    @cached_property
    def _blocks(self) -> _Blocks:
        return _Blocks.of(self)

    def saved(
        self, *, host: Ints | None = None, duration: Ints | None = None, without_waits: npt.NDArray[np.bool_] | None = None
    ) -> int:
        """How much earlier everything ends with these changes."""
        return max(self.base_finish_ns - self.finish(host=host, duration=duration, without_waits=without_waits), 0)

    def without_layers(self, *names: str) -> Ints:
        """The host's work with some layers gone."""
        cut = sum((self.layers[name] for name in names if name in self.layers), np.zeros(self.host_ns.size, dtype=np.int64))
        return np.asarray(np.maximum(self.host_ns - cut, 0), dtype=np.int64)

    def finish(
        self, *, host: Ints | None = None, duration: Ints | None = None, without_waits: npt.NDArray[np.bool_] | None = None
    ) -> int:
        """When everything ends.

        Args:
            host: work of the host before each event instead of `host_ns`.
            duration: of each task instead of `duration`.
            without_waits: waits that do not hold the host up.
        """
        host = self.host_ns if host is None else host
        duration = self.duration if duration is None else duration
        finish, _, _ = self._blocks.walk(host, duration, without_waits)
        return finish

    def run(
        self, *, host: Ints | None = None, duration: Ints | None = None, without_waits: npt.NDArray[np.bool_] | None = None
    ) -> Run:
        """Like `finish`, with the times of every task."""
        host = self.host_ns if host is None else host
        duration = self.duration if duration is None else duration
        finish, ends, released = self._blocks.walk(host, duration, without_waits)
        return self._blocks.times(host, duration, finish, ends, released)


@dataclass(frozen=True)
class _Blocks:
    """How the tasks of a schedule fall into blocks; independent of weights."""

    schedule: Schedule
    issue_event: Ints  # event that issues each task
    segment: Ints  # of each event
    segment_start: Ints  # first event of each segment
    wait_event: Ints  # event at which each segment but the last ends
    wait_row: Ints  # the wait of that event
    by_stream: Ints  # tasks by stream, then by issue
    first: Ints  # place in `by_stream` of the first task of each block
    block_of: Ints  # of each task
    walk_order: list[list[int]]  # blocks of each segment in order of issue
    streams: Ints  # of each block, small numbers
    dependency: Ints  # block whose end the first task depends on, or -1

    @classmethod
    def of(cls, schedule: Schedule) -> _Blocks:
        events = schedule.is_wait.size
        issue_event = np.flatnonzero(~schedule.is_wait)
        wait_event = np.flatnonzero(schedule.is_wait)
        effective = schedule.target >= 0
        wait_row, wait_event = np.flatnonzero(effective), wait_event[effective]
        ends_segment = np.zeros(events, dtype=np.int64)
        ends_segment[wait_event] = 1
        segment = np.cumsum(ends_segment) - ends_segment
        segment_start = np.concatenate(([0], wait_event + 1))
        by_stream = np.argsort(schedule.stream, kind="stable")
        stream, of_task = schedule.stream[by_stream], segment[issue_event][by_stream]
        observed = np.zeros(by_stream.size, dtype=np.bool_)
        observed[schedule.depends_on[schedule.depends_on >= 0]] = True
        observed[schedule.target[wait_row]] = True
        depends = schedule.depends_on[by_stream] >= 0
        opens = np.ones(by_stream.size, dtype=np.bool_)
        opens[1:] = (stream[1:] != stream[:-1]) | (of_task[1:] != of_task[:-1]) | depends[1:] | observed[by_stream[:-1]]
        first = np.flatnonzero(opens)
        block_of = np.empty(by_stream.size, dtype=np.int64)
        block_of[by_stream] = np.cumsum(opens) - 1
        head = by_stream[first]
        dependency = np.where(schedule.depends_on[head] >= 0, block_of[schedule.depends_on[head]], -1)
        order = np.argsort(head, kind="stable")
        borders = np.searchsorted(of_task[first][order], np.arange(segment_start.size + 1))
        # Blocks are walked in order of issue; the segments of these are sorted too.
        walk = order.tolist()
        walk_order = [walk[borders[n] : borders[n + 1]] for n in range(segment_start.size)]
        streams = np.unique(stream[first], return_inverse=True)[1] if first.size else first
        return cls(
            schedule, issue_event, segment, segment_start, wait_event, wait_row, by_stream, first, block_of, walk_order,
            streams.astype(np.int64), dependency,
        )  # fmt: skip

    def _offsets(self, host: Ints) -> Ints:
        """Work of the host from the start of its segment up to and including each event."""
        done = np.cumsum(host)
        before = np.concatenate(([0], done))[self.segment_start]
        return done - before[self.segment]

    def walk(self, host: Ints, duration: Ints, without_waits: npt.NDArray[np.bool_] | None) -> tuple[int, list[int], list[int]]:
        """When everything ends, the end of each block, and when each segment of the host begins."""
        offset = self._offsets(host)
        # Nothing follows a last wait: its segment is empty.
        last_offset = int(offset[-1]) if offset.size and self.segment[-1] == self.segment_start.size - 1 else 0
        alone, from_host, from_dependency = self._sums(offset, duration)
        ends = [0] * self.first.size
        free = [NEVER] * (int(self.streams.max()) + 1 if self.streams.size else 0)
        streams, dependency = self.streams.tolist(), self.dependency.tolist()
        reach = offset[self.wait_event].tolist()
        tails = self.schedule.tail[self.wait_row].tolist()
        skipped = without_waits[self.wait_row].tolist() if without_waits is not None else None
        target = self.block_of[self.schedule.target[self.wait_row]].tolist()
        now, released = 0, [0]
        for number, blocks in enumerate(self.walk_order):
            for block in blocks:
                stream = streams[block]
                end, other = free[stream] + alone[block], now + from_host[block]
                if other > end:
                    end = other
                before = dependency[block]
                if before >= 0:
                    other = ends[before] + from_dependency[block]
                    if other > end:
                        end = other
                ends[block] = free[stream] = end
            if number < len(reach):
                now += reach[number]
                if skipped is None or not skipped[number]:
                    back = ends[target[number]] + tails[number]
                    if back > now:
                        now = back
                released.append(now)
        return max(max(ends, default=0), released[-1] + last_offset), ends, released

    def _sums(self, offset: Ints, duration: Ints) -> tuple[list[int], list[int], list[int]]:
        """Of each block: its length alone, its end after the host's segment began, its end after its dependency ended."""
        if not self.first.size:
            return [], [], []
        schedule, order = self.schedule, self.by_stream
        weight = (schedule.residual + duration)[order]
        done = np.cumsum(weight)
        before = done - weight
        last = np.append(self.first[1:], order.size) - 1
        alone = done[last] - before[self.first]
        ready = np.maximum.reduceat(offset[self.issue_event[order]] - before, self.first)
        head = order[self.first]
        from_dependency = alone - schedule.residual[head] + schedule.dependency_ns[head]
        return alone.tolist(), (ready + done[last]).tolist(), from_dependency.tolist()

    def times(self, host: Ints, duration: Ints, finish: int, ends: list[int], released: list[int]) -> Run:
        schedule, order = self.schedule, self.by_stream
        start_of = np.array(released, dtype=np.int64)
        at = self._offsets(host) + start_of[self.segment]
        issue = at[self.issue_event]
        block_end = np.array(ends, dtype=np.int64)
        released_by = np.full(issue.size, NEVER, dtype=np.int64)
        rows = np.flatnonzero(schedule.depends_on >= 0)
        released_by[rows] = block_end[self.block_of[schedule.depends_on[rows]]] + schedule.dependency_ns[rows]
        earliest = np.maximum(issue + schedule.residual, released_by)
        end = np.empty(issue.size, dtype=np.int64)
        weight = schedule.residual + duration
        for tasks in np.split(order, np.flatnonzero(np.diff(schedule.stream[order])) + 1):
            done = np.cumsum(weight[tasks])
            ready = earliest[tasks] - schedule.residual[tasks] - (done - weight[tasks])
            end[tasks] = done + np.maximum.accumulate(ready)
        return Run(finish, end - duration, end, issue, at, start_of)
