# SPDX-License-Identifier: Apache-2.0
"""Traffic of the device's memories and last-level cache, from counts per sample (docs/formats/cann.md 5.1).

That the rates of HBM and LLC follow these rules was checked on what the vendor's tool showed for real captures:
turned back into counts, every value is a whole number.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from stepscope.formats import NONE32
from stepscope.formats.cann.folder import Part
from stepscope.formats.cann.sampled.series import (
    MB,
    SECOND,
    Column,
    SampledRows,
    columns,
    counters,
    sampled_ns,
    series,
    since_previous,
)
from stepscope.tables import issues, lost

_HBM_ACCESS = 32  # bytes
_LLC_ACCESS = 64 * 64  # the vendor's tool multiplies by 64 twice; so do the values in real captures
# Events of the cache in the order e0 to e7, by the setting `llc_profiling`.
_LLC_EVENTS = {
    "read": (0x00, 0x01, 0x02, 0x13, 0x20, 0x22, 0x34, 0x36),
    "write": (0x00, 0x01, 0x03, 0x14, 0x21, 0x23, 0x35, 0x37),
}
_LLC_COUNT = {5: 2, 7: 1, 8: 1, 11: 1, 16: 2}  # caches that the vendor's tool looks at, by chip; others have 4
_WIDE_DDR = (1, 2, 3, 4)  # chips whose memory moves 256 bits at a time instead of 128


def hbm(part: Part, rows: Column) -> SampledRows:
    samples = columns(rows, "event", "instance", "count", time_ns=sampled_ns(part, rows["time_us"])).with_columns(
        pl.when(pl.col("event") == 0).then(pl.lit("Read")).otherwise(pl.lit("Write")).alias("way")
    )
    samples = samples.unique(["time_ns", "way", "instance", "count"], maintain_order=True)
    whole, incomplete = _complete(samples)
    timed = whole.join(since_previous(whole["time_ns"]), on="time_ns", how="left", maintain_order="left")
    # Nothing is known of the time before the first sample; the vendor shows it as 0.
    rate = (pl.col("count") * _HBM_ACCESS / MB / pl.col("seconds")).fill_null(0.0)
    name = pl.format("HBM {}/{}", "instance", "way")
    return counters(
        [series(timed, part, "HBM", name, pl.format("{}(MB/s)", "way"), rate)],
        lost(issues.INCOMPLETE_SAMPLE, "hbm.data", incomplete, "other samples have more or fewer records of one time"),
    )


def _complete(samples: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """The samples whose time has as many records as most times have, the larger number on a tie."""
    sized = samples.with_columns(pl.len().over("time_ns").alias("size"))
    sizes = sized.select("time_ns", "size").unique().group_by("size").len().sort("len", "size")
    usual = sizes["size"].last() if sizes.height else 0
    kept = sized.filter(pl.col("size") == usual)
    return kept, sized.height - kept.height


def llc(part: Part, rows: Column) -> SampledRows:
    mode = part.setting("llc_profiling").lower()
    if mode not in _LLC_EVENTS:
        return counters((), lost(issues.NOT_UNDERSTOOD, "llc.data", len(rows), f"llc_profiling is {mode!r}, not read or write"))
    samples = columns(rows, "event", "instance", "count", time_ns=sampled_ns(part, rows["time_us"]))
    slots = {event: f"e{slot}" for slot, event in enumerate(_LLC_EVENTS[mode])}
    slot = pl.col("event").replace_strict(slots, default=None, return_dtype=pl.String).alias("slot")
    known = samples.with_columns(slot, pl.col("count").cast(pl.Float64)).drop_nulls("slot")
    unknown = samples.height - known.height
    shown = known.filter(pl.col("instance") < _LLC_COUNT.get(part.chip or 0, 4))
    losses = (
        lost(issues.UNKNOWN_KIND, "llc.data", unknown, f"events for {mode}"),
        lost(issues.UNKNOWN_KIND, "llc.data", known.height - shown.height, "caches"),
    )
    if not shown.height:
        return counters((), *losses)
    events = shown.pivot("slot", index=["instance", "time_ns"], values="count", aggregate_function="last")
    absent = [pl.lit(None, pl.Float64).alias(slot) for slot in slots.values() if slot not in events.columns]
    events = events.with_columns(absent).sort("instance", "time_ns")
    seconds = pl.col("time_ns").diff().over("instance") / SECOND
    hits, requests = (pl.sum_horizontal(*some, ignore_nulls=False) for some in (("e2", "e3", "e5", "e7"), ("e4", "e6")))
    accesses = pl.col("e0") + pl.col("e1")
    # As in the vendor's tool: three decimals, 0 where a count is missing or nothing came before.
    hit_rate = pl.when(requests != 0).then(hits / requests).fill_null(0.0).round(3)
    throughput = (accesses * _LLC_ACCESS / MB / seconds).fill_null(0.0).round(3)
    name = f"LLC {{}} {mode.capitalize()}/"
    return counters(
        [
            series(events, part, "LLC", pl.format(name + "Throughput", "instance"), "Throughput(MB/s)", throughput),
            series(events, part, "LLC", pl.format(name + "Hit Rate", "instance"), "Hit Rate(%)", hit_rate),
        ],
        *losses,
    )


def ddr(part: Part, rows: Column) -> SampledRows:
    """All channels together; the first sample counts from the start of the sampler."""
    samples = columns(rows, "event", "count", "master", time_ns=sampled_ns(part, rows["time_us"]))
    whole = samples.filter(pl.col("master") == NONE32)
    reads = pl.col("event") == 0
    times = whole.group_by("time_ns").agg(
        pl.col("count").filter(reads).cast(pl.Float64).sum().alias("Read"),
        pl.col("count").filter(~reads).cast(pl.Float64).sum().alias("Write"),
    )
    times = times.sort("time_ns").with_columns(
        ((pl.col("time_ns") - pl.col("time_ns").shift(1, fill_value=part.sampled_zero_ns)) / SECOND).alias("seconds")
    )
    access = (256 if part.chip in _WIDE_DDR else 128) / 8

    def rate(way: str) -> pl.Expr:
        return pl.when(pl.col("seconds") > 0).then(pl.col(way) * access / MB / pl.col("seconds")).otherwise(0.0)

    frames = [series(times, part, "DDR", f"DDR/{way}", f"{way}(MB/s)", rate(way)) for way in ("Read", "Write")]
    return counters(
        frames, lost(issues.UNSUPPORTED_KIND, "ddr.data", samples.height - whole.height, "only the sums of all are shown")
    )


def qos(part: Part, rows: Column) -> SampledRows:
    """Bandwidth by class of traffic; the classes are named in the settings."""
    times: Any = part.clock.ns(rows["counter"])
    return qos_series(part, times, rows["bandwidth"], "value", "qos.data")


def qos_series(part: Part, times: Column, bandwidth: Column, label: str | pl.Expr, file: str, **more: Column) -> SampledRows:
    names = [text.rpartition(":")[2].strip() for text in part.setting("qosEvents").split(",") if text.strip()]
    if not names:
        return counters((), lost(issues.NOT_UNDERSTOOD, file, len(times), "the settings have no qosEvents"))
    frames = []
    for slot, name in enumerate(names[: bandwidth.shape[1]]):
        samples = pl.DataFrame({"time_ns": times, "value": bandwidth[:, slot].astype(float), **more})
        frames.append(series(samples, part, "QoS", f"QoS {name}", label, "value"))
    return counters(frames)
