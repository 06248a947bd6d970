# SPDX-License-Identifier: Apache-2.0
"""When a step is much slower than those before it, and when that deserves a capture. Pure: no clock, no files."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque

WINDOW, LEAST = 128, 32  # steps that make the limit, and how many it takes
LEAST_EXCESS_NS = 5_000_000
SIGMAS = 8.0
NORMAL_IQR = 1.35  # quartiles of a normal distribution are this many standard deviations apart

COOLDOWN_STEPS = 500
WORSE = 2.0  # a step so many times as slow as those that are known fires in any case
KNOWN_STEPS = 100_000  # so long a slow step tells of others like it
LASTING = 12  # so many slow steps in a row are a slowdown, whatever single ones came before


class Limit:
    """The duration above which a step is an outlier: max(k * median, median + 8 * IQR / 1.35, median + 5 ms).

    The median alone gives alarms in noisy jobs, the spread alone in very steady ones, and a step of 1 ms may double without
    anybody caring.
    """

    __slots__ = ("_in_order", "_k", "_recent", "median_ns", "ns")

    def __init__(self, k: float):
        self._k = k
        self._recent: deque[int] = deque()
        self._in_order: list[int] = []
        self.ns = 0  # 0: not known yet
        self.median_ns = 0

    def add(self, ns: int) -> None:
        """A step that nothing unusual is known about."""
        in_order, recent = self._in_order, self._recent
        recent.append(ns)
        insort(in_order, ns)
        count = len(in_order)
        if count > WINDOW:
            del in_order[bisect_left(in_order, recent.popleft())]
            count = WINDOW
        if count >= LEAST:
            median = in_order[count >> 1]
            spread = in_order[(3 * count) >> 2] - in_order[count >> 2]
            self.median_ns = median
            self.ns = max(int(self._k * median), median + int(SIGMAS / NORMAL_IQR * spread), median + LEAST_EXCESS_NS)


class Alarms:
    """Which outliers fire; told about all of them.

    A slow step like one before it fires no more: evaluations, longer batches and the tail of noise come again and again, at
    regular intervals or not, and another capture of the steps that follow would show nothing new. One that is twice as slow, and
    a row of slow steps, are news.
    """

    __slots__ = ("_fired_step", "_known", "_last", "_row", "lasting")

    def __init__(self) -> None:
        self._known: list[tuple[int, int]] = []  # outliers and their times; each is slower than all that came after it
        self._last = self._fired_step = -COOLDOWN_STEPS
        self._row = 0  # outliers that followed each other without a normal step in between
        self.lasting = False  # whether the last one ended a long row

    def fires(self, step: int, ns: int) -> bool:
        """Whether the outlier `step` deserves a capture."""
        known = self._known
        self._row = self._row + 1 if step == self._last + 1 else 1
        self._last, self.lasting = step, self._row >= LASTING
        while known and step - known[0][0] >= KNOWN_STEPS:
            del known[0]
        is_known = bool(known) and is_like(ns, known[0][1])
        while known and known[-1][1] <= ns:
            known.pop()
        known.append((step, ns))
        if is_known and (not self.lasting or step - self._fired_step < COOLDOWN_STEPS):
            return False
        self._fired_step = step
        return True


def is_like(ns: int, known_ns: float) -> bool:
    """Whether a slow step is nothing new after one that took `known_ns`."""
    return ns < WORSE * known_ns
