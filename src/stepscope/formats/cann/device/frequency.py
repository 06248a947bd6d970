# SPDX-License-Identifier: Apache-2.0
"""How fast the cores ran and at which voltage, from the points of the power manager (docs/formats/cann.md 4.8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.formats.cann.folder import Part
from stepscope.formats.cann.layouts import LPM_FREQ, LPM_INFO, LPM_POINT
from stepscope.formats.cann.records import read_records
from stepscope.tables import issues, lost

_KINDS = {0: "frequency", 1: "aic_voltage", 2: "bus_voltage"}
_DEFAULT_MILLIVOLTS = 900

POINTS = {"kind": pl.String(), "time_ns": pl.Int64(), "value": pl.Int64()}


@dataclass(frozen=True)
class Frequency:
    """Core frequency over the counter, and all points as a frame.

    `points`: kind (frequency in MHz, aic_voltage and bus_voltage in mV), time_ns, value; sorted by kind and time. The
    first and last point of a kind stand at the borders of the recording, as in the vendor's outputs.
    """

    ticks: npt.NDArray[np.uint64]  # sorted
    mhz: npt.NDArray[np.float64]
    rated_mhz: float  # `aic_frequency`; 0 when the folder does not say
    points: pl.DataFrame

    def at(self, ticks: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """MHz at counter values: that of the last point not later, else the rated one."""
        if not len(self.ticks) or not self.mhz.all():
            return np.full(len(ticks), self.rated_mhz)
        place = np.searchsorted(self.ticks, ticks, "right") - 1
        return np.where(place < 0, self.rated_mhz, self.mhz[place])


def rated_mhz(part: Part) -> float:
    """`aic_frequency`; 0 when the folder does not say."""
    return _number(part.device_info.get("aic_frequency"))


def read_frequency(part: Part) -> tuple[Frequency, list[pl.DataFrame]]:
    """The points of a device folder; without any the rated frequency holds throughout."""
    rated = rated_mhz(part)
    info, old = read_records(part, LPM_INFO), read_records(part, LPM_FREQ)
    losses = [*info.lost, *old.lost]
    series: dict[str, npt.NDArray[Any]] = {}
    for kind, name in _KINDS.items():
        # The older file has frequencies only, whatever its second field holds.
        records = [info.rows[info.rows["kind"] == kind], *([old.rows] if kind == 0 else [])]
        default = rated if kind == 0 else _DEFAULT_MILLIVOLTS
        series[name] = _series(records, part.clock.zero_ticks & 0xFFFF_FFFF_FFFF_FFFF, int(default))
    strange = int(np.count_nonzero(~np.isin(info.rows["kind"], list(_KINDS))))
    losses.append(lost(issues.UNKNOWN_KIND, LPM_INFO.file, strange))
    ticks, mhz = series["frequency"]["counter"], series["frequency"]["value"].astype(np.float64)
    frame = pl.concat([_frame(part, name, found) for name, found in series.items()])
    return Frequency(ticks, mhz, rated, frame), [row for row in losses if row.height]


def _series(records: list[npt.NDArray[Any]], begin: int, default: int) -> npt.NDArray[Any]:
    """Points in the order of time; those before the start of the device's log only give the value at its start."""
    filled = [row["points"][np.arange(55) < row["count"][:, None]] for row in records]
    points = np.concatenate([found.astype(LPM_POINT) for found in filled]) if filled else np.empty(0, LPM_POINT)
    if not len(points):
        return points
    points = points[np.argsort(points["counter"], kind="stable")]
    before = points["counter"] < np.uint64(begin)
    first = np.zeros(1, LPM_POINT)
    first["counter"], first["value"] = begin, points["value"][before][-1] if before.any() else default
    return np.concatenate([first, points[~before]])


def _frame(part: Part, name: str, points: npt.NDArray[Any]) -> pl.DataFrame:
    if not len(points):
        return pl.DataFrame(schema=POINTS)
    counter, mhz = points["counter"].copy(), part.clock.mhz
    if mhz is not None and counter[0] < 1 << 53:
        # The vendor's tool turns the start of the device's log into seconds and back: now and then it is one tick less.
        counter[0] = int(float(counter[0]) / (mhz * 1e6) * (mhz * 1e6))
    time, value = part.clock.ns(counter).tolist(), points["value"].tolist()
    begin, end = _microseconds(part.start, "collectionTimeBegin"), _microseconds(part.end, "collectionTimeEnd")
    if begin is not None:
        time, value = [begin * 1000, *time], [value[0], *value]
    if end is not None:
        time, value = [*time, end * 1000], [*value, value[-1]]
    return pl.DataFrame({"kind": [name] * len(time), "time_ns": time, "value": value}, schema=POINTS)


def _microseconds(settings: Mapping[str, Any], key: str) -> int | None:
    text = str(settings.get(key, ""))
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= 16 else None


def _number(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return 0.0
    return number if 0 < number < 1e6 else 0.0
