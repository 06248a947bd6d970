# SPDX-License-Identifier: Apache-2.0
"""What hardware counters mean: the metrics of each `aic_metrics` set (docs/formats/cann.md 4.6), named as in `metric_names`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.formats.cann.device.frequency import Frequency
from stepscope.formats.cann.device.pmu import AIC, AIV, MIX_AIC, MIX_AIV, Counters
from stepscope.formats.cann.folder import Part

Values = npt.NDArray[np.float64]

_EVENT = re.compile(r"0[xX]([0-9a-fA-F]{1,8})")
_GIGABIT = 2.0**33  # bandwidths: bits to GB
# Chips with one kind of core: columns have no prefix, the total is rounded to 10 ns (docs/formats/cann.md 6).
_ONE_CORE_CHIPS = (7, 8, 11)


@dataclass(frozen=True)
class Half:
    """Counters of one kind of core for all kernels."""

    cycles: Values
    events: dict[int, Values]  # event -> count; an event that was not recorded counts 0
    time_us: Values
    rated_hz: float

    def count(self, event: int) -> Values:
        return self.events.get(event, np.zeros(len(self.cycles)))

    def ratio(self, *events: int) -> Values:
        """Share of the cycles, event by event as the vendor's tool adds them."""
        total = np.zeros(len(self.cycles))
        for event in events:
            total += _share(self.count(event), self.cycles)
        return total


Formula = Callable[[Half], Values]


def _share(part: Values, whole: Values) -> Values:
    return np.divide(part, whole, out=np.zeros(len(part)), where=whole != 0)


def _busy(name: str, *events: int) -> dict[str, Formula]:
    """Time and share of a pipe."""
    return {
        f"{name}_time": lambda half: half.time_us * half.ratio(*events) * 1000,
        f"{name}_ratio": lambda half: half.ratio(*events),
    }


def _ratio(*events: int) -> Formula:
    return lambda half: half.ratio(*events)


def _miss_rate(half: Half) -> Values:
    return _share(half.ratio(0x55), half.ratio(0x54))


def _bandwidth(event: int, size: float, scale: float) -> Formula:
    """GB/s at the rated frequency, which the vendor's tool takes here."""
    return lambda half: (
        _share(half.count(event) * size * scale, half.cycles / half.rated_hz) / _GIGABIT
        if half.rated_hz
        else (np.zeros(len(half.cycles)))
    )


def _operations(*weights: tuple[int, int]) -> Formula:
    def formula(half: Half) -> Values:
        total = np.zeros(len(half.cycles))
        for event, weight in weights:
            total += half.count(event) * weight
        return np.where(half.cycles != 0, total, 0.0)

    return formula


def _count(event: int) -> Formula:
    return lambda half: half.count(event)


def _kilobytes(scale: float, *events: int) -> Formula:
    return lambda half: sum((half.count(event) * scale for event in events), np.zeros(len(half.cycles)))


def _difference(scale: float, event: int, less: int) -> Formula:
    return lambda half: half.count(event) * scale - half.count(less) * scale


def _arithmetic(int32: int, misc: int) -> dict[str, Formula]:
    """Weights of two vector operations differ between chips."""
    return {
        "mac_fp16_ratio": _ratio(0x49),
        "mac_int8_ratio": _ratio(0x4A),
        "vec_fp32_ratio": _ratio(0x4B),
        "vec_fp16_ratio": _ratio(0x4C, 0x4D),
        "vec_int32_ratio": _ratio(0x4E),
        "vec_misc_ratio": _ratio(0x4F),
        "cube_fops": _operations((0x49, 8192), (0x4A, 16384)),
        "vector_fops": _operations((0x4C, 128), (0x4D, 64), (0x4B, 64), (0x4E, int32), (0x4F, misc)),
    }


