# SPDX-License-Identifier: Apache-2.0
"""What hardware counters mean: the metrics of each `aic_metrics` set, per generation of chips (docs/formats/cann.md 4.6, 6.10)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]

_GIGABIT = 2.0**33  # bandwidths: bits to GB


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
            total += share(self.count(event), self.cycles)
        return total


Formula = Callable[[Half], Values]


def share(part: Values, whole: Values) -> Values:
    return np.divide(part, whole, out=np.zeros(len(part)), where=whole != 0)


def _busy(name: str, *events: int) -> dict[str, Formula]:
    """Time and share of a pipe."""
    return {
        f"{name}_time": lambda half: half.time_us * half.ratio(*events) * 1000,
        f"{name}_ratio": lambda half: half.ratio(*events),
    }


def _ratio(*events: int) -> Formula:
    return lambda half: half.ratio(*events)


def _miss_rate(missed: int, asked: int) -> Formula:
    return lambda half: share(half.ratio(missed), half.ratio(asked))


def _bandwidth(event: int, size: float, scale: float, *others: tuple[int, float, float]) -> Formula:
    """GB/s at the rated frequency, which the vendor's tool takes here; further events are added with their own width."""

    def formula(half: Half) -> Values:
        if not half.rated_hz:
            return np.zeros(len(half.cycles))
        bits = [half.count(number) * width * lanes for number, width, lanes in ((event, size, scale), *others)]
        return share(sum(bits[1:], bits[0]), half.cycles / half.rated_hz) / _GIGABIT

    return formula


def _bandwidth_of_kernel(event: int, size: float, scale: float) -> Formula:
    """GB/s over the time of the kernel, not over the cycles of all its cores."""
    return lambda half: share(half.count(event) * size * scale, half.time_us / 1e6) / _GIGABIT


def _first_counted(*formulas: tuple[int, Formula]) -> Formula:
    """The formula of the first event that was counted: chips of one number count one thing by different events."""
    return lambda half: next((formula for event, formula in formulas if event in half.events), formulas[0][1])(half)


def _operations(*weights: tuple[int, int]) -> Formula:
    def formula(half: Half) -> Values:
        total = np.zeros(len(half.cycles))
        for event, weight in weights:
            total += half.count(event) * weight
        return np.where(half.cycles != 0, total, 0.0)

    return formula


def count_of(event: int) -> Formula:
    return lambda half: half.count(event)


def _kilobytes(scale: float, *events: int) -> Formula:
    return lambda half: sum((half.count(event) * scale for event in events), np.zeros(len(half.cycles)))


def _difference(scale: float, event: int, less: int) -> Formula:
    return lambda half: half.count(event) * scale - half.count(less) * scale


def _quotient(part: int, whole: int) -> Formula:
    return lambda half: share(half.count(part), half.count(whole))


def _arithmetic(int32: int, misc: int, fp32: int = 64) -> dict[str, Formula]:
    """Weights of vector operations differ between chips."""
    return {
        "mac_fp16_ratio": _ratio(0x49),
        "mac_int8_ratio": _ratio(0x4A),
        "vec_fp32_ratio": _ratio(0x4B),
        "vec_fp16_ratio": _ratio(0x4C, 0x4D),
        "vec_int32_ratio": _ratio(0x4E),
        "vec_misc_ratio": _ratio(0x4F),
        "cube_fops": _operations((0x49, 8192), (0x4A, 16384)),
        "vector_fops": _operations((0x4C, 128), (0x4D, 64), (0x4B, fp32), (0x4E, int32), (0x4F, misc)),
    }


