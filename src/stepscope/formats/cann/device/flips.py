# SPDX-License-Identifier: Apache-2.0
"""Which round of its stream's 16-bit task numbers a task belongs to (docs/formats/cann.md 4.5)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

STREAM_END = 0xFFFF  # task number of the flip that a stream leaves when it is destroyed


class Flips(NamedTuple):
    """Flip records: when a stream restarted its task numbers. Times are counter values."""

    stream: npt.NDArray[Any]
    time: npt.NDArray[Any]
    task: npt.NDArray[Any]


def batch_ids(stream: npt.NDArray[Any], time: npt.NDArray[Any], task: npt.NDArray[Any], flips: Flips) -> npt.NDArray[np.int64]:
    """The batch of each task: how many flips of its stream came before it.

    Several threads may take numbers at once, so tasks just before a flip already belong to the next batch when
    their number is not above the flip's.
    """
    batch = np.zeros(len(stream), np.int64)
    for number in np.unique(flips.stream):
        rows = np.flatnonzero(stream == number)
        if not len(rows):
            continue
        rows = rows[np.argsort(time[rows], kind="stable")]
        of_stream = np.flatnonzero(flips.stream == number)
        of_stream = of_stream[np.argsort(flips.time[of_stream], kind="stable")]
        cuts = _cuts(time[rows], task[rows], flips.time[of_stream], flips.task[of_stream])
        batch[rows] = np.searchsorted(cuts, np.arange(len(rows)), "right")
    return batch


def _cuts(
    time: npt.NDArray[Any], task: npt.NDArray[Any], flip_time: npt.NDArray[Any], flip_task: npt.NDArray[Any]
) -> npt.NDArray[np.int64]:
    """For each flip of one stream, the place of the first task after it; never decreasing."""
    cuts = np.searchsorted(time, flip_time, "right").astype(np.int64)
    before = 0
    for place, number in enumerate(flip_task.tolist()):
        cut = int(cuts[place])
        if number not in (0, STREAM_END):
            cut = _look_back(task, cut, max(before, 1), number)
        before = cuts[place] = max(cut, before)
    return cuts


def _look_back(task: npt.NDArray[Any], cut: int, least: int, number: int) -> int:
    """The place after the last task above `number`, looking back from `cut`; the stream's first task stays where it is."""
    step = 64
    while cut > least:
        low = max(cut - step, least)
        above = np.flatnonzero(task[low:cut] > number)
        if len(above):
            return low + int(above[-1]) + 1
        cut, step = low, step * 4
    return cut
