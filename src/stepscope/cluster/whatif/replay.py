# SPDX-License-Identifier: Apache-2.0
"""The dependency graph of one step of all ranks, and its replay under other lengths of work: many scenarios at once.

A rank issues its calls in program order. Local work precedes each issue; some issues wait for the end of earlier calls. A call
starts on a rank when the rank has reached it and its lane is free, and ends a transfer after its last member started. The graph
is cut into levels; one level is one vector operation over all ranks and scenarios.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepscope.analysis.partition.spans import Ints

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class _Level:
    rows: Ints
    ranks: Ints
    stop: Ints  # places in `rows` whose row before stands still for its call
    stop_call: Ints
    after_stop: Floats
    late: Ints  # places in `rows`
    late_call: Ints
    after: Floats
    lane: Ints
    lane_call: Ints
    calls: Ints  # that end with this level
    members: Ints
    splits: Ints


class Program:
    """Structure of one step: rows of all ranks in rank-major order, a closing row (call -1) at the end of each rank.

    Args:
        rank: place of the rank of each row, rising.
        call: number of the call; -1 in closing rows and in calls that nobody else has.
        lane: number of the queue on which the call runs.
        stop: the rank stands still for this call at once.
        late: row of the same rank whose call must have ended before this issue; -1 for none.
        after: share of the work before this issue that comes after that wait.
        after_stop: share of the next row's work that comes after standing still for this row's call.
    """

    def __init__(self, rank: Ints, call: Ints, lane: Ints, stop: Flags, late: Ints, after: Floats, after_stop: Floats, ranks: int):
        self.rank, self.call, self.stop, self.late, self.ranks = rank, call, stop, late, ranks
        self.after, self.after_stop = after, after_stop
        self.rows = len(rank)
        self.calls = int(call.max(initial=-1)) + 1
        self.first = np.searchsorted(rank, np.arange(ranks + 1))
        self.lane_before = self._lane_before(lane)
        self._by_call = np.argsort(call, kind="stable")
        self._call_start = np.searchsorted(call[self._by_call], np.arange(self.calls + 1))
        self.stuck = 0
        self.levels = self._levels()

    def _lane_before(self, lane: Ints) -> Ints:
        """Row of the previous call on the same lane; -1 for the first."""
        before = np.full(self.rows, -1, dtype=np.int64)
        real = np.flatnonzero(self.call >= 0)
        order = real[np.lexsort((real, lane[real], self.rank[real]))]
        same = (self.rank[order][1:] == self.rank[order][:-1]) & (lane[order][1:] == lane[order][:-1])
        before[order[1:][same]] = order[:-1][same]
        return before

    def _issue_levels(self) -> tuple[list[int], list[int]]:
        """Level of each row and of each call's end; -1 where a cycle keeps it from happening."""
        need = np.diff(self._call_start).tolist()
        call, stop, late, lane = self.call.tolist(), self.stop.tolist(), self.late.tolist(), self.lane_before.tolist()
        first, beyond = self.first.tolist(), self.first[1:].tolist()
        level, end_level = [-1] * self.rows, [-1] * self.calls
        top, got = [0] * self.calls, [0] * self.calls
        place = list(first[:-1])
        waiting: dict[int, list[int]] = defaultdict(list)
        queue = list(range(self.ranks))
        while queue:
            rank = queue.pop()
            row = place[rank]
            while row < beyond[rank]:
                depends = []
                at = 0
                if row > first[rank]:
                    at = level[row - 1] + 1
                    if stop[row - 1] and call[row - 1] >= 0:
                        depends.append(call[row - 1])
                if late[row] >= 0 and call[late[row]] >= 0:
                    depends.append(call[late[row]])
                if lane[row] >= 0:
                    depends.append(call[lane[row]])
                blocked = -1
                for one in depends:
                    if end_level[one] < 0:
                        blocked = one
                        break
                    at = max(at, end_level[one] + 1)
                if blocked >= 0:
                    waiting[blocked].append(rank)
                    break
                level[row] = at
                own = call[row]
                row += 1
                if own >= 0:
                    got[own] += 1
                    top[own] = max(top[own], at)
                    if got[own] == need[own]:
                        end_level[own] = top[own]
                        queue.extend(waiting.pop(own, ()))
            place[rank] = row
        self.stuck = sum(at < end for at, end in zip(place, beyond, strict=True))
        return level, end_level

    def _levels(self) -> list[_Level]:
        level_list, end_list = self._issue_levels()
        level, end_level = np.array(level_list, dtype=np.int64), np.array(end_list, dtype=np.int64)
        rows = np.argsort(level, kind="stable")
        rows = rows[level[rows] >= 0]
        count = int(level.max(initial=-1)) + 1
        cuts = np.searchsorted(level[rows], np.arange(count + 1))
        calls = np.argsort(end_level, kind="stable")
        calls = calls[end_level[calls] >= 0]
        call_cuts = np.searchsorted(end_level[calls], np.arange(count + 1))
        levels = []
        for number in range(count):
            mine = np.sort(rows[cuts[number] : cuts[number + 1]])
            rank = self.rank[mine]
            before = mine - 1
            stop = np.flatnonzero((mine > self.first[rank]) & self.stop[before] & (self.call[before] >= 0))
            late = np.flatnonzero((self.late[mine] >= 0) & (self.call[self.late[mine]] >= 0))
            lane = np.flatnonzero(self.lane_before[mine] >= 0)
            ending = np.sort(calls[call_cuts[number] : call_cuts[number + 1]])
            sizes = self._call_start[ending + 1] - self._call_start[ending]
            members = (
                np.concatenate([self._by_call[self._call_start[one] : self._call_start[one + 1]] for one in ending])
                if len(ending)
                else np.empty(0, dtype=np.int64)
            )
            levels.append(
                _Level(
                    mine,
                    rank,
                    stop,
                    self.call[before[stop]],
                    self.after_stop[before[stop]],
                    late,
                    self.call[self.late[mine[late]]],
                    self.after[mine[late]],
                    lane,
                    self.call[self.lane_before[mine[lane]]],
                    ending,
                    members,
                    np.cumsum(sizes) - sizes,
                )
            )
        return levels

    def run(self, work: Floats, transfer: Floats, clock: Floats | None = None) -> tuple[Floats, Floats, Floats]:
        """Replay scenarios.

        Args:
            work: scenarios × rows, ns of local work before each issue.
            transfer: scenarios × calls, ns.
            clock: scenarios × ranks, when each rank begins; 0 when absent.

        Returns:
            When each rank ends (scenarios × ranks), start of each row's call, end of each call.
        """
        count = len(work)
        clock = np.zeros((count, self.ranks)) if clock is None else clock.copy()
        begin = np.zeros((count, self.rows))
        end = np.zeros((count, max(self.calls, 1)))
        for level in self.levels:
            own = work[:, level.rows]
            now = clock[:, level.ranks] + own
            # Waiting in the midst of the work: what comes after it starts at the end of the call at the earliest.
            if len(level.stop):
                held = end[:, level.stop_call] + own[:, level.stop] * level.after_stop
                now[:, level.stop] = np.maximum(now[:, level.stop], held)
            if len(level.late):
                held = end[:, level.late_call] + own[:, level.late] * level.after
                now[:, level.late] = np.maximum(now[:, level.late], held)
            clock[:, level.ranks] = now
            if len(level.lane):
                now = now.copy()
                now[:, level.lane] = np.maximum(now[:, level.lane], end[:, level.lane_call])
            begin[:, level.rows] = now
            if len(level.calls):
                end[:, level.calls] = np.maximum.reduceat(begin[:, level.members], level.splits, axis=1) + transfer[:, level.calls]
        return clock, begin, end
