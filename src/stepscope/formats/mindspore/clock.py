# SPDX-License-Identifier: Apache-2.0
"""How ticks of the processor's counter become nanoseconds since 1970 (docs/formats/mindspore.md 8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import polars as pl

from stepscope.formats.framework.clock import FrameworkClock, read_clock
from stepscope.tables import ALL_TABLES, issues, lost

CLOCK_FILE = "clock.json"
_LIMIT = float(1 << 62)


@dataclass(frozen=True)
class TickClock:
    """`unix_ns = (ticks - zero) * 1000 / mhz + epoch_ns`, to the nearest nanosecond."""

    mhz: float = 1000.0
    zero: int = 0
    epoch_ns: int = 0
    quality: pl.DataFrame = field(default_factory=ALL_TABLES["quality"].empty, compare=False, repr=False)

    def to_epoch_ns(self, ticks: pl.Series) -> pl.Series:
        passed = (ticks.to_numpy() - np.uint64(self.zero % (1 << 64))).view(np.int64)
        # Product before quotient, as the reference counts: a factor 1000 / mhz would be off by a nanosecond here and there.
        passed_ns = np.rint(passed * np.float64(1000) / self.mhz).clip(-_LIMIT, _LIMIT).astype(np.int64)
        return pl.Series(ticks.name, passed_ns + np.int64(self.epoch_ns))


def read_tick_clock(capture: Path, prof: Path | None, info: Mapping[str, Any]) -> TickClock:
    """From our own collector's anchors, else from the device's session; without either, ticks stay as they are.

    Anchors are `{"freq_mhz": …, "begin": {"syscnt": …, "unix_ns": …}}`: in profiler_info as `clock`, or in clock.json.
    """
    for anchors in (info.get("clock"), _json(capture / CLOCK_FILE)):
        clock = _from_anchors(anchors)
        if clock is not None:
            return clock
    if prof is not None:
        found = read_clock(capture, prof, {"start_info": {"syscnt_enable": True}})
        return TickClock(found.mhz, found.tick_zero, found.monotonic_zero_ns + found.epoch_offset_ns, found.quality)
    note = "neither anchors of a collector nor a PROF folder: 100 MHz since 1970 assumed, only differences mean something"
    return TickClock(100.0, quality=lost(issues.INCOMPLETE_CLOCK, capture.name, 1, note))


def read_mark_clock(info: Mapping[str, Any]) -> FrameworkClock:
    """The clock of marks, which our collector takes on monotonic nanoseconds."""
    clock = _from_anchors(info.get("mark_clock")) or TickClock()
    return FrameworkClock(counts_ticks=True, mhz=clock.mhz, tick_zero=clock.zero, monotonic_zero_ns=clock.epoch_ns)


def _from_anchors(anchors: object) -> TickClock | None:
    if not isinstance(anchors, Mapping):
        return None
    mhz, begin = anchors.get("freq_mhz"), anchors.get("begin")
    moment = (begin.get("syscnt"), begin.get("unix_ns")) if isinstance(begin, Mapping) else ()
    ticks, unix = (value if isinstance(value, int) and 0 <= value < 1 << 62 else None for value in moment or (None, None))
    if isinstance(mhz, (int, float)) and 1e-3 < mhz < 1e9 and ticks is not None and unix is not None:
        return TickClock(float(mhz), ticks, unix)
    return None


def _json(path: Path) -> object:
    try:
        return orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return None
