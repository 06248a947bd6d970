# SPDX-License-Identifier: Apache-2.0
"""From a counter of host or device to nanoseconds since 1970 (docs/formats/cann.md 2).

The vendor's tool writes the distance from the counter's zero as decimal microseconds with six digits and adds the monotonic
zero digit by digit. Times of the host are cut from that sum; those of devices pass through a float64 first, which it adds up
from the digits, smallest first: near the middle between two floats the one it arrives at is not always the nearest. The
whole-number distance to the epoch is added last. The same steps here give the same nanoseconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a fresh store is opened without it
    import numpy as np
    import numpy.typing as npt

# Broken counters may lie anywhere in 64 bits: times are kept within 73 years of the epoch so that sums cannot overflow.
FAR_NS = 1 << 61


@dataclass(frozen=True)
class CounterClock:
    """A counter's zero on the monotonic clock, its rate, and the distance of that clock to the epoch."""

    zero_ticks: int = 0
    zero_mono_ns: float = 0.0
    mhz: float | None = None  # None: the counter already is monotonic nanoseconds
    epoch_offset_ns: int = 0
    is_host: bool = False

    def ns(self, ticks: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Epoch nanoseconds of counter values."""
        import numpy as np

        if self.mhz is None:
            near = np.minimum(ticks.astype(np.uint64), np.uint64(FAR_NS)).astype(np.int64)
            return np.asarray(near + self.epoch_offset_ns, np.int64)
        whole, below = self._mono(ticks, self.mhz)
        if not self.is_host:
            whole = np.floor(_float_from_digits(whole, below)).astype(np.int64)
        return np.asarray(np.clip(whole, -FAR_NS, FAR_NS) + self.epoch_offset_ns, np.int64)

    def duration_between(self, first: npt.NDArray[Any], last: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Nanoseconds between two counter values, as exact as the vendor's tool keeps them."""
        import numpy as np

        if self.mhz is None:
            return np.asarray(self.ns(last) - self.ns(first), np.float64)
        begin, end = (_float_from_digits(*self._mono(ticks, self.mhz)) for ticks in (first, last))
        return np.asarray(end - begin, np.float64)

    def _mono(self, ticks: npt.NDArray[Any], mhz: float) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Monotonic time: whole nanoseconds and thousandths of one."""
        import numpy as np

        # Counters are unsigned 64 bit; their distance is small and may be negative.
        distance = (ticks.astype(np.uint64) - np.uint64(self.zero_ticks)).astype(np.int64)
        us = np.minimum(np.abs(distance.astype(np.float64)) / mhz, FAR_NS / 1000)
        whole_us = np.floor(us)
        parts = np.where(distance < 0, -1, 1) * np.rint((us - whole_us) * 1e6).astype(np.int64)
        zero_ns = math.floor(self.zero_mono_ns)
        parts += round((self.zero_mono_ns - zero_ns) * 1000)
        whole = np.where(distance < 0, -1, 1) * (whole_us * 1000).astype(np.int64) + zero_ns + parts // 1000
        return whole, parts % 1000

    def ticks(self, ns: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
        """Counter values of epoch nanoseconds, for writing: the nearest tick."""
        import numpy as np

        mono = np.subtract(ns.astype(np.int64), self.epoch_offset_ns)
        if self.mhz is None:
            return mono.astype(np.uint64)
        distance = np.rint((mono.astype(np.float64) - self.zero_mono_ns) * self.mhz / 1000).astype(np.int64)
        return np.asarray(distance.astype(np.uint64) + np.uint64(self.zero_ticks), np.uint64)


def _float_from_digits(whole: npt.NDArray[np.int64], below: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """The float64 of a decimal number that is added up from its digits, smallest first; `below` are thousandths."""
    import numpy as np

    sign = np.where(whole < 0, -1.0, 1.0)
    total = below % 10 * 1e-3 + below // 10 % 10 * 1e-2 + below // 100 * 1e-1
    # Up to here a float has so many digits to spare that one sum is as good as nine.
    rest, low = np.divmod(np.abs(whole), 10**9)
    total = total + sign * low
    for power in range(9, 19):
        if not rest.any():
            break
        rest, digit = np.divmod(rest, 10)
        total = total + sign * digit * 10.0**power
    return np.asarray(total, np.float64)


def host_clock(info: Mapping[str, Any], start: Mapping[str, Any], log: Mapping[str, int]) -> tuple[CounterClock, str]:
    """The host's clock, and what was missing for it."""
    offset, fault = _epoch_offset(start)
    rate = _cpu_mhz(info)
    if rate is None:
        return CounterClock(epoch_offset_ns=offset), fault
    zero, missing = _zero(log, log, rate)
    return CounterClock(_counter(log), zero, rate, offset, is_host=True), fault or missing


def device_clock(
    info: Mapping[str, Any], start: Mapping[str, Any], host_log: Mapping[str, int], device_log: Mapping[str, int]
) -> tuple[CounterClock, str]:
    """A device's clock, from the files of its own folder."""
    offset, fault = _epoch_offset(start)
    devices = info.get("DeviceInfo")
    first = devices[0] if isinstance(devices, list) and devices and isinstance(devices[0], dict) else {}
    rate = _positive(first.get("hwts_frequency"))
    if rate is None:
        return CounterClock(epoch_offset_ns=offset), fault or "info.json has no hwts_frequency"
    zero, missing = _zero(host_log, device_log, _cpu_mhz(info))
    return CounterClock(_counter(device_log), zero, rate, offset), fault or missing


def sampled_zero_ns(host_log: Mapping[str, int], start: Mapping[str, Any]) -> int:
    """Epoch nanoseconds at microsecond 0 of sampled device data."""
    return mono_ns(host_log) + _epoch_offset(start)[0]


def _counter(log: Mapping[str, int]) -> int:
    return log.get("cntvct", 0) & 0xFFFF_FFFF_FFFF_FFFF


def mono_ns(log: Mapping[str, int]) -> int:
    """The monotonic clock in a start log, 0 where it does not say."""
    return max(-FAR_NS, min(log.get("clock_monotonic_raw", 0), FAR_NS))


def _zero(host_log: Mapping[str, int], counter_log: Mapping[str, int], cpu_mhz: float | None) -> tuple[float, str]:
    missing = [name for name, log in (("clock_monotonic_raw", host_log), ("cntvct", counter_log)) if name not in log]
    shift = int(host_log.get("cntvct_diff", 0) * 1000 / cpu_mhz) if cpu_mhz else 0  # cut, as the vendor's tool does
    zero = max(-FAR_NS, min(mono_ns(host_log) + shift, FAR_NS))
    return zero, f"the start log has no {' and no '.join(missing)}" if missing else ""


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
    return number if 1e-3 <= number <= 1e6 else None  # also refuses NaN