# Metrics of each set without the prefix of the core, in the order of the vendor's database.
SETS: dict[str, dict[str, Formula]] = {
    "PipeUtilization": {
        **_busy("vec", 0x8), **_busy("mac", 0xA), **_busy("scalar", 0x9), **_busy("mte1", 0xB), **_busy("mte2", 0xC),
        **_busy("mte3", 0xD), "icache_miss_rate": _miss_rate(0x55, 0x54),
    },
    "PipeUtilizationExct": {
        **_busy("mac", 0x416, 0x417), **_busy("scalar", 0x9), **_busy("mte1", 0x302), **_busy("mte2", 0xC),
        **_busy("fixpipe", 0x303), "icache_miss_rate": _miss_rate(0x55, 0x54),
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
        "write_cache_hit": count_of(0x500), "write_cache_miss_allocate": count_of(0x502), "r0_read_cache_hit": count_of(0x504),
        "r0_read_cache_miss_allocate": count_of(0x506), "r1_read_cache_hit": count_of(0x508),
        "r1_read_cache_miss_allocate": count_of(0x50A),
    },
    "MemoryAccess": {
        "read_main_memory_datas": _kilobytes(1 / 8, 0x50D, 0x50E), "write_main_memory_datas": _kilobytes(1 / 8, 0x50C),
        "GM_to_L1_datas": _difference(1 / 4, 0x32, 0x206), "L0C_to_L1_datas": _kilobytes(1 / 8, 0x206),
        "L0C_to_GM_datas": _difference(1 / 8, 0x20C, 0x206), "GM_to_UB_datas": _kilobytes(1 / 8, 0x3E),
        "UB_to_GM_datas": _kilobytes(1 / 8, 0x3D),
    },
}  # fmt: skip
# Chips before A2: other widths of paths, and some bandwidths that only the 310 shows (docs/formats/cann.md 6.10).
_OLDER_SETS: dict[str, dict[str, Formula]] = {
    "PipeUtilization": SETS["PipeUtilization"],
    "ArithmeticUtilization": _arithmetic(64, 32),
    "Memory": {
        "ub_read_bw": _bandwidth(0x15, 256, 4), "ub_write_bw": _bandwidth(0x16, 256, 4), "l1_read_bw": _bandwidth(0x31, 256, 16),
        "l1_write_bw": _bandwidth(0x32, 256, 8), "main_mem_read_bw": _bandwidth(0x12, 8, 8),
        "main_mem_write_bw": _bandwidth(0x13, 8, 8),
    },
    "MemoryL0": {
        "l0a_read_bw": _bandwidth(0x1B, 256, 16), "l0a_write_bw": _bandwidth(0x1C, 256, 16),
        "l0b_read_bw": _bandwidth(0x21, 256, 8), "l0b_write_bw": _bandwidth(0x22, 256, 8),
        "l0c_read_bw": _bandwidth(0x27, 256, 8), "l0c_write_bw": _bandwidth(0x29, 256, 8),
        "l0c_read_bw_cube": _bandwidth(0x28, 256, 8), "l0c_write_bw_cube": _bandwidth(0x2A, 256, 8),
    },
    "MemoryUB": {
        "ub_read_bw_vector": _bandwidth(0x43, 128, 2), "ub_write_bw_vector": _bandwidth(0x44, 128, 2),
        "ub_read_bw_scalar": _bandwidth(0x37, 128, 1), "ub_write_bw_scalar": _bandwidth(0x38, 128, 1),
    },
    "ResourceConflictRatio": SETS["ResourceConflictRatio"],
}  # fmt: skip
# The vendor's tool takes other widths for the 310, and divides by the time of the kernel.
_310_SETS: dict[str, dict[str, Formula]] = {
    "PipeUtilization": SETS["PipeUtilization"],
    "ArithmeticUtilization": _arithmetic(64, 32, fp32=32),
    "Memory": {
        "ub_read_bw": _bandwidth_of_kernel(0x15, 256, 4), "ub_write_bw": _bandwidth_of_kernel(0x16, 256, 4),
        "l1_read_bw": _bandwidth_of_kernel(0x31, 256, 16), "l1_write_bw": _bandwidth_of_kernel(0x32, 128, 8),
        "l2_read_bw": _bandwidth_of_kernel(0xF, 256, 8), "l2_write_bw": _bandwidth_of_kernel(0x10, 256, 8),
        "main_mem_read_bw": _bandwidth_of_kernel(0x12, 256, 8), "main_mem_write_bw": _bandwidth_of_kernel(0x13, 256, 8),
    },
    "MemoryL0": {
        "l0a_read_bw": _bandwidth_of_kernel(0x1B, 256, 16), "l0a_write_bw": _bandwidth_of_kernel(0x1C, 256, 16),
        "l0b_read_bw": _bandwidth_of_kernel(0x21, 256, 16), "l0b_write_bw": _bandwidth_of_kernel(0x22, 256, 8),
        "l0c_read_bw": _bandwidth_of_kernel(0x27, 256, 8), "l0c_write_bw": _bandwidth_of_kernel(0x29, 256, 8),
        "l0c_read_bw_cube": _bandwidth_of_kernel(0x28, 256, 32), "l0c_write_bw_cube": _bandwidth_of_kernel(0x2A, 256, 32),
    },
    "MemoryUB": {
        "ub_read_bw_mte": _bandwidth_of_kernel(0x3D, 128, 8), "ub_write_bw_mte": _bandwidth_of_kernel(0x3E, 128, 8),
        "ub_read_bw_vector": _bandwidth_of_kernel(0x43, 256, 16), "ub_write_bw_vector": _bandwidth_of_kernel(0x44, 256, 8),
        "ub_read_bw_scalar": _bandwidth_of_kernel(0x37, 256, 32), "ub_write_bw_scalar": _bandwidth_of_kernel(0x38, 256, 32),
    },
    "ResourceConflictRatio": SETS["ResourceConflictRatio"],
}  # fmt: skip
_NEXT_SETS: dict[str, dict[str, Formula]] = {
    "PipeUtilization": {
        **_busy("vec", 0x501), **_busy("mac", 0x301), **_busy("scalar", 0x1), **_busy("mte1", 0x701), **_busy("mte2", 0x202),
        **_busy("mte3", 0x203), **_busy("fixpipe", 0x714), "icache_miss_rate": _miss_rate(0x35, 0x34),
    },
    "Memory": {
        "ub_read_bw": _bandwidth(0x56F, 256, 4, (0x571, 128, 2)), "ub_write_bw": _bandwidth(0x570, 256, 4, (0x572, 128, 2)),
        "l1_read_bw": _bandwidth(0x707, 256, 16), "l1_write_bw": _bandwidth(0x709, 256, 8),
        "main_mem_read_bw": _first_counted((0x422, _bandwidth(0x422, 8, 8)), (0x400, _bandwidth(0x400, 8, 8))),
        "main_mem_write_bw": _first_counted((0x423, _bandwidth(0x423, 8, 8)), (0x401, _bandwidth(0x401, 8, 8))),
    },
    "MemoryL0": {
        "l0a_read_bw": _bandwidth(0x304, 256, 16), "l0a_write_bw": _bandwidth(0x703, 256, 16),
        "l0b_read_bw": _bandwidth(0x306, 256, 8), "l0b_write_bw": _bandwidth(0x705, 256, 8),
        "l0c_read_bw": _bandwidth(0x712, 256, 8), "l0c_read_bw_cube": _bandwidth(0x30A, 256, 8),
        "l0c_write_bw_cube": _bandwidth(0x308, 256, 8),
    },
    "MemoryUB": {
        "ub_read_bw_mte": _bandwidth(0x204, 128, 1), "ub_write_bw_mte": _bandwidth(0x206, 128, 1),
        "ub_read_bw_vector": _bandwidth(0x571, 128, 2), "ub_write_bw_vector": _bandwidth(0x572, 128, 2),
        "ub_read_bw_scalar": _bandwidth(0x3, 128, 1), "ub_write_bw_scalar": _bandwidth(0x5, 128, 1),
        "fixp2ub_write_bw": _bandwidth(0x70C, 256, 8),
    },
    "ArithmeticUtilization": {
        "mac_fp16_ratio": _ratio(0x323), "mac_int8_ratio": _ratio(0x324), "cube_fops": _operations((0x323, 8192), (0x324, 16384)),
    },
    "ResourceConflictRatio": {"vec_bank_cflt_ratio": _ratio(0x540, 0x556), "vec_resc_cflt_ratio": _quotient(0x528, 0x502)},
    "L2Cache": {
        "read_local_l2_hit": count_of(0x424), "read_local_l2_miss": count_of(0x425), "read_local_l2_victim": count_of(0x426),
        "write_local_l2_hit": count_of(0x42A), "write_local_l2_miss": count_of(0x42B), "write_local_l2_victim": count_of(0x42C),
    },
}  # fmt: skip


