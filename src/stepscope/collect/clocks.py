# SPDX-License-Identifier: Apache-2.0
"""The clock of raw records, and how it relates to Unix time (docs/formats/framework.md 2.3)."""

from __future__ import annotations

import time
from typing import NamedTuple


class Moment(NamedTuple):
    """The same instant on both clocks."""

    raw_ns: int
    unix_ns: int


def raw_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)


def now() -> Moment:
    """Both clocks read back to back; of three tries the one that was least interrupted."""
    best, narrowest = Moment(0, 0), -1
    for _ in range(3):
        before = raw_ns()
        unix = time.time_ns()
        width = raw_ns() - before
        if narrowest < 0 or width < narrowest:
            best, narrowest = Moment(before + width // 2, unix), width
    return best
