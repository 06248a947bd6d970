# SPDX-License-Identifier: Apache-2.0
"""What counters mean, set by set. A kernel of 1000 cycles at 1000 MHz on 10 blocks takes 0.1 us on 20 or 40 cores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from cann_device_folder import device_part, joined, lpm, pmu, stars

from stepscope.formats.ascend.metric_names import CSV_COLUMNS, to_canonical
from stepscope.formats.cann.device.side import DeviceSide, read_device
from stepscope.formats.cann.layouts import LPM_INFO, PMU, STARS

AIC, AIV, MIX_AIC, MIX_AIV = {"ffts": 0}, {"ffts": 1 << 13}, {"ffts": 4 << 13, "sub_type": 6}, {"ffts": 4 << 13, "sub_type": 7}
TIME_NS = 100.0


def _side(folder: Path, metrics: str, events: str, *records: dict[str, Any], chip: int = 5, more: Any = ()) -> DeviceSide:
    """One task (or sub task), ticks 1100 to 1150, with these PMU records."""
    sub = records[0]["ffts"] >> 13 == 4
    rows = stars((34, 46, 0, 1100), (35, 46, 0, 1150)) if sub else stars((0, 46, 0, 1100), (1, 46, 0, 1150))
    counters = pmu(*({"stream": 46, "task": 0, "start": 1101, "end": 1149, **record} for record in records))
    sample = {"ai_core_metrics": metrics, "aiv_metrics": metrics.removesuffix("Exct"), "ai_core_profiling_events": events}
    sample["aiv_profiling_events"] = PIPES if metrics.startswith("PipeUtil") else events
    return read_device(device_part(folder, (STARS, rows), (PMU, counters), *more, sample=sample, chip=chip), wide=True)


def _row(side: DeviceSide, block_num: int | None = 10, mix_block_num: int | None = 0) -> dict[str, float]:
    kernels = pl.DataFrame(
        {"pmu": [0], "block_num": [block_num], "mix_block_num": [mix_block_num], "duration_ns": [1000]},
        schema={"pmu": pl.Int64, "block_num": pl.Int64, "mix_block_num": pl.Int64, "duration_ns": pl.Int64},
    )
    (row,) = side.metrics(kernels).to_dicts()
    return row


PIPES = "0x8,0xa,0x9,0xb,0xc,0xd,0x54,0x55"
EXACT_PIPES = "0x416,0x417,0x9,0x302,0xc,0x303,0x54,0x55"
ARITHMETIC = "0x49,0x4a,0x4b,0x4c,0x4d,0x4e,0x4f"
ACCESS = "0x32,0x3d,0x3e,0x206,0x20c,0x50c,0x50d,0x50e"

# set, events, counters, metrics of the core without its prefix
SETS = [
    (
        "PipeUtilization", PIPES, [100, 200, 300, 400, 500, 600, 50, 5],
        {
            "vec_ratio": 0.1, "vec_time": 10.0, "mac_ratio": 0.2, "mac_time": 20.0, "scalar_ratio": 0.3, "scalar_time": 30.0,
            "mte1_ratio": 0.4, "mte1_time": 40.0, "mte2_ratio": 0.5, "mte2_time": 50.0, "mte3_ratio": 0.6, "mte3_time": 60.0,
            "icache_miss_rate": 0.1,
        },
    ),
    (
        "ArithmeticUtilization", ARITHMETIC, [1, 2, 3, 4, 5, 6, 7],
        {
            "mac_fp16_ratio": 0.001, "mac_int8_ratio": 0.002, "vec_fp32_ratio": 0.003, "vec_fp16_ratio": 0.009,
            "vec_int32_ratio": 0.006, "vec_misc_ratio": 0.007, "cube_fops": 8192 + 2 * 16384,
            "vector_fops": 4 * 128 + 5 * 64 + 3 * 64 + 6 * 64 + 7 * 32,
        },
    ),
    # Counts for which each bandwidth is a million GB/s: count * bits = 2^33 in a microsecond.
    (
        "Memory", "0x15,0x16,0x31,0x32,0xf,0x10,0x12,0x13", [2**23, 2**23, 2**21, 2**23, 2**22, 2**22, 2**27, 2**27],
        dict.fromkeys(
            ("ub_read_bw", "ub_write_bw", "l1_read_bw", "l1_write_bw", "l2_read_bw", "l2_write_bw", "main_mem_read_bw",
             "main_mem_write_bw"), 1e6,
        ),
    ),
    (
        "MemoryL0", "0x1b,0x1c,0x21,0x22,0x27,0x28,0x29,0x2a", [2**21, 2**21, 2**21, 2**22, 2**22, 2**20, 2**22, 2**20],
        dict.fromkeys(
            ("l0a_read_bw", "l0a_write_bw", "l0b_read_bw", "l0b_write_bw", "l0c_read_bw", "l0c_read_bw_cube", "l0c_write_bw",
             "l0c_write_bw_cube"), 1e6,
        ),
    ),
    (
        "MemoryUB", "0x10,0x13,0x37,0x38,0x3d,0x3e,0x43,0x44", [9, 9, 2**26, 2**27, 9, 9, 2**25, 2**24],
        {"ub_read_bw_scalar": 1e6, "ub_write_bw_scalar": 2e6, "ub_read_bw_vector": 1e6, "ub_write_bw_vector": 0.5e6},
    ),
    (
        "ResourceConflictRatio", "0x64,0x65,0x66", [10, 20, 30],
        {"vec_bankgroup_cflt_ratio": 0.01, "vec_bank_cflt_ratio": 0.02, "vec_resc_cflt_ratio": 0.03},
    ),
    (
        "L2Cache", "0x500,0x502,0x504,0x506,0x508,0x50a", [1, 2, 3, 4, 5, 6],
        {
            "write_cache_hit": 1, "write_cache_miss_allocate": 2, "r0_read_cache_hit": 3, "r0_read_cache_miss_allocate": 4,
            "r1_read_cache_hit": 5, "r1_read_cache_miss_allocate": 6,
        },
    ),
    (
        "MemoryAccess", ACCESS, [100, 16, 24, 40, 80, 32, 48, 56],
        {
            "read_main_memory_datas": 13, "write_main_memory_datas": 4, "GM_to_L1_datas": 15, "L0C_to_L1_datas": 5,
            "L0C_to_GM_datas": 5, "GM_to_UB_datas": 3, "UB_to_GM_datas": 2,
        },
    ),
    ("Custom:0x49,0x4F", "0x49,0x4F", [11, 12], {"r49": 11, "r4f": 12}),
]  # fmt: skip


@pytest.mark.parametrize("core", ["aic", "aiv"])
@pytest.mark.parametrize(("metrics", "events", "counters", "expected"), SETS, ids=[found[0] for found in SETS])
def test_sets(tmp_path: Path, core: str, metrics: str, events: str, counters: list[int], expected: dict[str, float]) -> None:
    eight = counters + [0] * (8 - len(counters))
    row = _row(_side(tmp_path, metrics, events, {**(AIC if core == "aic" else AIV), "cycles": 1000, "counters": eight}))
    other = "aiv" if core == "aic" else "aic"
    wanted = {f"{core}_{name}": value for name, value in expected.items()} | {f"{other}_{name}": 0 for name in expected}
    wanted |= {f"{core}_total_time": TIME_NS, f"{core}_total_cycles": 1000, f"{other}_total_time": 0, f"{other}_total_cycles": 0}
    if metrics == "PipeUtilization":  # 1000 cycles of 1000 per us on 20 cores in 1 us
        wanted["cube_utilization"] = 5.0 if core == "aic" else 0.0
    assert row == pytest.approx(wanted, rel=1e-12)


def test_pipes_of_the_cube_core(tmp_path: Path) -> None:
    counters = [100, 50, 300, 400, 500, 600, 50, 5]
    row = _row(_side(tmp_path, "PipeUtilizationExct", EXACT_PIPES, {**AIC, "cycles": 1000, "counters": counters}))
    cube = {name: value for name, value in row.items() if name.startswith("aic")}
    assert cube == pytest.approx(
        {
            "aic_total_time": 100, "aic_total_cycles": 1000, "aic_mac_time": 15, "aic_mac_ratio": 0.15, "aic_scalar_time": 30,
            "aic_scalar_ratio": 0.3, "aic_mte1_time": 40, "aic_mte1_ratio": 0.4, "aic_mte2_time": 50, "aic_mte2_ratio": 0.5,
            "aic_fixpipe_time": 60, "aic_fixpipe_ratio": 0.6, "aic_icache_miss_rate": 0.1,
        }
    )  # fmt: skip
    columns = [to_canonical(column)[0] for column in CSV_COLUMNS["PipeUtilization"]]
    assert set(columns) <= set(row)


@pytest.mark.parametrize("metrics", sorted(set(CSV_COLUMNS) - {"AiCoreNone", "PipeUtilization"}))
def test_every_column_of_the_csv_has_a_metric(tmp_path: Path, metrics: str) -> None:
    row = _row(_side(tmp_path, metrics, "", {**AIV, "cycles": 1000}))
    assert {to_canonical(column)[0] for column in CSV_COLUMNS[metrics]} <= set(row)


def test_exact_pipes_by_their_events(tmp_path: Path) -> None:
    """Some collectors name the set without its suffix."""
    row = _row(_side(tmp_path, "PipeUtilization", EXACT_PIPES, {**AIC, "cycles": 1000, "counters": [1] * 8}))
    assert row["aic_mac_ratio"] == pytest.approx(0.002)
    assert "aic_vec_ratio" not in row


@pytest.mark.parametrize(
    ("blocks", "time_ns"),
    [
        pytest.param(1, 1000, id="one"),
        pytest.param(20, 50, id="all-cores-once"),
        pytest.param(21, 1000 / 21 * 2, id="two-rounds"),
        pytest.param(0, 0, id="unknown-number"),
        pytest.param(None, 0, id="no-number"),
    ],
)
def test_total_time(tmp_path: Path, blocks: int | None, time_ns: float) -> None:
    row = _row(_side(tmp_path, "PipeUtilizationExct", EXACT_PIPES, {**AIC, "cycles": 1000}), blocks)
    assert row["aic_total_time"] == pytest.approx(time_ns)


def test_time_follows_the_frequency_and_bandwidth_does_not(tmp_path: Path) -> None:
    points = (LPM_INFO, lpm(0, (1120, 500)))
    counters = {**AIV, "cycles": 1000, "counters": [2**23, 0, 0, 0, 0, 0, 0, 0]}
    row = _row(_side(tmp_path, "Memory", "0x15", counters, more=[points]))
    assert row["aiv_total_time"] == pytest.approx(200)
    assert row["aiv_ub_read_bw"] == pytest.approx(1e6)


def _block(cycles: int, vector: bool, kind: dict[str, int], **fields: Any) -> dict[str, Any]:
    # In block records the byte at 20 names the core, and the upper bits of the next one the FFTS type.
    core = 7 << 1 | int(vector)
    return {"function": 41, **kind, "ffts": kind["ffts"] | core, "cycles": cycles, "counters": [cycles // 10] * 8, **fields}


@pytest.mark.parametrize(
    ("mix_blocks", "cycles"),
    [pytest.param(3, 700, id="all"), pytest.param(2, 300, id="at-most-the-mix-blocks"), pytest.param(0, 0, id="level-0")],
)
def test_vector_half_of_a_mix_kernel(tmp_path: Path, mix_blocks: int, cycles: int) -> None:
    side = _side(
        tmp_path, "PipeUtilizationExct", EXACT_PIPES, {**MIX_AIC, "cycles": 1000, "counters": [10] * 8},
        _block(100, True, MIX_AIC), _block(9999, False, MIX_AIC), _block(200, True, MIX_AIC), _block(400, True, MIX_AIC),
        _block(800, True, MIX_AIC, end=1151), _block(800, True, MIX_AIV),
    )  # fmt: skip
    row = _row(side, 10, mix_blocks)
    assert (row["aic_total_cycles"], row["aic_total_time"]) == pytest.approx((1000, 100))
    assert row["aiv_total_cycles"] == cycles
    assert row["aiv_vec_ratio"] == pytest.approx(0.1 if cycles else 0)
    assert row["aiv_total_time"] == pytest.approx(cycles / mix_blocks if mix_blocks else 0)


def test_cube_half_of_a_mix_kernel(tmp_path: Path) -> None:
    side = _side(
        tmp_path, "PipeUtilizationExct", EXACT_PIPES, {**MIX_AIV, "cycles": 1000, "counters": [10] * 8},
        _block(300, False, MIX_AIV), _block(9999, True, MIX_AIV),
    )  # fmt: skip
    row = _row(side, 10, 5)
    assert (row["aiv_total_cycles"], row["aiv_total_time"], row["aiv_vec_ratio"]) == pytest.approx((1000, 100, 0.01))
    assert (row["aic_total_cycles"], row["aic_total_time"], row["aic_mac_ratio"]) == pytest.approx((300, 60, 0.2))
    assert row["cube_utilization"] == pytest.approx(1.5)


def test_a_chip_with_one_kind_of_core(tmp_path: Path) -> None:
    """310B: names without prefix, the total rounded to 10 ns, memory_bound from ratios of three decimals."""
    events = "0x12c,0x49,0x4a,0x9,0x302,0xc,0xd,0x303"
    counters = {"ffts": 5 << 13, "cycles": 4883, "counters": [229, 0, 0, 3088, 4, 960, 178, 1]}
    side = _side(tmp_path, "PipelineExecuteUtilization", events, counters, chip=7, more=[(LPM_INFO, lpm(0, (1100, 1)))])
    row = _row(side, 1)
    assert row["aic_total_time"] == pytest.approx(4880)
    assert row["total_cycles"] == 4883
    assert row["scalar_exe_time"] == pytest.approx(4880 * 3088 / 4883)
    assert row["memory_bound"] == pytest.approx(0.197 / 0.047)
    assert [name for name in row if name.startswith(("aic_", "aiv_"))] == ["aic_total_time"]


def test_no_cycles_no_metrics(tmp_path: Path) -> None:
    row = _row(_side(tmp_path, "PipeUtilizationExct", EXACT_PIPES, {**AIC, "cycles": 0, "counters": [5] * 8}))
    assert set(row.values()) == {0.0}


def test_rows_follow_the_kernels(tmp_path: Path) -> None:
    rows = joined(stars((0, 46, 0, 1100), (1, 46, 0, 1150)), stars((0, 46, 1, 1200), (1, 46, 1, 1250), first=2))
    counters = pmu({"stream": 46, "task": 0, "end": 1120, "cycles": 7}, {"stream": 46, "task": 1, "end": 1220, "cycles": 8})
    side = read_device(device_part(tmp_path, (STARS, rows), (PMU, counters), sample={"ai_core_metrics": "L2Cache"}), wide=True)
    kernels = pl.DataFrame({"pmu": [1, 0, 1], "block_num": 1, "mix_block_num": None, "duration_ns": 1.0})
    assert side.metrics(kernels)["aic_total_cycles"].to_list() == [8, 7, 8]
