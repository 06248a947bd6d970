# SPDX-License-Identifier: Apache-2.0
"""Tasks and counters of chips before and after A2, from hand-made records (docs/formats/cann.md 6.7 to 6.10)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from cann_device_folder import device_part, filled, flips, joined, ns

from stepscope.formats.cann.device.side import DeviceSide, read_device
from stepscope.formats.cann.layouts import (
    AICORE,
    EVENT_COUNTER,
    HWTS,
    HWTS_BLOCK,
    PMU_128,
    STARS_32,
    STARS_BLOCK,
    STARS_MAGIC,
    TIMELINE,
    TS_TRACK,
    TS_TRACK_NEXT,
)

START, END = 0, 1
PIPES = {"ai_core_metrics": "PipeUtilization", "ai_core_profiling_events": "0x8,0xa,0x9,0xb,0xc,0xd,0x54,0x55"}
TEN = {"ai_core_metrics": "PipeUtilization", "ai_core_profiling_events": "0x501,0x301,0x1,0x701,0x202,0x203,0x34,0x35,0x714"}


def hwts(*records: tuple[int, int, int, int], sqe: int = 0) -> npt.NDArray[Any]:
    """(kind, stream, task, counter)."""
    return filled(
        HWTS,
        (
            {"head": kind | number % 16 << 4, "type": sqe, "magic": STARS_MAGIC, "stream": s, "task": t, "counter": c}
            for number, (kind, s, t, c) in enumerate(records)
        ),
    )


def aicore(*records: tuple[int, int, int, list[int]]) -> npt.NDArray[Any]:
    """(stream, task, cycles, counters)."""
    return filled(
        AICORE,
        (
            {"head": 5 | number % 16 << 4, "magic": STARS_MAGIC, "stream": s, "task": t, "cycles": c, "counters": values}
            for number, (s, t, c, values) in enumerate(records)
        ),
    )


def states(*records: tuple[int, int, int, int, int]) -> npt.NDArray[Any]:
    """`ts_track` kind 12: (stream, task, type, state, counter)."""
    rows = filled(TS_TRACK, ({"mode": 1, "kind": 12, "stream": s, "task": t, "counter": c} for s, t, _, _, c in records))
    for number, (_, _, kind, state, _) in enumerate(records):
        rows["task_type"][number], rows["status"][number] = kind, state
    return rows


def runs(side: DeviceSide) -> list[tuple[Any, ...]]:
    return side.tasks.select("stream", "task_id", "batch_id", "start_ns", "end_ns", pl.col("device_type").cast(pl.String)).rows()


def losses(side: DeviceSide) -> list[tuple[str, str, int, str]]:
    return side.quality.select("source", pl.col("issue").cast(pl.String), "count", "detail").rows()


def metrics(side: DeviceSide, blocks: int = 8) -> list[dict[str, float]]:
    kernels = side.tasks.filter(pl.col("pmu").is_not_null()).select(
        "pmu", pl.lit(blocks).alias("block_num"), pl.lit(0).alias("mix_block_num"), pl.lit(10_000.0).alias("duration_ns")
    )
    return side.metrics(kernels).to_dicts()


def test_hwts_tasks_have_plain_numbers_and_batches(tmp_path: Path):
    rows = hwts((START, 7, 1, 1100), (END, 7, 1, 1200), (START, 7, 1, 1400), (END, 7, 1, 1450))
    side = read_device(device_part(tmp_path, (HWTS, rows), (TS_TRACK, flips((7, 1300, 1, 0))), chip=1), True)
    assert runs(side) == [(7, 1, 0, ns(1100), ns(1200), "Other"), (7, 1, 1, ns(1400), ns(1450), "Other")]
    assert losses(side) == []


def test_types_are_named_where_records_say_them(tmp_path: Path):
    rows = hwts((START, 7, 1, 1100), (END, 7, 1, 1200), sqe=9)
    assert runs(read_device(device_part(tmp_path, (HWTS, rows), chip=4), True))[0][-1] == "SDMA_SQE"


def test_unknown_kinds_are_counted_by_number_and_size(tmp_path: Path):
    rows = hwts((START, 7, 1, 1100), (2, 7, 1, 1150), (6, 7, 1, 1160))
    assert losses(read_device(device_part(tmp_path, (HWTS, rows), chip=1), True)) == [
        ("hwts.data", "unknown-kind", 1, "kind 6, 64 B each"),
        ("hwts.data", "start-without-end", 1, "device tasks"),
        ("hwts.data", "start-without-end", 1, "blocks"),
    ]


def test_blocks_of_hwts_chips(tmp_path: Path):
    """Kind 4 follows its block by the order; it has no time."""
    rows = hwts(
        (START, 7, 1, 1100), (2, 7, 1, 1110), (2, 7, 1, 1120), (3, 7, 1, 1150), (3, 7, 1, 1180), (4, 7, 1, 0), (END, 7, 1, 1200)
    )
    rows["type"], rows["block"] = [0, 3, 4, 3, 4, 4, 0], [0, 8, 9, 8, 9, 9, 0]
    rows.view(HWTS_BLOCK.dtype)["cycles"][5] = 777
    side = read_device(device_part(tmp_path, (HWTS, rows), chip=1), True)
    shown = side.parts.select("kind", "type", "stream", "task_id", "start_ns", "end_ns", "core_id", "block_id", "cycles").rows()
    assert shown == [
        ("block", "AIC", 7, 1, ns(1110), ns(1150), 3, 8, None),
        ("block", "AIC", 7, 1, ns(1120), ns(1180), 4, 9, 777),
    ]
    assert losses(side) == []


def test_ai_cpu_tasks_of_the_910a_come_from_their_states(tmp_path: Path):
    track = states((7, 2, 1, 0, 1300), (7, 2, 1, 1, 1310), (7, 2, 1, 2, 1390), (7, 3, 5, 1, 1500), (7, 3, 5, 2, 1600))
    rows = hwts((START, 7, 1, 1100), (END, 7, 1, 1200))
    side = read_device(device_part(tmp_path, (HWTS, rows), (TS_TRACK, track), chip=1), True)
    assert runs(side) == [(7, 1, 0, ns(1100), ns(1200), "Other"), (7, 2, 0, ns(1310), ns(1390), "AI_CPU")]


def test_states_of_the_310p_stand_in_for_queued_tasks_without_a_record(tmp_path: Path):
    track = states(
        (7, 1, 13, 0, 1000), (7, 1, 13, 2, 1900), (7, 2, 13, 0, 1300), (7, 2, 13, 2, 1390), (7, 4, 13, 0, 1), (7, 4, 13, 2, 2)
    )
    rows = hwts((START, 7, 1, 1100), (END, 7, 1, 1200))
    queued = pl.DataFrame(
        {"stream": [7, 7], "task_id": [1, 2], "batch_id": [0, 0], "is_operator": [True, False], "core": ["AI_CORE", None]}
    )
    side = read_device(device_part(tmp_path, (HWTS, rows), (TS_TRACK, track), chip=4), True, queued)
    assert runs(side) == [(7, 1, 0, ns(1100), ns(1200), "AI_CORE"), (7, 2, 0, ns(1300), ns(1390), "MODEL_EXECUTE")]


def test_counters_belong_to_runs_in_their_order(tmp_path: Path):
    rows = hwts(
        (START, 7, 1, 1100), (END, 7, 1, 1200), (START, 7, 1, 1400), (END, 7, 1, 1450), (START, 7, 2, 1500), (END, 7, 2, 1600)
    )
    counters = aicore((7, 1, 100, [1] * 8), (7, 2, 300, [3] * 8), (7, 1, 200, [2] * 8), (7, 9, 5, [0] * 8))
    side = read_device(device_part(tmp_path, (HWTS, rows), (AICORE, counters), chip=1), True)
    assert side.pmu.select("task", "cycles").rows() == [(0, 100), (1, 200), (2, 300)]
    assert side.counters.values[:, 0].tolist() == [1, 2, 3]
    assert losses(side) == [("aicore.data", "unmatched-counters", 1, "of tasks")]


def test_runs_that_are_not_on_an_ai_core_have_no_counters(tmp_path: Path):
    """One number, first used by a copy: the record belongs to the kernel after it."""
    rows = hwts((START, 7, 1, 1100), (END, 7, 1, 1200), (START, 7, 1, 1400), (END, 7, 1, 1450))
    queued = pl.DataFrame(
        {"stream": [7, 7], "task_id": [1, 1], "batch_id": [0, 1], "is_operator": [False, True], "core": [None, "AI_CORE"]}
    )
    tables = ((HWTS, rows), (AICORE, aicore((7, 1, 100, [1] * 8))), (TS_TRACK, flips((7, 1300, 1, 0))))
    side = read_device(device_part(tmp_path, *tables, chip=1), True, queued)
    assert side.tasks["pmu"].to_list() == [None, 0]


def test_metrics_of_hwts_chips(tmp_path: Path):
    rows = hwts((START, 7, 1, 1100), (END, 7, 1, 1200))
    counters = aicore((7, 1, 158_246, [14_400, 0, 13_665, 0, 96_009, 47_213, 2654, 40]))
    part = device_part(tmp_path, (HWTS, rows), (AICORE, counters), sample=PIPES, chip=1)
    [found] = metrics(read_device(part, True))
    # 158,246 cycles of 8 blocks at 1000 MHz are 19.78 us, rounded to 10 ns; pipes are shares of the rounded time.
    assert found["aic_total_time"] == pytest.approx(19_780)
    assert found["mte2_time"] == pytest.approx(19_780 * 96_009 / 158_246)
    assert found["memory_bound"] == pytest.approx(0.607 / 0.091)
    assert list(found)[-2:] == ["memory_bound", "cube_utilization"]
    assert found["cube_utilization"] == 0  # nothing ran on the cube


def timeline(*records: tuple[int, int, int, int], kind: int = 0) -> npt.NDArray[Any]:
    """(state, stream, task, counter)."""
    return filled(
        TIMELINE,
        (
            {"mode": 1, "kind": 3, "size": 32, "task_type": kind, "state": state, "stream": s, "task": t, "counter": c}
            for state, s, t, c in records
        ),
    )


def test_states_of_the_310_become_runs(tmp_path: Path):
    rows = timeline(
        (1, 7, 1, 1050), (2, 7, 1, 1090), (2, 7, 1, 1100), (3, 7, 1, 1200), (4, 7, 1, 1300), (3, 7, 1, 1350), (3, 7, 2, 1400),
        (2, 7, 3, 1500), (5, 7, 3, 1600),
    )  # fmt: skip
    side = read_device(device_part(tmp_path, (TIMELINE, rows), chip=0), True)
    assert runs(side) == [(7, 1, 0, ns(1100), ns(1200), "AI_CORE"), (7, 1, 0, ns(1300), ns(1350), "AI_CORE")]
    found = side.tasks.select("waiting_ns", "running_ns", "pending_ns", pl.col("scheduled_type").cast(pl.String)).rows()
    assert found == [(1000.0, 2000.0, 0.0, "kernel AI core task"), (0.0, 0.0, 1000.0, "kernel AI core task")]
    assert losses(side) == [
        ("ts_track.data", "unknown-kind", 1, "state 5 of a task"),
        ("ts_track.data", "end-without-start", 1, "device tasks"),
        ("ts_track.data", "start-without-end", 1, "device tasks"),
    ]


def test_records_of_different_sizes_lie_in_one_file(tmp_path: Path):
    device_part(tmp_path, chip=0)
    data = tmp_path / "PROF_1" / "device_0" / "data"
    first, second = timeline((2, 7, 1, 1100)), timeline((3, 7, 1, 1200))
    trace = bytes([1, 10, 40, 0]) + bytes(36)
    strange = bytes([1, 99, 48, 0]) + bytes(44)
    (data / "ts_track.data.0.slice_0").write_bytes(
        first.tobytes() + trace + strange + second.tobytes() + bytes([1, 3, 32, 0, 0, 0])
    )
    from stepscope.formats.cann.folder import open_prof

    side = read_device(open_prof(tmp_path / "PROF_1").devices[0], True)
    assert [row[:2] for row in runs(side)] == [(7, 1)]
    assert losses(side) == [
        ("ts_track.data.0", "truncated-record", 1, "at the end: 6 B left"),
        ("ts_track.data", "unknown-kind", 1, "kind 99, 48 B each"),
    ]


def test_counters_of_the_310_carry_their_blocks(tmp_path: Path):
    counters = filled(
        EVENT_COUNTER,
        [{"mode": 1, "kind": 4, "size": 112, "stream": 7, "task": 1, "cycles": 158_246, "counters": [1] * 8, "block_num": 8}],
    )
    tables = ((TIMELINE, timeline((2, 7, 1, 1100), (3, 7, 1, 1200))), (EVENT_COUNTER, counters))
    [found] = metrics(read_device(device_part(tmp_path, *tables, sample=PIPES, chip=0), True), blocks=0)
    assert found["aic_total_time"] == pytest.approx(158_246 / 8)  # ns at 1000 MHz, not rounded


def stars_32(*records: tuple[int, int, int], sqe: int = 0) -> npt.NDArray[Any]:
    """(function, task, counter)."""
    return filled(
        STARS_32,
        (
            {"head": function | number % 16 << 6 | sqe << 10, "magic": STARS_MAGIC, "task": task, "counter": counter}
            for number, (function, task, counter) in enumerate(records)
        ),
    )


def pmu_128(*records: dict[str, Any]) -> npt.NDArray[Any]:
    head = [{"head": 42 | number % 16 << 6, "magic": STARS_MAGIC} for number in range(len(records))]
    return filled(PMU_128, ({**first, **record} for first, record in zip(head, records, strict=True)))


QUEUED = pl.DataFrame(
    {"stream": [5, 6], "task_id": [70_000, 70_000], "batch_id": [0, 0], "is_operator": [True, True], "core": ["MIX_AIC"] * 2}
)


def test_streams_of_the_950_are_the_hosts(tmp_path: Path):
    rows = stars_32((START, 70_000, 1100), (END, 70_000, 1200), (START, 9, 1300), (END, 9, 1400), sqe=5)
    side = read_device(device_part(tmp_path, (STARS_32, rows), chip=15), True, QUEUED)
    assert runs(side) == [
        (5, 70_000, 0, ns(1100), ns(1200), "AICPU_D"),
        (65_535, 9, 0, ns(1300), ns(1400), "AICPU_D"),
    ]


def block_numbers(*records: tuple[int, int, int, int]) -> npt.NDArray[Any]:
    """`ts_track` kind 15: (stream, task, blocks with the factor of the other core above them, counter)."""
    return filled(TS_TRACK, ({"mode": 1, "kind": 15, "stream": s, "task": t, "blocks": n, "counter": c} for s, t, n, c in records))


@pytest.mark.parametrize("chip", [1, 5])
def test_sizes_that_the_device_chose_have_batches(tmp_path: Path, chip: int):
    records = joined(block_numbers((7, 1, 20, 1100), (7, 1, 2 << 16 | 8, 1110), (7, 1, 6, 1400)), flips((7, 1300, 1, 0)))
    side = read_device(device_part(tmp_path, (TS_TRACK, records), chip=chip), True)
    assert side.track.blocks.rows() == [(7, 1, 0, 8, 16), (7, 1, 1, 6, 0)]
    assert losses(side) == []


def test_sizes_that_the_950_chose_have_no_stream(tmp_path: Path):
    records = filled(TS_TRACK_NEXT, [{"mode": 1, "kind": 15, "task": 70_000, "blocks": 1 << 16 | 8, "counter": 1100}])
    side = read_device(device_part(tmp_path, (TS_TRACK_NEXT, records), chip=15), True)
    assert side.track.blocks.rows() == [(None, 70_000, 0, 8, 8)]


@pytest.mark.parametrize(
    ("chip", "driver", "in_order"), [(0, 467_992, True), (1, 467_992, False), (1, 467_472, True), (15, 1, False)]
)
def test_runs_are_joined_in_order_where_rounds_are_not_told_apart(tmp_path: Path, chip: int, driver: int, in_order: bool):
    part = device_part(tmp_path, (TS_TRACK, flips((7, 1300, 1, 0))), chip=chip)
    side = read_device(replace(part, info={**part.info, "drvVersion": driver}), True)
    assert side.in_order is in_order
    assert len(side.track.flips.time) == (0 if in_order or chip == 15 else 1)


# Counters of one kernel of 8 blocks: 1000 cycles at 1000 MHz are 1 us of all cores, and 125 ns of the kernel.
ONE_KERNEL = [2**23] * 8
LISTS = {
    "Memory": ("0x15,0x16,0x31,0x32,0xf,0x10,0x12,0x13",
               [("ub_read_bw", 1024), ("ub_write_bw", 1024), ("l1_read_bw", 4096), ("l1_write_bw", 1024), ("l2_read_bw", 2048),
                ("l2_write_bw", 2048), ("main_mem_read_bw", 2048), ("main_mem_write_bw", 2048)]),
    "MemoryL0": ("0x1b,0x1c,0x21,0x22,0x27,0x28,0x29,0x2a",
                 [("l0a_read_bw", 4096), ("l0a_write_bw", 4096), ("l0b_read_bw", 4096), ("l0b_write_bw", 2048),
                  ("l0c_read_bw", 2048), ("l0c_write_bw", 2048), ("l0c_read_bw_cube", 8192), ("l0c_write_bw_cube", 8192)]),
    "MemoryUB": ("0x10,0x13,0x37,0x38,0x3d,0x3e,0x43,0x44",
                 [("ub_read_bw_mte", 1024), ("ub_write_bw_mte", 1024), ("ub_read_bw_vector", 4096), ("ub_write_bw_vector", 2048),
                  ("ub_read_bw_scalar", 8192), ("ub_write_bw_scalar", 8192)]),
}  # fmt: skip


@pytest.mark.parametrize("name", LISTS)
def test_bandwidths_of_the_310_are_those_of_the_kernel(tmp_path: Path, name: str):
    events, widths = LISTS[name]
    counters = filled(
        EVENT_COUNTER,
        [{"mode": 1, "kind": 4, "size": 112, "stream": 7, "task": 1, "cycles": 1000, "counters": ONE_KERNEL, "block_num": 8}],
    )
    tables = ((TIMELINE, timeline((2, 7, 1, 1100), (3, 7, 1, 1200))), (EVENT_COUNTER, counters))
    sample = {"ai_core_metrics": name, "ai_core_profiling_events": events}
    [found] = metrics(read_device(device_part(tmp_path, *tables, sample=sample, chip=0), True))
    expected = {column: 2**23 * bits / 125e-9 / 2**33 for column, bits in widths}
    assert list(found)[2:] == list(expected)
    assert {column: found[column] for column in expected} == pytest.approx(expected)


def test_operations_of_the_310(tmp_path: Path):
    counters = filled(
        EVENT_COUNTER,
        [{"mode": 1, "kind": 4, "size": 112, "stream": 7, "task": 1, "cycles": 9, "counters": [1] * 8, "block_num": 8}],
    )
    sample = {"ai_core_metrics": "ArithmeticUtilization", "ai_core_profiling_events": "0x49,0x4a,0x4b,0x4c,0x4d,0x4e,0x4f"}
    tables = ((TIMELINE, timeline((2, 7, 1, 1100), (3, 7, 1, 1200))), (EVENT_COUNTER, counters))
    [found] = metrics(read_device(device_part(tmp_path, *tables, sample=sample, chip=0), True))
    assert found["vector_fops"] == 32 + 128 + 64 + 64 + 32


SCALAR = "ub_read_bw_scalar ub_write_bw_scalar fixp2ub_write_bw"
CACHE = " ".join(f"{way}_local_l2_{what}" for way in ("read", "write") for what in ("hit", "miss", "victim"))
# Columns of the cube and of the vector cores in the vendor's order.
COLUMNS_OF_950 = {
    "Memory": ("0x422,0x423,0x56f,0x571,0x570,0x572,0x707,0x709",
               "l1_read_bw l1_write_bw main_mem_read_bw main_mem_write_bw",
               "ub_read_bw ub_write_bw main_mem_read_bw main_mem_write_bw"),
    "MemoryL0": ("0x304,0x703,0x306,0x705,0x712,0x30a,0x308",
                 "l0a_read_bw l0a_write_bw l0b_read_bw l0b_write_bw l0c_read_bw_cube l0c_write_bw_cube", "l0c_read_bw"),
    "MemoryUB": ("0x3,0x5,0x70c,0x206,0x204,0x571,0x572", SCALAR,
                 f"ub_read_bw_mte ub_write_bw_mte ub_read_bw_vector ub_write_bw_vector {SCALAR}"),
    "ArithmeticUtilization": ("0x323,0x324", "mac_fp16_ratio mac_int8_ratio cube_fops", ""),
    "ResourceConflictRatio": ("0x540,0x556,0x502,0x528", "", "vec_bank_cflt_ratio vec_resc_cflt_ratio"),
    "L2Cache": ("0x424,0x425,0x426,0x42a,0x42b,0x42c",
                CACHE, CACHE),
}  # fmt: skip


@pytest.mark.parametrize("name", COLUMNS_OF_950)
def test_columns_of_the_950(tmp_path: Path, name: str):
    events, cube, vector = COLUMNS_OF_950[name]
    rows = stars_32((START, 1, 1100), (END, 1, 1600))
    counters = pmu_128({"task": 1, "flags": 1, "core": 1, "cycles": 1000, "counters": [5] * 10, "start": 1110, "end": 1510})
    sample = {"ai_core_metrics": name, "ai_core_profiling_events": events}
    [found] = metrics(read_device(device_part(tmp_path, (STARS_32, rows), (PMU_128, counters), sample=sample, chip=15), True))
    assert [column.removeprefix("aic_") for column in found if column.startswith("aic_")][2:] == cube.split()
    assert [column.removeprefix("aiv_") for column in found if column.startswith("aiv_")][2:] == vector.split()


def test_a_second_record_of_a_kernel_that_is_not_mixed_is_not_its_other_half(tmp_path: Path):
    rows = stars_32((START, 1, 1100), (END, 1, 1600))
    counters = pmu_128(
        {"task": 1, "flags": 1, "core": 0, "cycles": 1000, "counters": [0] * 10, "start": 1110, "end": 1510},
        {"task": 1, "flags": 0, "core": 1, "cycles": 400, "counters": [100, *[0] * 9], "start": 1120, "end": 1320},
    )
    [found] = metrics(read_device(device_part(tmp_path, (STARS_32, rows), (PMU_128, counters), sample=TEN, chip=15), True))
    assert (found["aiv_total_time"], found["aiv_total_cycles"]) == (0.0, 0.0)


def test_both_halves_of_a_mix_kernel_on_the_950(tmp_path: Path):
    rows = stars_32((START, 70_000, 1100), (END, 70_000, 1600))
    counters = pmu_128(
        {"task": 70_000, "flags": 3, "core": 0, "cycles": 1000, "counters": [0, 500, *[0] * 8], "start": 1110, "end": 1510},
        {"task": 70_000, "flags": 2, "core": 1, "cycles": 400, "counters": [100, *[0] * 9], "start": 1120, "end": 1320},
        {"task": 70_000, "flags": 5, "core": 0, "cycles": 7, "counters": [0] * 10},
        {"task": 1, "flags": 1, "cycles": 7, "counters": [0] * 10},
    )
    side = read_device(device_part(tmp_path, (STARS_32, rows), (PMU_128, counters), sample=TEN, chip=15), True, QUEUED)
    [found] = metrics(side)
    # 400 and 200 ticks of 20 ns, whatever the cycles say.
    assert (found["aic_total_time"], found["aiv_total_time"]) == (8000.0, 4000.0)
    assert (found["aic_mac_ratio"], found["aiv_vec_ratio"]) == (0.5, 0.25)
    assert (found["aic_total_cycles"], found["aiv_total_cycles"]) == (1000.0, 400.0)
    assert "aic_vec_ratio" not in found
    assert [row for row in losses(side) if row[0] == "ffts_profile.data"] == [
        ("ffts_profile.data", "superseded-counters", 1, "overflowed"),
        ("ffts_profile.data", "unmatched-counters", 1, "of tasks"),
    ]


def test_sub_tasks_of_fusions_on_the_950(tmp_path: Path):
    """Two run at once: what they run on tells their ends apart. The highest bit of the mask says what that is."""
    rows = stars_32(
        (START, 70_000, 1100), (22, 70_000, 1110), (22, 70_000, 1120), (23, 70_000, 1130), (23, 70_000, 1150), (END, 70_000, 1200),
        (22, 70_000, 1300), (60, 1, 1310), sqe=2,
    )  # fmt: skip
    rows["fusion"] = [0, 1 << 1, 5 << 5 | 1 << 4, 1 << 1, 5 << 5 | 1 << 4, 0, 1, 0]
    rows["accelerator"] = [0, 3, 4, 3, 4, 0, 0, 0]
    side = read_device(device_part(tmp_path, (STARS_32, rows), chip=15), True, QUEUED)
    columns = ("kind", "type", "stream", "task_id", "start_ns", "end_ns", "accelerator", "mission", "die")
    assert side.parts.select(columns).rows() == [
        ("fusion", "AICPU", 5, 70_000, ns(1110), ns(1130), 3, 0, None),
        ("fusion", "CCU", 5, 70_000, ns(1120), ns(1150), 4, 5, 1),
    ]
    assert losses(side) == [
        ("stars_soc.data", "unknown-kind", 1, "function 60, 32 B each"),
        ("stars_soc.data", "start-without-end", 1, "sub tasks of fusions"),
    ]


def test_blocks_of_the_950(tmp_path: Path):
    log = filled(
        STARS_BLOCK,
        (
            {
                "head": function | number % 16 << 6,
                "magic": STARS_MAGIC,
                "task": 1,
                "counter": at,
                "core": core,
                "core_id": on,
                "block": n,
            }
            for number, (function, core, on, n, at) in enumerate(
                [(36, 0, 2, 0, 1110), (36, 1, 2, 0, 1112), (37, 1, 2, 0, 1140), (37, 0, 2, 0, 1150), (37, 0, 9, 9, 1160)]
            )
        ),
    )
    counters = pmu_128(
        {"task": 1, "flags": 1, "counters": [0] * 10},
        {"task": 1, "core": 1, "core_id": 7, "block": 3, "cycles": 55, "counters": [0] * 10, "start": 1111, "end": 1140},
        {"task": 1, "start": 1190, "end": 1180, "counters": [0] * 10},
    )
    counters["head"] = [42, 41 | 1 << 6, 41 | 2 << 6]
    tables = ((STARS_32, stars_32((START, 1, 1100), (END, 1, 1200))), (STARS_BLOCK, log), (PMU_128, counters))
    side = read_device(device_part(tmp_path, *tables, chip=15), True)
    shown = side.parts.select("kind", "type", "stream", "start_ns", "end_ns", "core_id", "block_id", "cycles").rows()
    assert shown == [
        ("block", "AIC", 65_535, ns(1110), ns(1150), 2, 0, None),
        ("block", "AIV", 65_535, ns(1112), ns(1140), 2, 0, None),
        ("counted block", "AIV", 65_535, ns(1111), ns(1140), 7, 3, 55),
    ]
    assert losses(side) == [
        ("stars_block.data", "end-without-start", 1, "blocks"),
        ("ffts_profile.data", "damaged-record", 1, "a block ends before it starts"),
    ]


@pytest.mark.parametrize("events", ["0x422,0x423", "0x400,0x401"])
def test_both_lists_of_main_memory_events_are_understood(tmp_path: Path, events: str):
    rows = stars_32((START, 1, 1100), (END, 1, 1600))
    counters = pmu_128(
        {"task": 1, "flags": 1, "core": 1, "cycles": 1000, "counters": [2**20, *[0] * 9], "start": 1110, "end": 1510}
    )
    sample = {"ai_core_metrics": "Memory", "ai_core_profiling_events": events}
    [found] = metrics(read_device(device_part(tmp_path, (STARS_32, rows), (PMU_128, counters), sample=sample, chip=15), True))
    assert found["aiv_main_mem_read_bw"] == pytest.approx(2**20 * 64 / (1000 / 1e9) / 2**33)


def test_records_cut_between_slices_are_read_whole(tmp_path: Path):
    """Slices of 565 and 435 bytes: a cut record of 104 bytes and seven whole ones."""
    rows = aicore(*((7, number, 100 + number, [number] * 8) for number in range(8)))
    device_part(tmp_path, (HWTS, joined(*(hwts((START, 7, n, 1000 + n), (END, 7, n, 2000 + n)) for n in range(8)))), chip=1)
    data = tmp_path / "PROF_1" / "device_0" / "data"
    content = rows.tobytes()[24:]
    (data / "aicore.data.0.slice_3").write_bytes(content[:565])
    (data / "aicore.data.0.slice_4").write_bytes(content[565:])
    from stepscope.formats.cann.folder import open_prof

    side = read_device(open_prof(tmp_path / "PROF_1").devices[0], True)
    assert side.pmu["cycles"].to_list() == [100 + number for number in range(1, 8)]
    assert np.count_nonzero(side.counters.values[:, 0]) == 7
