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
WORSE = 2.0  # a step so many times as slow as the last that fired fires during the cooldown too
SAME_GAPS = 3
LEAST_GAP = 4  # slow steps closer together are one slow phase, not something periodic
LAPSE = 10  # periods without an outlier after which a period is forgotten
REMEMBERED = 64


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
    """Which outliers fire; told about all of them, so that those which come at regular intervals are known."""

    def __init__(self) -> None:
        self._steps: deque[int] = deque(maxlen=REMEMBERED)
        self._fired_step: int | None = None
        self._fired_ns = 0
        self._period = (0, 0)  # steps between periodic outliers, and the last of them

    def fires(self, step: int, ns: int) -> bool:
        """Whether the outlier `step` deserves a capture."""
        periodic = self._is_periodic(step)
        self._steps.append(step)
        cooling = self._fired_step is not None and step - self._fired_step < COOLDOWN_STEPS
        if periodic or (cooling and ns < WORSE * self._fired_ns):
            return False
        self._fired_step, self._fired_ns = step, ns
        return True

    def _is_periodic(self, step: int) -> bool:
        """Whether outliers come at regular intervals, and this is one of them: an evaluation, or another part of the loop.

        Some of them may have been fast enough to stay below the limit, so gaps may be missing in between.
        """
        gap, seen = self._period
        if gap and (step - seen) % gap == 0 and step - seen <= LAPSE * gap:
            self._period = gap, step
            return True
        earlier = set(self._steps)
        for other in sorted(earlier, reverse=True):
            gap = step - other
            if gap >= LEAST_GAP and sum(step - times * gap in earlier for times in range(1, 2 * SAME_GAPS + 1)) >= SAME_GAPS:
                self._period = gap, step
                return True
        return False
