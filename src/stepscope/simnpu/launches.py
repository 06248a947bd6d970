# SPDX-License-Identifier: Apache-2.0
"""When the host launched what: the spans and stamps of calls, so that every parser joins them (cann-raw.md 8).

    acl call   [begin ........................ end]
    node call    [begin + 1 ............ end - 1]        kernels and collectives only
    description      begin + 2
    task                                end - 1

All times are nanoseconds since 1970. The end of a launch is taken under the lock of the stream's queue, so tasks of a stream
are stamped in the order in which they run, whatever threads launch them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stepscope.simnpu.records import COLLECTIVE, EVENT_RECORD, EVENT_WAIT, KERNEL, MARK

SHORTEST_NS = 4  # room for the stamps above
_MEMORY_CALLS = (4, 5, 6, 7)
_KEPT_CALLS = 4096


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
    """Gives launches their spans; remembers where memory was taken, since that lies inside a launch without a task queue."""

    def __init__(self, offset_ns: int) -> None:
        self._offset = offset_ns  # from the clock of the records to 1970
        self._taken: dict[int, npt.NDArray[np.int64]] = {}  # ends of memory calls by thread

    def see(self, calls: npt.NDArray[Any]) -> None:
        """Calls that were recorded up to now."""
        memory = calls[np.isin(calls["call"], _MEMORY_CALLS)]
        for thread in np.unique(memory["thread"]).tolist():
            ends = np.sort(memory["end"][memory["thread"] == thread])
            self._taken[thread] = np.concatenate([self._taken.get(thread, ends[:0]), ends])[-_KEPT_CALLS:]

    def of(self, tasks: npt.NDArray[Any]) -> Launches:
        """Launches of tasks by time."""
        tasks = tasks[np.argsort(tasks["launch_end"], kind="stable")]
        begin = tasks["launch_start"].copy()
        # Calls of one level must not overlap in a thread: a launch begins when its outputs have their memory.
        for thread, ends in self._taken.items():
            mine = np.flatnonzero((tasks["launch_thread"] == thread) & (tasks["enqueue_start"] == 0))
            if len(mine):
                last = np.searchsorted(ends, tasks["launch_end"][mine], "right") - 1
                begin[mine] = np.maximum(begin[mine], np.where(last >= 0, ends[np.maximum(last, 0)], 0))
        begin = np.minimum(begin, tasks["launch_end"] - SHORTEST_NS)
        return Launches(tasks, begin + self._offset, tasks["launch_end"] + self._offset)


def apart(calls: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Calls by thread and time, without those inside another call of their thread."""
    calls = calls[np.lexsort((-calls["end"], calls["start"], calls["thread"]))]
    reach = np.zeros(len(calls), np.int64)
    for thread in np.unique(calls["thread"]).tolist():
        mine = np.flatnonzero(calls["thread"] == thread)
        reach[mine[1:]] = np.maximum.accumulate(calls["end"][mine])[:-1]
    return np.asarray(calls[(calls["start"] >= reach) & (calls["end"] > calls["start"])])