# Metrics of each set without the prefix of the core, in the order of the vendor's database.
SETS: dict[str, dict[str, Formula]] = {
    "PipeUtilization": {
        **_busy("vec", 0x8), **_busy("mac", 0xA), **_busy("scalar", 0x9), **_busy("mte1", 0xB), **_busy("mte2", 0xC),
        **_busy("mte3", 0xD), "icache_miss_rate": _miss_rate,
    },
    "PipeUtilizationExct": {
        **_busy("mac", 0x416, 0x417), **_busy("scalar", 0x9), **_busy("mte1", 0x302), **_busy("mte2", 0xC),
        **_busy("fixpipe", 0x303), "icache_miss_rate": _miss_rate,
    },
    "PipelineExecuteUtilization": {
        **_busy("vec_exe", 0x12C), **_busy("mac_exe", 0x49, 0x4A), **_busy("scalar_exe", 0x9), **_busy("mte1_exe", 0x302),
        **_busy("mte2_exe", 0xC), **_busy("mte3_exe", 0xD), **_busy("fixpipe_exe", 0x303),
    },
    "ArithmeticUtilization": _arithmetic(64, 32),
    "Memory": {
        "ub_read_bw": _bandwidth(0x15, 256, 4), "ub_write_bw": _bandwidth(0x16, 256, 4), "l1_read_bw": _bandwidth(0x31, 256, 16),
        "l1_write_bw": _bandwidth(0x32, 128, 8), "main_mem_read_bw": _bandwidth(0x12, 8, 8),
        "main_mem_write_bw": _bandwidth(0x13, 8, 8), "l2_read_bw": _bandwidth(0xF, 256, 8), "l2_write_bw": _bandwidth(0x10, 256, 8),
    },
    "MemoryL0": {
        "l0a_read_bw": _bandwidth(0x1B, 256, 16), "l0a_write_bw": _bandwidth(0x1C, 256, 16),
        "l0b_read_bw": _bandwidth(0x21, 256, 16), "l0b_write_bw": _bandwidth(0x22, 256, 8),
        "l0c_read_bw": _bandwidth(0x27, 256, 8), "l0c_write_bw": _bandwidth(0x29, 256, 8),
        "l0c_read_bw_cube": _bandwidth(0x28, 256, 32), "l0c_write_bw_cube": _bandwidth(0x2A, 256, 32),
    },
    "MemoryUB": {
        "ub_read_bw_vector": _bandwidth(0x43, 128, 2), "ub_write_bw_vector": _bandwidth(0x44, 128, 2),
        "ub_read_bw_scalar": _bandwidth(0x37, 128, 1), "ub_write_bw_scalar": _bandwidth(0x38, 128, 1),
    },
    "ResourceConflictRatio": {
        "vec_bankgroup_cflt_ratio": _ratio(0x64), "vec_bank_cflt_ratio": _ratio(0x65), "vec_resc_cflt_ratio": _ratio(0x66),
    },
    "L2Cache": {
        "write_cache_hit": _count(0x500), "write_cache_miss_allocate": _count(0x502), "r0_read_cache_hit": _count(0x504),
        "r0_read_cache_miss_allocate": _count(0x506), "r1_read_cache_hit": _count(0x508),
        "r1_read_cache_miss_allocate": _count(0x50A),
    },
    "MemoryAccess": {
        "read_main_memory_datas": _kilobytes(1 / 8, 0x50D, 0x50E), "write_main_memory_datas": _kilobytes(1 / 8, 0x50C),
        "GM_to_L1_datas": _difference(1 / 4, 0x32, 0x206), "L0C_to_L1_datas": _kilobytes(1 / 8, 0x206),
        "L0C_to_GM_datas": _difference(1 / 8, 0x20C, 0x206), "GM_to_UB_datas": _kilobytes(1 / 8, 0x3E),
        "UB_to_GM_datas": _kilobytes(1 / 8, 0x3D),
    },
}  # fmt: skip
_ONE_CORE_SETS = {**SETS, "ArithmeticUtilization": _arithmetic(16, 16)}


