# SPDX-License-Identifier: Apache-2.0
"""Metrics of kernels from their hardware counters (docs/formats/cann.md 4.6, 6.10), named as in `metric_names`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.formats.cann.chips import UNSAID, chip_of
from stepscope.formats.cann.clock import CounterClock
from stepscope.formats.cann.device.frequency import Frequency
from stepscope.formats.cann.device.pmu import AIC, AIV, MIX_AIC, MIX_AIV, Counters
from stepscope.formats.cann.device.pmu_sets import FORMULAS, Formula, Formulas, Half, Values, count_of, share
from stepscope.formats.cann.folder import Part

NO_CLOCK = CounterClock()
_EVENT = re.compile(r"0[xX]([0-9a-fA-F]{1,8})")


@dataclass(frozen=True)
class Settings:
    """What was counted, and on which cores."""

    aic_metrics: str
    aiv_metrics: str
    aic_events: tuple[int, ...]  # meaning of the counters
    aiv_events: tuple[int, ...]
    aic_cores: int
    aiv_cores: int
    one_core: bool  # a chip with one kind of core
    formulas: Formulas = FORMULAS["two_cores"]
    clock: CounterClock = NO_CLOCK  # of the counter that stamps the records

    @classmethod
    def of(cls, part: Part) -> Settings:
        aic = part.setting("ai_core_metrics", "ai_core_profiling_metrics")
        aic_events = _events(part.setting("ai_core_profiling_events"))
        chip = chip_of(part.chip) or UNSAID
        return cls(
            aic_metrics=aic,
            aiv_metrics=part.setting("aiv_metrics", "aiv_profiling_metrics") or aic,
            aic_events=aic_events,
            aiv_events=_events(part.setting("aiv_profiling_events")) or aic_events,
            aic_cores=_whole(part.device_info.get("ai_core_num")),
            aiv_cores=_whole(part.device_info.get("aiv_num")),
            one_core=chip.one_core,
            formulas=FORMULAS[chip.formulas or UNSAID.formulas],
            clock=part.clock,
        )


def kernel_metrics(counters: Counters, settings: Settings, frequency: Frequency, kernels: pl.DataFrame) -> pl.DataFrame:
    """One row of metrics (Float64, times in ns) per row of `kernels`, in its order.

    Args:
        counters: of module pmu.
        settings: of the same device folder.
        frequency: of the same device folder.
        kernels: columns `pmu` (row of `counters.rows`), `block_num` and `mix_block_num` (null is 0) and `duration_ns`.
    """
    rows = kernels["pmu"].to_numpy()
    recorded = counters.rows["block_num"].gather(rows)
    block_num = pl.select(pl.coalesce(recorded, kernels["block_num"])).to_series()
    blocks = [column.fill_null(0).cast(pl.Int64).to_numpy() for column in (block_num, kernels["mix_block_num"])]
    cycles = counters.rows["cycles"].gather(rows).to_numpy().astype(np.float64)
    lasted_us = kernels["duration_ns"].cast(pl.Float64).fill_null(0.0).to_numpy() / 1000
    if settings.one_core:
        return _one_core_metrics(counters, settings, frequency, rows, cycles, blocks[0], lasted_us)
    core = counters.core[rows]
    other_cycles, other_values = _other_half(counters, rows, blocks[1], whole=settings.formulas.by_span)
    spans = _spans(counters, settings, rows) if settings.formulas.by_span else None
    mhz = frequency.at(counters.rows["end_ticks"].gather(rows).to_numpy())
    frames: dict[str, Values] = {}
    aic = np.zeros(0)
    for prefix, kinds, metrics, events, cores in (
        ("aic", (AIC, MIX_AIC), settings.aic_metrics, settings.aic_events, settings.aic_cores),
        ("aiv", (AIV, MIX_AIV), settings.aiv_metrics, settings.aiv_events, settings.aiv_cores),
    ):
        main = np.isin(core, kinds)
        half = _half(
            np.where(main, cycles, other_cycles),
            np.where(main[:, None], counters.values[rows], other_values),
            events,
            np.where(main, blocks[0], blocks[1]),
            cores,
            mhz,
            frequency,
        )
        if spans is not None:
            span: Values = np.where(main, spans[0], spans[1])
            half = replace(half, time_us=np.round(span, settings.formulas.decimals or 3))
        aic = half.cycles if prefix == "aic" else aic
        found = _with_prefix(half, metric_set(metrics, events, settings.formulas), prefix)
        frames |= {name: values for name, values in found.items() if name not in settings.formulas.hidden}
    if "aic_mac_ratio" in frames:
        frames["cube_utilization"] = _cube_utilization(aic, settings, frequency, lasted_us)
        if settings.formulas.by_span:
            frames["cube_utilization"] = np.where(frames["aic_mac_ratio"] > 0, frames["cube_utilization"], 0.0)
    return pl.DataFrame(frames)


def _cube_utilization(cycles: Values, settings: Settings, frequency: Frequency, lasted_us: Values) -> Values:
    """At the rated frequency of all cube cores over the task's time."""
    return share(cycles, frequency.rated_mhz * settings.aic_cores * lasted_us) * 100