@dataclass(frozen=True)
class Formulas:
    """How the counters of a generation of chips become metrics."""

    sets: dict[str, dict[str, Formula]]
    decimals: int | None = None  # of the total time in microseconds; None: not rounded
    by_span: bool = False  # the total time is the core's own span, not its cycles
    memory_bound: bool = False
    cube_utilization: bool = False  # also on chips with one kind of core
    hidden: tuple[str, ...] = ()  # prefixed metrics that this generation's files do not have


FORMULAS = {
    "two_cores": Formulas(SETS, cube_utilization=True),
    "310b": Formulas({**SETS, "ArithmeticUtilization": _arithmetic(16, 16)}, decimals=2, memory_bound=True),
    "hwts": Formulas(_OLDER_SETS, decimals=2, memory_bound=True, cube_utilization=True),
    "vector_hwts": Formulas(
        {**_OLDER_SETS, "ArithmeticUtilization": _arithmetic(16, 16)}, decimals=2, memory_bound=True, cube_utilization=True
    ),
    "310": Formulas(_310_SETS, memory_bound=True, cube_utilization=True),
    "next": Formulas(
        _NEXT_SETS, decimals=2, by_span=True, cube_utilization=True,
        hidden=(
            *(f"aic_vec_{kind}" for kind in ("time", "ratio")),
            *(f"aiv_{pipe}_{kind}" for pipe in ("mac", "mte1", "fixpipe") for kind in ("time", "ratio")),
            "aic_ub_read_bw", "aic_ub_write_bw", "aiv_l1_read_bw", "aiv_l1_write_bw", "aic_l0c_read_bw", "aiv_l0a_read_bw",
            "aiv_l0a_write_bw", "aiv_l0b_read_bw", "aiv_l0b_write_bw", "aiv_l0c_read_bw_cube", "aiv_l0c_write_bw_cube",
            "aic_ub_read_bw_mte", "aic_ub_write_bw_mte", "aic_ub_read_bw_vector", "aic_ub_write_bw_vector", "aiv_mac_fp16_ratio",
            "aiv_mac_int8_ratio", "aiv_cube_fops", "aic_vec_bank_cflt_ratio", "aic_vec_resc_cflt_ratio",
        ),
    ),
}  # fmt: skip
