# SPDX-License-Identifier: Apache-2.0
"""Task numbers of a stream as the runtime assigns them: 16 bits that restart with a flip record (docs/formats/cann.md 4.5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

PERIOD = 65_535  # numbers 0 to 65 534; 0xFFFF marks the end of a stream


@dataclass(frozen=True)
class StreamFlips:
    """Where streams restarted their numbers: between two tasks, which belong to different batches."""

    stream: npt.NDArray[np.int64]
    number: npt.NDArray[np.int64]  # 1 for the first flip of a stream
    after: npt.NDArray[np.uint64]  # stamp of the stream's last task before; 0 when none was seen
    before: npt.NDArray[np.uint64]  # stamp of its first task after

    def __len__(self) -> int:
        return len(self.stream)

    @property
    def stamp(self) -> npt.NDArray[np.uint64]:
        """As late as a flip can be: one tick before the task that follows it."""
        return np.asarray(np.maximum(self.after, self.before - np.uint64(1)), np.uint64)


@dataclass(frozen=True)
class TaskNumbers:
    task: npt.NDArray[np.int64]
    batch: npt.NDArray[np.int64]
    flips: StreamFlips


class TaskIds:
    """Assigns numbers to the tasks of one device, in calls that follow each other in time."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._last: dict[int, int] = {}

    def assign(self, stream: npt.NDArray[Any], stamp: npt.NDArray[np.uint64]) -> TaskNumbers:
        """Numbers for tasks in the order in which they were queued."""
        sequence = np.empty(len(stream), np.int64)
        after = np.zeros(len(stream), np.uint64)
        for one in np.unique(stream).tolist():
            rows = np.flatnonzero(stream == one)
            count = self._counts.get(one, 0)
            sequence[rows] = count + np.arange(len(rows))
            after[rows[1:]] = stamp[rows[:-1]]
            after[rows[0]] = self._last.get(one, 0)
            self._counts[one], self._last[one] = count + len(rows), int(stamp[rows[-1]])
        task, batch = sequence % PERIOD, sequence // PERIOD
        first = np.flatnonzero((task == 0) & (batch > 0))
        flips = StreamFlips(stream[first].astype(np.int64), batch[first], after[first], stamp[first])
        return TaskNumbers(task, batch, flips)


class UniqueIds:
    """Assigns numbers that are unique on the device, as the 950's runtime does: no rounds, no flips."""

    def __init__(self) -> None:
        self._count = 0

    def assign(self, stream: npt.NDArray[Any], stamp: npt.NDArray[np.uint64]) -> TaskNumbers:
        del stamp
        none = np.empty(0, np.int64)
        numbers = self._count + np.arange(len(stream), dtype=np.int64)
        self._count += len(stream)
        ticks = np.empty(0, np.uint64)
        return TaskNumbers(numbers, np.zeros(len(stream), np.int64), StreamFlips(none, none, ticks, ticks))


class FlipFinder:
    """Finds the flips of a device's tasks from the batches that their numbers belong to."""

    def __init__(self) -> None:
        self._batch: dict[int, int] = {}
        self._last: dict[int, int] = {}

    def flips(self, stream: npt.NDArray[Any], batch: npt.NDArray[Any], start: npt.NDArray[np.uint64]) -> StreamFlips:
        found: list[tuple[int, int, int, int]] = []
        for one in np.unique(stream).tolist():
            rows = np.flatnonzero(stream == one)
            rows = rows[np.argsort(start[rows], kind="stable")]
            numbers = np.concatenate([[self._batch.get(one, 0)], batch[rows]])
            for at in np.flatnonzero(np.diff(numbers) > 0).tolist():
                last = int(start[rows[at - 1]]) if at else self._last.get(one, 0)
                found += ((one, number, last, int(start[rows[at]])) for number in range(numbers[at] + 1, numbers[at + 1] + 1))
            self._batch[one], self._last[one] = int(numbers.max()), int(start[rows[-1]])
        columns = list(zip(*found, strict=True)) or [(), (), (), ()]
        stream_, number_ = (np.array(column, np.int64) for column in columns[:2])
        after, before = (np.array(column, np.uint64) for column in columns[2:])
        return StreamFlips(stream_, number_, after, before)
