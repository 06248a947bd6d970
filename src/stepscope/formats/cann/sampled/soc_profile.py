# SPDX-License-Identifier: Apache-2.0
"""What the scheduler samples about the chip: accelerators, dies, links to other chips (docs/formats/cann.md 5.2).

One file holds several kinds of record; adding one is an entry of `FUNCTIONS`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl

from stepscope.formats.cann.folder import Part
from stepscope.formats.cann.sampled.hbm_llc import qos_series
from stepscope.formats.cann.sampled.series import MB, SECOND, Column, SampledRows, columns, counters, select_records, series
from stepscope.tables import issues, lost

_NEXT_CHIPS = (15, 16)
_PA_LINK, _PCIE = 0b111111, 0b100010  # what a record of chip transfers is about, in the head's upper bits
_OVER_PCIE = ("PCIE Write Bandwidth", "PCIE Read Bandwidth")
_SIO = tuple(f"{part}_{way}" for way in ("rx", "tx") for part in ("req", "rsp", "snp", "dat"))
_AI_CORE_FREQUENCY = 11  # place among the 20 numbers of a low-power record


def soc_profile(part: Part, rows: Column) -> SampledRows:
    functions = rows["head"] & 0x3F
    parts = [
        read(part, select_records(rows, functions == function))
        for function, read in FUNCTIONS.items()
        if (functions == function).any()
    ]
    unread = int((~np.isin(functions, list(FUNCTIONS))).sum())
    names = ", ".join(str(function) for function in np.unique(functions[~np.isin(functions, list(FUNCTIONS))])[:8])
    losses = [row for found in parts for row in found.lost]
    losses.append(lost(issues.UNKNOWN_KIND, "stars_soc_profile.data", unread, f"functions {names}"))
    return counters([frame for found in parts for frame in found.rows.get("counters", ())], *losses)


def _accelerators(part: Part, rows: Column) -> SampledRows:
    fields = {"first": "write_bandwidth", "second": "read_bandwidth", "third": "write_ost", "fourth": "read_ost"}
    samples = columns(rows, "instance", *fields, time_ns=part.clock.ns(rows["counter"]))
    return counters(series(samples, part, "Acc PMU", name, "value", column, "instance") for column, name in fields.items())


def _dies(part: Part, rows: Column) -> SampledRows:
    """Bytes since the die's last sample; its first has no rate."""
    next_chip = part.chip in _NEXT_CHIPS  # has the die in its head, and its sums elsewhere
    received_and_sent = np.concatenate([rows["die_rx"], rows["die_tx"]], axis=1) if next_chip else rows["sizes"]
    sizes = {name: received_and_sent[:, at].astype(np.float64) for at, name in enumerate(_SIO)}
    die_number = rows["head"] >> 10 if next_chip else rows["instance"]
    samples = columns(rows, time_ns=part.clock.ns(rows["counter"]), instance=die_number, **sizes)
    # A sample that is not later than the one before is left out: it has no rate.
    samples = samples.sort("instance", "time_ns", maintain_order=True).unique(
        ["instance", "time_ns"], keep="first", maintain_order=True
    )
    seconds = pl.col("time_ns").diff().over("instance") / SECOND
    timed = samples.with_columns(seconds.alias("seconds")).drop_nulls("seconds")
    die = pl.format("die {}", "instance")
    return counters(series(timed, part, "SIO", name, die, pl.col(name) / MB / pl.col("seconds")) for name in _SIO)


def _transfers(part: Part, rows: Column) -> SampledRows:
    if part.chip in _NEXT_CHIPS:
        samples = columns(rows, "die_write", "die_read", time_ns=part.clock.ns(rows["counter"]), die=rows["head"] >> 10)
        return counters(
            series(samples, part, "Stars Chip Trans", name, name, at, "die")
            for name, at in zip(_OVER_PCIE, ("die_write", "die_read"), strict=True)
        )
    about = rows["head"] >> 10
    frames = []
    for kind, names in ((_PA_LINK, ("PA Link Rx", "PA Link Tx")), (_PCIE, _OVER_PCIE)):
        some = select_records(rows, about == kind)
        samples = columns(some, "first", "second", time_ns=part.clock.ns(some["counter"]), link=some["instance"] & 0x3F)
        frames += [
            series(samples, part, "Stars Chip Trans", name, name, at, "link")
            for name, at in zip(names, ("first", "second"), strict=True)
        ]
    other = int((~np.isin(about, (_PA_LINK, _PCIE))).sum())
    return counters(frames, lost(issues.NOT_UNDERSTOOD, "stars_soc_profile.data", other, "chip transfers of unknown kind"))


def _levels(part: Part, rows: Column) -> SampledRows:
    levels = rows["levels"].astype(np.int64)
    samples = pl.DataFrame({"time_ns": part.clock.ns(rows["counter"]), "mata": levels & 7, "buffer": (levels >> 3) & 0xFF})
    shown = {"Mata Bw Level": "mata", "L2 Buffer Bw Level": "buffer"}
    return counters(series(samples, part, "Stars Soc Info", name, name, column) for name, column in shown.items())


def _quality_of_service(part: Part, rows: Column) -> SampledRows:
    """Chips from 15 on leave the first two places empty and tell the dies apart."""
    times = part.clock.ns(rows["counter"])
    if part.chip not in _NEXT_CHIPS:
        return qos_series(part, times, rows["bandwidth"], "value", "stars_soc_profile.data")
    die = pl.format("die {}", "die")
    return qos_series(part, times, rows["bandwidth"][:, 2:], die, "stars_soc_profile.data", die=rows["head"] >> 10)


def _low_power(part: Part, rows: Column) -> SampledRows:
    """Frequency of the AI cores by die; the other numbers are not shown."""
    if part.chip not in _NEXT_CHIPS:
        return _unread(rows, 29, "low power")
    frequency = rows["low_power"][:, _AI_CORE_FREQUENCY]
    samples = pl.DataFrame({"time_ns": part.clock.ns(rows["counter"]), "die": rows["head"] >> 10, "mhz": frequency})
    cores = samples.filter(pl.col("die") < 2)
    return counters([series(cores, part, "AI Core Freq", pl.format("AI Core Freq Die {}", "die"), "MHz", "mhz")])


def _unread(rows: Column, function: int, why: str) -> SampledRows:
    return SampledRows(lost=(lost(issues.UNSUPPORTED_KIND, "stars_soc_profile.data", len(rows), f"function {function}: {why}"),))


FUNCTIONS: dict[int, Callable[[Part, Column], SampledRows]] = {
    24: _quality_of_service,
    25: _dies,
    26: _accelerators,
    27: _transfers,
    28: _levels,
    29: _low_power,
}