def _half(
    cycles: Values,
    values: npt.NDArray[np.uint64],
    events: Iterable[int],
    blocks: Any,
    cores: int,
    mhz: Values,
    frequency: Frequency,
) -> Half:
    counts = {event: values[:, place].astype(np.float64) for place, event in enumerate(events) if place < values.shape[1]}
    rounds = -(-blocks // cores) if cores else np.zeros(len(blocks))
    timed = (blocks > 0) & (mhz > 0)
    time = np.divide(cycles, mhz, out=np.zeros(len(cycles)), where=timed)
    time = np.divide(time, blocks, out=np.zeros(len(cycles)), where=timed) * rounds
    return Half(cycles, counts, time, frequency.rated_mhz * 1e6)


def _other_half(
    counters: Counters, rows: npt.NDArray[Any], most: npt.NDArray[Any], *, whole: bool
) -> tuple[Values, npt.NDArray[np.uint64]]:
    """Sums over the blocks of the other kind of core, at most `most` of a kernel unless they are whole halves; else 0."""
    first = np.searchsorted(counters.block_row, rows, "left")
    last = np.searchsorted(counters.block_row, rows, "right")
    last = np.minimum(last, first + (1 if whole else np.maximum(most, 0)))
    cycles = _running(counters.block_cycles[:, None])
    values = _running(counters.block_values)
    return (cycles[last] - cycles[first])[:, 0].astype(np.float64), values[last] - values[first]


def _spans(counters: Counters, settings: Settings, rows: npt.NDArray[Any]) -> tuple[Values, Values]:
    """Microseconds from start to end on the main core, and on the other core of a MIX kernel."""
    ticks = counters.rows.select("start_ticks", "end_ticks")[rows]
    main = settings.clock.duration_between(ticks["start_ticks"].to_numpy(), ticks["end_ticks"].to_numpy()) / 1000
    other = np.zeros(len(rows))
    if len(counters.block_ticks):
        of_block = settings.clock.duration_between(counters.block_ticks[:, 0], counters.block_ticks[:, 1]) / 1000
        place = np.searchsorted(counters.block_row, rows)
        there = (place < len(counters.block_row)) & (counters.block_row[np.minimum(place, len(of_block) - 1)] == rows)
        other = np.where(there, of_block[np.minimum(place, len(of_block) - 1)], 0.0)
    return main, other


def _running(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    total = np.zeros((len(values) + 1, values.shape[1]), np.uint64)
    np.cumsum(values, axis=0, out=total[1:])
    return total


def _with_prefix(half: Half, metrics: dict[str, Formula], prefix: str) -> dict[str, Values]:
    named = {f"{prefix}_total_time": half.time_us * 1000, f"{prefix}_total_cycles": half.cycles}
    return named | {f"{prefix}_{name}": formula(half) for name, formula in metrics.items()}


def _one_core_metrics(
    counters: Counters,
    settings: Settings,
    frequency: Frequency,
    rows: npt.NDArray[Any],
    cycles: Values,
    blocks: npt.NDArray[np.int64],
    lasted_us: Values,
) -> pl.DataFrame:
    """Columns without a prefix; some of these chips have a second scheduler for vector cores, with events of its own."""
    vector = counters.core[rows] == AIV if settings.aiv_events != settings.aic_events else np.zeros(len(rows), bool)
    parts: list[pl.DataFrame] = []
    for chosen, metrics, events, cores in (
        (np.flatnonzero(~vector), settings.aic_metrics, settings.aic_events, settings.aic_cores),
        (np.flatnonzero(vector), settings.aiv_metrics, settings.aiv_events, settings.aiv_cores),
    ):
        if len(chosen) or not parts:
            values, mhz = counters.values[rows[chosen]], np.full(len(chosen), frequency.rated_mhz)
            half = _half(cycles[chosen], values, events, blocks[chosen], cores, mhz, frequency)
            frame = _one_core_columns(half, settings, frequency, metric_set(metrics, events, settings.formulas), lasted_us[chosen])
            parts.append(frame.with_columns(pl.Series("at", chosen)))
    return pl.concat(parts, how="diagonal").sort("at").drop("at")


def _one_core_columns(
    half: Half, settings: Settings, frequency: Frequency, metrics: dict[str, Formula], lasted_us: Values
) -> pl.DataFrame:
    formulas = settings.formulas
    if formulas.decimals is not None:
        half = replace(half, time_us=np.round(half.time_us, formulas.decimals))
    named = {name: formula(half) for name, formula in metrics.items()}
    columns = {"aic_total_time": half.time_us * 1000, "total_cycles": half.cycles, **named}
    for tail in ("_exe_ratio", "_ratio"):
        parts = [named.get(f"{pipe}{tail}") for pipe in ("mte2", "vec", "mac")]
        if formulas.memory_bound and all(part is not None for part in parts):
            memory, vector, cube = (np.round(part, 3) for part in parts if part is not None)
            columns["memory_bound"] = share(memory, np.maximum(vector, cube))
            break
    if formulas.cube_utilization and "mac_ratio" in named:
        used = _cube_utilization(half.cycles, settings, frequency, lasted_us)
        columns["cube_utilization"] = np.where(np.round(named["mac_ratio"], 3) > 0, used, 0.0)
    return pl.DataFrame(columns)


def metric_set(name: str, events: tuple[int, ...], formulas: Formulas) -> dict[str, Formula]:
    """The metrics of a set; the counters of a custom list are given as they are, named after their events."""
    if name == "PipeUtilization" and 0x416 in events:
        name = "PipeUtilizationExct"
    return formulas.sets.get(name) or {f"r{event:x}": count_of(event) for event in events}


def _events(text: str) -> tuple[int, ...]:
    return tuple(int(found, 16) for found in _EVENT.findall(text))


def _whole(value: Any) -> int:
    try:
        return min(max(int(value), 0), 1 << 16)
    except (TypeError, ValueError):
        return 0
