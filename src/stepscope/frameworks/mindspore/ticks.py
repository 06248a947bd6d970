# SPDX-License-Identifier: Apache-2.0
"""The counter on which MindSpore's records are timed, and how it relates to Unix time (docs/formats/mindspore.md 8)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

_TRIES = 50


class Anchor(NamedTuple):
    """The same instant on both clocks, and how far apart the two readings may be."""

    ticks: int
    unix_ns: int
    uncertainty_ns: int


def counter() -> Callable[[], int]:
    """MindSpore's counter; Unix nanoseconds where it has none."""
    from mindspore import _c_expression

    return getattr(_c_expression, "get_clock_syscnt", time.time_ns)


def of_marks() -> int:
    """The clock of marks: nanoseconds that are never adjusted."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)


def anchor(ticks: Callable[[], int]) -> Anchor:
    """Both clocks read back to back; of many tries the one that was least interrupted."""
    best = Anchor(0, 0, -1)
    for _ in range(_TRIES):
        before = time.time_ns()
        now = ticks()
        after = time.time_ns()
        if best.uncertainty_ns < 0 or after - before < best.uncertainty_ns:
            best = Anchor(now, (before + after) // 2, after - before)
    return best


def clock(begin: Anchor, end: Anchor) -> dict[str, Any]:
    """What profiler_info says about the counter; its frequency is what passed between the two."""
    passed_ns = end.unix_ns - begin.unix_ns
    mhz = (end.ticks - begin.ticks) * 1000 / passed_ns if passed_ns > 0 else 0.0
    return {
        "freq_mhz": mhz,
        "begin": {"syscnt": begin.ticks, "unix_ns": begin.unix_ns, "uncertainty_ns": begin.uncertainty_ns},
        "end": {"syscnt": end.ticks, "unix_ns": end.unix_ns, "uncertainty_ns": end.uncertainty_ns},
    }