@dataclass(frozen=True)
class Settings:
    """What was counted, and on which cores."""

    aic_metrics: str
    aiv_metrics: str
    aic_events: tuple[int, ...]  # meaning of the eight counters
    aiv_events: tuple[int, ...]
    aic_cores: int
    aiv_cores: int
    one_core: bool  # a chip with one kind of core

    @classmethod
    def of(cls, part: Part) -> Settings:
        aic = part.setting("ai_core_metrics", "ai_core_profiling_metrics")
        aic_events = _events(part.setting("ai_core_profiling_events"))
        return cls(
            aic_metrics=aic,
            aiv_metrics=part.setting("aiv_metrics", "aiv_profiling_metrics") or aic,
            aic_events=aic_events,
            aiv_events=_events(part.setting("aiv_profiling_events")) or aic_events,
            aic_cores=_whole(part.device_info.get("ai_core_num")),
            aiv_cores=_whole(part.device_info.get("aiv_num")),
            one_core=part.chip in _ONE_CORE_CHIPS,
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
    blocks = [kernels[name].fill_null(0).cast(pl.Int64).to_numpy() for name in ("block_num", "mix_block_num")]
    mhz = frequency.at(counters.rows["end_ticks"].gather(rows).to_numpy())
    cycles = counters.rows["cycles"].gather(rows).to_numpy().astype(np.float64)
    values = counters.values[rows]
    if settings.one_core:
        one = _half(
            cycles, values, settings.aic_events, blocks[0], settings.aic_cores, np.full(len(rows), frequency.rated_mhz), frequency
        )
        return _one_core_metrics(one, settings)
    core = counters.core[rows]
    other_cycles, other_values = _other_half(counters, rows, blocks[1])
    frames = {}
    aic = np.zeros(0)
    for prefix, kinds, metrics, events, cores in (
        ("aic", (AIC, MIX_AIC), settings.aic_metrics, settings.aic_events, settings.aic_cores),
        ("aiv", (AIV, MIX_AIV), settings.aiv_metrics, settings.aiv_events, settings.aiv_cores),
    ):
        main = np.isin(core, kinds)
        half = _half(
            np.where(main, cycles, other_cycles),
            np.where(main[:, None], values, other_values),
            events,
            np.where(main, blocks[0], blocks[1]),
            cores,
            mhz,
            frequency,
        )
        aic = half.cycles if prefix == "aic" else aic
        frames.update(_with_prefix(half, _set(metrics, events, SETS), prefix))
    if "aic_mac_ratio" in frames:
        # At the rated frequency of all cube cores over the task's time.
        possible = (
            frequency.rated_mhz * settings.aic_cores * kernels["duration_ns"].cast(pl.Float64).fill_null(0.0).to_numpy() / 1000
        )
        frames["cube_utilization"] = _share(aic, possible) * 100
    return pl.DataFrame(frames)


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


def _other_half(counters: Counters, rows: npt.NDArray[Any], most: npt.NDArray[Any]) -> tuple[Values, npt.NDArray[np.uint64]]:
    """Sums over the blocks of the other kind of core, at most `most` of a kernel; 0 where there are none."""
    first = np.searchsorted(counters.block_row, rows, "left")
    last = np.minimum(np.searchsorted(counters.block_row, rows, "right"), first + np.maximum(most, 0))
    cycles = _running(counters.block_cycles[:, None])
    values = _running(counters.block_values)
    return (cycles[last] - cycles[first])[:, 0].astype(np.float64), values[last] - values[first]


def _running(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    total = np.zeros((len(values) + 1, values.shape[1]), np.uint64)
    np.cumsum(values, axis=0, out=total[1:])
    return total


def _with_prefix(half: Half, metrics: dict[str, Formula], prefix: str) -> dict[str, Values]:
    named = {f"{prefix}_total_time": half.time_us * 1000, f"{prefix}_total_cycles": half.cycles}
    return named | {f"{prefix}_{name}": formula(half) for name, formula in metrics.items()}


def _one_core_metrics(half: Half, settings: Settings) -> pl.DataFrame:
    half = Half(half.cycles, half.events, np.round(half.time_us, 2), half.rated_hz)
    metrics = _set(settings.aic_metrics, settings.aic_events, _ONE_CORE_SETS)
    named = {name: formula(half) for name, formula in metrics.items()}
    columns = {"aic_total_time": half.time_us * 1000, "total_cycles": half.cycles, **named}
    for tail in ("_exe_ratio", "_ratio"):
        parts = [named.get(f"{pipe}{tail}") for pipe in ("mte2", "vec", "mac")]
        if all(part is not None for part in parts):
            memory, vector, cube = (np.round(part, 3) for part in parts if part is not None)
            columns["memory_bound"] = _share(memory, np.maximum(vector, cube))
            break
    return pl.DataFrame(columns)


def _set(name: str, events: tuple[int, ...], sets: dict[str, dict[str, Formula]]) -> dict[str, Formula]:
    """The metrics of a set; the counters of a custom list are given as they are, named after their events."""
    if name == "PipeUtilization" and 0x416 in events:
        name = "PipeUtilizationExct"
    return sets.get(name) or {f"r{event:x}": _count(event) for event in events}


def _events(text: str) -> tuple[int, ...]:
    return tuple(int(found, 16) for found in _EVENT.findall(text))


def _whole(value: Any) -> int:
    try:
        return min(max(int(value), 0), 1 << 16)
    except (TypeError, ValueError):
        return 0
