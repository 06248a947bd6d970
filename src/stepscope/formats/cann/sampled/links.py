# SPDX-License-Identifier: Apache-2.0
"""Traffic over PCIe, HCCS and network ports (docs/formats/cann.md 5.3).

Their stamps are nanoseconds of the device's monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import polars as pl

from stepscope.formats.ascend.db.schema import PROFILER_DB
from stepscope.formats.ascend.hardware import LINK_MODES, PORT_BANDWIDTH, PORT_RATES, PORT_TOTALS
from stepscope.formats.cann.folder import Part
from stepscope.formats.cann.sampled.series import (
    MB,
    SECOND,
    Column,
    SampledRows,
    counters,
    integer,
    number,
    numbers,
    select_records,
    series,
)
from stepscope.tables import issues, lost

_NO_MINIMUM = 0xFFFFF  # a minimum that was never set (docs/formats/enums.md 8)
_BYTES_PER_US = 1e6 / MB  # to MB/s
_NS = 1e-3  # to microseconds
# Seven counters of three values each (least, most, mean): mode of the csv file, name and series of the timeline.
_PCIE = LINK_MODES["PCIe"]
_PORT = (
    "bandwidth", "rxPacket", "rxByte", "rxPackets", "rxBytes", "rxErrors", "rxDropped",
    "txPacket", "txByte", "txPackets", "txBytes", "txErrors", "txDropped",
)  # fmt: skip
# Running totals of a network device, in the order of the file; by the column of the database that shows their growth.
_NET_DEVICE = (
    "macTxPfcPkt", "macRxPfcPkt", "macTxByte", "macRxByte", "macTxBadByte", "macRxBadByte", "roceTxPkt", "roceRxPkt",
    "roceTxErrPkt", "roceRxErrPkt", "roceTxCnpPkt", "roceRxCnpPkt", "roceNewPktRty", "nicTxByte", "nicRxByte",
)  # fmt: skip
_NET_RATES = {f"{kind}{way}Bandwidth": f"{kind}{way}Byte" for kind in ("mac", "nic") for way in ("Tx", "Rx")}


def pcie(part: Part, rows: Column) -> SampledRows:
    """Least, most and mean of each counter over the time of one sample, and over the capture.

    The vendor's tool takes the summary from the last sample on some chips, which says nothing about the capture.
    """
    values = rows["values"].astype(np.float64)
    usable = values[:, 1] >= values[:, 0]  # otherwise nothing was counted
    rows, values = select_records(rows, usable), values[usable]
    times = _device_ns(part, rows["counter"])
    frames, summary = [], []
    for at, (mode, (name, way)) in enumerate(_PCIE.items()):
        unit = _NS if name.endswith("latency") else _BYTES_PER_US
        least, most, mean = (values[:, at * 3 + part_at] for part_at in range(3))
        set_least = np.where(least == _NO_MINIMUM, np.nan, least)
        for label, some in ((way, mean), (f"{way} Min", set_least), (f"{way} Max", most)):
            samples = pl.DataFrame({"time_ns": times, "value": some * unit}).with_columns(pl.col("value").fill_nan(None))
            frames.append(series(samples, part, "PCIe", name, label, "value"))
        if len(rows):
            smallest = float(least[least != _NO_MINIMUM].min(initial=np.inf))
            whole = (0.0 if np.isinf(smallest) else smallest, float(most.max()), float(mean.mean()))
            summary.append(("PCIe", part.device, mode, *(value * unit for value in whole)))
    unused = int((~usable).sum())
    return SampledRows({"counters": frames, "link_summary": _summary(summary)}, (lost(issues.EMPTY_SAMPLE, "pcie.data", unused),))


def hccs(part: Part, lines: Sequence[str]) -> SampledRows:
    """Growth of two running totals of bytes; a sample where one of them fell is left out."""
    samples, bad = _table(lines, 2, 2)
    frame = _in_time(part, samples, ("Tx", "Rx"))
    seconds = pl.col("time_ns").diff() / SECOND
    speeds = frame.with_columns(seconds.alias("seconds"), pl.col("Tx", "Rx").diff()).filter(
        (pl.col("seconds") > 0) & (pl.col("Tx") >= 0) & (pl.col("Rx") >= 0)
    )
    speeds = speeds.select("time_ns", pl.col("Tx", "Rx") / MB / pl.col("seconds"))
    frames = [series(speeds, part, "HCCS", way, label, way) for way, label in LINK_MODES["HCCS"].values()]
    summary = [
        (
            "HCCS",
            part.device,
            mode,
            *speeds.select(pl.col(way).min(), pl.col(way).max().alias("most"), pl.col(way).mean().alias("mean")).row(0),
        )
        for mode, (way, _) in LINK_MODES["HCCS"].items()
        if speeds.height
    ]
    fell = max(frame.height - 1, 0) - speeds.height
    return SampledRows(
        {"counters": frames, "link_summary": _summary(summary)},
        (
            lost(issues.UNREADABLE_LINE, "hccs.data", bad),
            lost(issues.INCOMPLETE_SAMPLE, "hccs.data", fell, "cannot be compared with the one before"),
        ),
    )


def nic(part: Part, lines: Sequence[str]) -> SampledRows:
    return _ports(part, lines, "NIC", "nic.data")


def roce(part: Part, lines: Sequence[str]) -> SampledRows:
    return _ports(part, lines, "RoCE", "roce.data")


def _ports(part: Part, lines: Sequence[str], source: str, file: str) -> SampledRows:
    """One line per sample of a port: 13 values, then its number (absent: 0), then sometimes a type."""
    samples, bad = _table(lines, len(_PORT), len(_PORT) + 2)
    padded = [(time, [*values, 0.0][: len(_PORT) + 1]) for time, values in samples]
    frame = _in_time(part, padded, (*_PORT, "port")).with_columns(pl.col("port").cast(pl.Int64))
    frames = [series(frame, part, source, pl.format("Port {}", "port"), PORT_BANDWIDTH, "bandwidth", "port")]
    capacity = pl.col("bandwidth") * MB / 8
    for way, shown in (("rx", "Rx"), ("tx", "Tx")):
        packets = pl.col(f"{way}Packets")
        values = {
            f"{way}Packets": pl.col(f"{way}Packet"),
            f"{way}Errors": pl.when(packets != 0).then(pl.col(f"{way}Errors") / packets).otherwise(0.0),
            f"{way}Dropped": pl.when(packets != 0).then(pl.col(f"{way}Dropped") / packets).otherwise(0.0),
            f"{way}Bytes": pl.when(capacity != 0).then((pl.col(f"{way}Byte") / capacity).round(3)),
        }
        name = pl.format(f"Port {{}}/{shown}", "port")
        frames += [series(frame, part, source, name, PORT_RATES[column][1], value) for column, value in values.items()]
    frames += [series(frame, part, source, pl.format("Port {}", "port"), total, total, "port") for total in PORT_TOTALS]
    return counters(frames, lost(issues.UNREADABLE_LINE, file, bad))


def netdev_stats(part: Part, lines: Sequence[str]) -> SampledRows:
    """Growth of running totals; one that fell counts as 0. Stamps are of the host's monotonic clock."""
    samples, bad = _table(lines, len(_NET_DEVICE), None)
    cut = [(time, values[: len(_NET_DEVICE)]) for time, values in samples]
    frame = _in_time(part, cut, _NET_DEVICE, part.clock.epoch_offset_ns).unique("time_ns", keep="first", maintain_order=True)
    growth = frame.select(
        "time_ns", (pl.col("time_ns").diff() / SECOND).alias("seconds"), pl.col(_NET_DEVICE).diff().clip(lower_bound=0.0)
    ).drop_nulls("seconds")
    growth = growth.with_columns((pl.col(total) / pl.col("seconds")).alias(rate) for rate, total in _NET_RATES.items())
    shown = PROFILER_DB["NETDEV_STATS"].names[2:]
    return counters(
        [series(growth, part, "Net Device", "Net Device", name, name) for name in shown],
        lost(issues.UNREADABLE_LINE, "netdev_stats.data", bad),
    )


