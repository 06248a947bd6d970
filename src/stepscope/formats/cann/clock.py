# SPDX-License-Identifier: Apache-2.0
"""From a counter of host or device to nanoseconds since 1970 (cann-raw.md 2).

The monotonic time is kept as float64, as the vendor's tool keeps it, and cut; only then the whole-number distance
to the epoch is added. The result equals the vendor's to the nanosecond but for one record in a thousand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

# Broken counters may lie anywhere in 64 bits: times are held within 73 years of the epoch so that sums cannot overflow.
FAR_NS = 1 << 61


@dataclass(frozen=True)
class Clock:
    """A counter's zero on the monotonic clock, its rate, and the distance of that clock to the epoch."""

    zero_ticks: int = 0
    zero_mono_ns: float = 0.0
    mhz: float | None = None  # None: the counter already is monotonic nanoseconds
    epoch_offset_ns: int = 0

    def ns(self, ticks: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Epoch nanoseconds of counter values."""
        if self.mhz is None:
            near = np.minimum(ticks.astype(np.uint64), np.uint64(FAR_NS)).astype(np.int64)
            return np.asarray(near + self.epoch_offset_ns, np.int64)
        # Counters are unsigned 64 bit; their distance is small and may be negative.
        distance = (ticks.astype(np.uint64) - np.uint64(self.zero_ticks)).astype(np.int64)
        mono = np.clip(distance.astype(np.float64) * 1000 / self.mhz + self.zero_mono_ns, -FAR_NS, FAR_NS)
        return np.asarray(np.floor(mono).astype(np.int64) + self.epoch_offset_ns, np.int64)

    def ticks(self, ns: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
        """Counter values of epoch nanoseconds, for writing: the nearest tick."""
        mono = np.subtract(ns.astype(np.int64), self.epoch_offset_ns)
        if self.mhz is None:
            return mono.astype(np.uint64)
        distance = np.rint((mono.astype(np.float64) - self.zero_mono_ns) * self.mhz / 1000).astype(np.int64)
        return np.asarray(distance.astype(np.uint64) + np.uint64(self.zero_ticks), np.uint64)


def host_clock(info: Mapping[str, Any], start: Mapping[str, Any], log: Mapping[str, int]) -> tuple[Clock, str]:
    """The host's clock, and what was missing for it."""
    offset, fault = _epoch_offset(start)
    rate = _cpu_mhz(info)
    if rate is None:
        return Clock(epoch_offset_ns=offset), fault
    zero, missing = _zero(log, log, rate)
    return Clock(_counter(log), zero, rate, offset), fault or missing


def device_clock(
    info: Mapping[str, Any], start: Mapping[str, Any], host_log: Mapping[str, int], device_log: Mapping[str, int]
) -> tuple[Clock, str]:
    """A device's clock, from the files of its own folder."""
    offset, fault = _epoch_offset(start)
    devices = info.get("DeviceInfo")
    first = devices[0] if isinstance(devices, list) and devices and isinstance(devices[0], dict) else {}
    rate = _positive(first.get("hwts_frequency"))
    if rate is None:
        return Clock(epoch_offset_ns=offset), fault or "info.json has no hwts_frequency"
    zero, missing = _zero(host_log, device_log, _cpu_mhz(info))
    return Clock(_counter(device_log), zero, rate, offset), fault or missing


def sampled_zero_ns(host_log: Mapping[str, int], start: Mapping[str, Any]) -> int:
    """Epoch nanoseconds at microsecond 0 of sampled device data."""
    return _mono_ns(host_log) + _epoch_offset(start)[0]


def _counter(log: Mapping[str, int]) -> int:
    return log.get("cntvct", 0) & 0xFFFF_FFFF_FFFF_FFFF


def _mono_ns(log: Mapping[str, int]) -> int:
    return max(-FAR_NS, min(log.get("clock_monotonic_raw", 0), FAR_NS))


def _zero(host_log: Mapping[str, int], counter_log: Mapping[str, int], cpu_mhz: float | None) -> tuple[float, str]:
    missing = [name for name, log in (("clock_monotonic_raw", host_log), ("cntvct", counter_log)) if name not in log]
    shift = host_log.get("cntvct_diff", 0) * 1000 / cpu_mhz if cpu_mhz else 0.0
    return _mono_ns(host_log) + shift, f"the start log has no {' and no '.join(missing)}" if missing else ""


def _epoch_offset(start: Mapping[str, Any]) -> tuple[int, str]:
    try:
        offset = int(start["collectionTimeBegin"]) * 1000 - int(start["clockMonotonicRaw"])
    except (KeyError, TypeError, ValueError):
        return 0, "start_info has no collectionTimeBegin and clockMonotonicRaw"
    return (offset, "") if abs(offset) <= FAR_NS else (0, "start_info has no plausible collectionTimeBegin and clockMonotonicRaw")


def _cpu_mhz(info: Mapping[str, Any]) -> float | None:
    cpus = info.get("CPU")
    first = cpus[0] if isinstance(cpus, list) and cpus and isinstance(cpus[0], dict) else {}
    return _positive(first.get("Frequency"))


def _positive(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if 1e-3 <= number <= 1e6 else None  # also refuses what is no number
