# SPDX-License-Identifier: Apache-2.0
"""How raw host times become nanoseconds since 1970.

A raw time is a tick of the CPU's counter or a monotonic nanosecond; which of them is a property of the capture
(docs/formats/framework.md 2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import polars as pl

from stepscope.tables import ALL_TABLES, issues, lost

_LIMIT = 1 << 62  # larger numbers are not times, and sums of smaller ones fit 64 bits
_SLOWEST_MHZ = 1e-15
_FLOAT_LIMIT = float(1 << 62)


@dataclass(frozen=True)
class FrameworkClock:
    """The conversion of one capture; the default one takes raw times as they are."""

    counts_ticks: bool = False
    mhz: float = 100.0
    tick_zero: int = 0
    monotonic_zero_ns: int = 0
    epoch_offset_ns: int = 0
    quality: pl.DataFrame = field(default_factory=ALL_TABLES["quality"].empty, compare=False, repr=False)

    def to_epoch_ns(self, raw: pl.Series) -> pl.Series:
        """Raw times as epoch nanoseconds; exact, except where a tick is not a whole number of nanoseconds."""
        if not self.counts_ticks:
            return raw + self.epoch_offset_ns if self.epoch_offset_ns else raw
        passed = raw.to_numpy() - np.int64(self.tick_zero)
        tick_ns = 1000 / self.mhz
        if tick_ns.is_integer() and tick_ns < _LIMIT:
            passed_ns = passed * np.int64(tick_ns)
        else:
            passed_ns = np.trunc(passed * tick_ns).clip(-_FLOAT_LIMIT, _FLOAT_LIMIT).astype(np.int64)
        return pl.Series(raw.name, passed_ns + np.int64(self.monotonic_zero_ns + self.epoch_offset_ns))


def read_clock(capture: Path, prof: Path | None, info: Mapping[str, Any]) -> FrameworkClock:
    """The clock of a capture from its profiler_info (`info`, {} when there is none) and its PROF folder, if it has one.

    What is missing takes the default of docs/formats/framework.md 2.2 and a row in `FrameworkClock.quality`.
    """
    start, notes = _section(info, "start_info"), []
    if not info:
        notes.append("no profiler_info: raw times are taken as nanoseconds")
    counts_ticks = bool(start.get("syscnt_enable"))
    mhz, tick_zero, monotonic_zero = 100.0, 0, 0
    if counts_ticks:
        found_mhz = _frequency(prof, start)
        zero = _zero(prof, start)
        if found_mhz is None:
            notes.append("frequency of the counter unknown: 100 MHz assumed")
        if zero is None:
            notes.append("start of the counter unknown: 0 assumed")
        mhz, (tick_zero, monotonic_zero) = found_mhz or mhz, zero or (0, 0)
    offset = _epoch_offset(prof, info)
    if offset is None:
        notes.append("no pair of monotonic and Unix time: times stay monotonic")
    rows = [lost(issues.INCOMPLETE_CLOCK, capture.name, 1, note) for note in notes]
    quality = pl.concat([ALL_TABLES["quality"].empty(), *rows])
    return FrameworkClock(counts_ticks, mhz, tick_zero, monotonic_zero, offset or 0, quality)


def _frequency(prof: Path | None, start: Mapping[str, Any]) -> float | None:
    """In MHz. A counter that stands still, or runs backwards, has none."""
    cpus = _json(prof / "host" / "info.json").get("CPU") if prof else None
    cpu = cpus[0] if isinstance(cpus, list) and cpus else None
    for candidate in (_section({"cpu": cpu}, "cpu").get("Frequency"), start.get("freq")):
        mhz = _decimal(candidate)
        if mhz is not None and mhz > _SLOWEST_MHZ:
            return float(mhz)
    return None


def _zero(prof: Path | None, start: Mapping[str, Any]) -> tuple[int, int] | None:
    """Counter and monotonic ns of one moment, both from one source."""
    log = _host_start(prof / "host" / "host_start.log") if prof else {}
    pairs = (
        (log.get("cntvct"), log.get("clock_monotonic_raw")),
        (start.get("start_cnt"), start.get("start_monotonic")),
    )
    for ticks, monotonic in pairs:
        moment = _integer(ticks), _integer(monotonic)
        if moment[0] is not None and moment[1] is not None:
            return moment[0], moment[1]
    return None


def _epoch_offset(prof: Path | None, info: Mapping[str, Any]) -> int | None:
    """Unix minus monotonic time in ns: from the device side when it was on, else from the end of the capture."""
    activities = _section(_section(info, "config"), "common_config").get("activities")
    # A killed process leaves no profiler_info, but its PROF folder still knows the clocks.
    device_on = "ProfilerActivity.NPU" in activities if isinstance(activities, list) else True
    if prof and device_on:
        for path in (prof / "host" / "start_info", *sorted(prof.glob("device_*/start_info.*[0-9]"))):
            begin = _json(path)
            microseconds, monotonic = _decimal(begin.get("collectionTimeBegin")), _integer(begin.get("clockMonotonicRaw"))
            if microseconds is not None and monotonic is not None and int(microseconds * 1000) != monotonic:
                return int(microseconds * 1000) - monotonic
    end = _section(info, "end_info")
    unix, monotonic = _integer(end.get("collectionTimeEnd")), _integer(end.get("MonotonicTimeEnd"))
    return None if unix is None or monotonic is None else unix - monotonic


def _host_start(path: Path) -> dict[str, str]:
    """Keys of the section `[Host]` of host_start.log."""
    values: dict[str, str] = {}
    section = ""
    for line in _bytes(path).decode("utf-8", "replace").splitlines():
        if line.strip().startswith("["):
            section = line.strip()
        elif section == "[Host]":
            key, _, value = line.partition(":")
            values[key.strip()] = value.strip()
    return values


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _json(path: Path) -> dict[str, Any]:
    try:
        value = orjson.loads(_bytes(path))
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _section(parent: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = parent.get(key)
    return value if isinstance(value, dict) else {}


def _decimal(value: object) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return None
    try:
        number = Decimal(str(value).strip())
    except InvalidOperation:
        return None
    return number if number.is_finite() and abs(number) < _LIMIT else None


def _integer(value: object) -> int | None:
    number = _decimal(value)
    return None if number is None else int(number)