def _device_ns(part: Part, stamps: Column) -> Column:
    stamps = np.minimum(stamps.astype(np.uint64), np.uint64(1 << 61)).astype(np.int64)
    return np.asarray(stamps + part.device_monotonic_zero_ns)


def _table(lines: Sequence[str], least: int, most: int | None) -> tuple[list[tuple[int, list[float]]], int]:
    """`<time>[:] <value> …` lines, and how many others there were; header lines begin with a letter and do not count."""
    samples: list[tuple[int, list[float]]] = []
    bad = 0
    for line in lines:
        first, *rest = line.split() or [""]
        if not first or first[0].isalpha():
            continue
        stamp, values = _stamp(first.rstrip(":")), numbers(rest)
        if stamp is None or values is None or len(values) < least or (most is not None and len(values) > most):
            bad += 1
        else:
            samples.append((stamp, values))
    return samples, bad


def _stamp(text: str) -> int | None:
    whole = integer(text)
    if whole is not None:
        return whole
    found = number(text)
    return int(found) if found is not None and abs(found) < 1e18 else None


def _in_time(
    part: Part, samples: Iterable[tuple[int, list[float]]], names: Sequence[str], zero_ns: int | None = None
) -> pl.DataFrame:
    zero = part.device_monotonic_zero_ns if zero_ns is None else zero_ns
    rows = [(stamp + zero, *values) for stamp, values in samples]
    schema = {"time_ns": pl.Int64(), **dict.fromkeys(names, pl.Float64())}
    return pl.DataFrame(rows, schema=schema, orient="row").sort("time_ns", maintain_order=True)


def _summary(rows: Sequence[tuple[object, ...]]) -> list[pl.DataFrame]:
    return [pl.DataFrame(rows, schema=["source", "device", "mode", "min", "max", "avg"], orient="row")] if rows else []
