# SPDX-License-Identifier: Apache-2.0
"""When the host launched which task: spans and stamps of calls such that every parser joins them (docs/formats/cann.md 8).

    acl call   [begin ........................ end]
    node call    [begin + 1 ............ end - 1]        kernels and collectives only
    description      begin + 2
    task                                end - 1

All times are nanoseconds since 1970. The end of a launch is read under the lock of the stream's queue, so tasks of a stream
are stamped in the order in which they run, whichever threads launch them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stepscope.simnpu.records import COLLECTIVE, EVENT_RECORD, EVENT_WAIT, KERNEL, MARK

SHORTEST_NS = 4  # room for the stamps above
_MEMORY_CALLS = (4, 5, 6, 7)
_MAX_KEPT_CALLS = 4096


@dataclass(frozen=True)
class Launches:
    """Launches of tasks, in order of their stamps; `tasks` are the device's own records of them."""

    tasks: npt.NDArray[Any]
    begin: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.tasks)

    def where(self, mask: npt.NDArray[Any]) -> Launches:
        return Launches(self.tasks[mask], self.begin[mask], self.end[mask])

    @property
    def tid(self) -> npt.NDArray[Any]:
        return np.asarray(self.tasks["launch_thread"])

    @property
    def described(self) -> npt.NDArray[np.int64]:
        return self.begin + 2

    @property
    def stamp(self) -> npt.NDArray[np.int64]:
        return self.end - 1

    @property
    def kernels(self) -> npt.NDArray[np.bool_]:
        return np.asarray(self.tasks["kind"] == KERNEL)

    @property
    def copies(self) -> npt.NDArray[np.bool_]:
        return np.asarray((self.tasks["kind"] > KERNEL) & (self.tasks["kind"] < EVENT_RECORD))

    @property
    def events(self) -> npt.NDArray[np.bool_]:
        return np.isin(self.tasks["kind"], (EVENT_RECORD, EVENT_WAIT))

    @property
    def collectives(self) -> npt.NDArray[np.bool_]:
        return np.asarray(self.tasks["kind"] == COLLECTIVE)

    @property
    def marks(self) -> npt.NDArray[np.bool_]:
        return np.asarray(self.tasks["kind"] == MARK)


class LaunchTimes:
    """Computes the spans of launches; remembers the calls inside a launch without a task queue: memory allocations and a
    collective's own events."""

    def __init__(self, offset_ns: int) -> None:
        self._offset = offset_ns  # from the clock of the records to 1970
        self._memory_calls: dict[int, npt.NDArray[np.int64]] = {}  # ends of memory calls by thread
        self._events: dict[int, npt.NDArray[np.int64]] = {}  # ends of launches of events by thread

    def add_calls(self, calls: npt.NDArray[Any]) -> None:
        """Add the calls recorded since the last time."""
        memory = calls[np.isin(calls["call"], _MEMORY_CALLS)]
        _remember(self._memory_calls, memory["thread"], memory["end"])

    def of(self, tasks: npt.NDArray[Any]) -> Launches:
        """Launches of tasks by time."""
        tasks = tasks[np.argsort(tasks["launch_end"], kind="stable")]
        begin = tasks["launch_start"].copy()
        # Calls of one level must not touch in a thread: a launch begins when its outputs have their memory, and a collective
        # after its events, which would otherwise count as its own tasks.
        events = tasks[np.isin(tasks["kind"], (EVENT_RECORD, EVENT_WAIT)) & (tasks["enqueue_start"] == 0)]
        _remember(self._events, events["launch_thread"], events["launch_end"])
        direct = tasks["enqueue_start"] == 0
        _begin_behind(begin, tasks, direct, self._memory_calls)
        _begin_behind(begin, tasks, direct & (tasks["kind"] == COLLECTIVE), self._events)
        begin = np.minimum(begin, tasks["launch_end"] - SHORTEST_NS)
        return Launches(tasks, begin + self._offset, tasks["launch_end"] + self._offset)


def _remember(ends: dict[int, npt.NDArray[np.int64]], threads: npt.NDArray[Any], new: npt.NDArray[np.int64]) -> None:
    for thread in np.unique(threads).tolist():
        known = np.concatenate([ends.get(thread, new[:0]), new[threads == thread]])
        ends[thread] = np.sort(known)[-_MAX_KEPT_CALLS:]


def _begin_behind(
    begin: npt.NDArray[np.int64], tasks: npt.NDArray[Any], chosen: npt.NDArray[np.bool_], ends: dict[int, npt.NDArray[np.int64]]
) -> None:
    """Let the chosen launches begin after the last of these calls that ended before them."""
    for thread, known in ends.items():
        mine = np.flatnonzero(chosen & (tasks["launch_thread"] == thread))
        last = np.searchsorted(known, tasks["launch_end"][mine], "left") - 1
        begin[mine] = np.maximum(begin[mine], np.where(last >= 0, known[np.maximum(last, 0)] + 1, 0))


def disjoint(calls: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Calls by thread and time, without those that another call of their thread contains or touches."""
    calls = calls[np.lexsort((-calls["end"], calls["start"], calls["thread"]))]
    reach = np.zeros(len(calls), np.int64)
    for thread in np.unique(calls["thread"]).tolist():
        mine = np.flatnonzero(calls["thread"] == thread)
        reach[mine[1:]] = np.maximum.accumulate(calls["end"][mine])[:-1]
    return np.asarray(calls[(calls["start"] > reach) & (calls["end"] > calls["start"])])
