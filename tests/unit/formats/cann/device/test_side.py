# SPDX-License-Identifier: Apache-2.0
"""Tasks, counters, frequency and scheduler records of a raw device folder, from hand-made records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from cann_device_folder import device_part, filled, flips, joined, lpm, ns, pmu, stars
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepscope.formats.cann.device.flips import Flips, batch_ids
from stepscope.formats.cann.device.side import DeviceSide, read_device
from stepscope.formats.cann.device.stars import task_ids
from stepscope.formats.cann.device.task_frame import pair
from stepscope.formats.cann.layouts import LPM_INFO, PMU, STARS, TS_TRACK

START, END, SUB_START, SUB_END = 0, 1, 34, 35


def _issues(side: DeviceSide) -> dict[str, int]:
    return dict(side.quality.select(pl.col("issue").cast(pl.String), "count").iter_rows())


@pytest.mark.parametrize(
    ("stream", "task", "sqe", "wide", "expected"),
    [
        pytest.param(46, 7, 0, True, (46, 7), id="wide-plain"),
        pytest.param(0x8003, 46, 0, True, (46, 3), id="wide-swapped"),
        pytest.param(0x8003, 0x802E, 0, True, (46, 0x8003), id="wide-swapped-with-high-bit-of-the-task"),
        pytest.param(0x8003, 46, 3, True, (3, 46), id="wide-place-holder-never-swaps"),
        pytest.param(0x8003, 46, 4, True, (3, 46), id="wide-event-record-never-swaps"),
        pytest.param(46, 0xFFFE, 0, False, (46, 0xFFFE), id="narrow-plain"),
        pytest.param(0xB005, 0xE001, 0, False, (5, 0xA001), id="narrow-bit-12-keeps-the-high-bits-of-the-task"),
        pytest.param(0x2123, 0xF02E, 0, False, (46, 0xF123), id="narrow-bit-13-swaps-low-bits"),
        pytest.param(0x0805, 9, 0, False, (5, 9), id="narrow-stream-is-below-2048"),
    ],
)
def test_coding_of_stream_and_task(stream: int, task: int, sqe: int, wide: bool, expected: tuple[int, int]) -> None:
    found = task_ids(np.array([stream], np.uint16), np.array([task], np.uint16), np.array([sqe]), wide)
    assert tuple(int(value[0]) for value in found) == expected


@pytest.mark.parametrize(
    ("starts", "ends", "expected"),
    [
        pytest.param([1, 5], [3, 7], [(1, 3), (5, 7)], id="equal-counts-by-order"),
        pytest.param([1, 2], [3, 4], [(1, 3), (2, 4)], id="equal-counts-even-when-they-overlap"),
        pytest.param([1, 5, 9, 13, 25], [3, 7, 10, 15], [(1, 3), (5, 7), (9, 10), (13, 15)], id="last-start-is-open"),
        pytest.param([4, 6, 9, 13], [3, 5, 8, 10, 15], [(4, 5), (6, 8), (9, 10), (13, 15)], id="first-end-is-alone"),
        pytest.param([4, 6], [8], [(6, 8)], id="a-lost-end-between"),
        pytest.param([4, 9], [3, 5], [(4, 5)], id="equal-counts-that-would-run-backwards"),
        pytest.param([4, 5], [5], [(5, 5)], id="an-end-goes-to-the-start-at-its-time"),
        pytest.param([4], [], [], id="no-end"),
    ],
)
def test_pairs(starts: list[int], ends: list[int], expected: list[tuple[int, int]]) -> None:
    first, last = np.array(starts, np.uint64), np.array(ends, np.uint64)
    # Key 9 is paired as it should whatever happens to key 7.
    keys = [np.array([7] * len(times) + [9], np.uint64) for times in (starts, ends)]
    by_start, by_end = pair(keys[0], np.append(first, np.uint64(100)), keys[1], np.append(last, np.uint64(101)))
    times = [(int(np.append(first, 100)[s]), int(np.append(last, 101)[e])) for s, e in zip(by_start, by_end, strict=True)]
    assert sorted(times) == [*expected, (100, 101)]


@pytest.mark.parametrize(
    ("times", "tasks", "flip", "expected"),
    [
        pytest.param([10, 20, 30], [5, 6, 0], (25, 0), [0, 0, 1], id="after-the-flip"),
        pytest.param([10, 25, 30], [5, 6, 0], (25, 0), [0, 0, 1], id="at-the-flip-is-before"),
        pytest.param([10, 20, 30], [65000, 1, 3], (25, 2), [0, 1, 1], id="look-back-to-a-small-number"),
        pytest.param([10, 20, 30], [65000, 2, 3], (25, 2), [0, 1, 1], id="look-back-includes-the-flips-own-number"),
        pytest.param([10, 20, 30], [1, 1, 3], (25, 2), [0, 1, 1], id="the-first-task-stays"),
        pytest.param([10, 20, 30], [5, 1, 0], (25, 0xFFFF), [0, 0, 1], id="no-look-back-at-the-end-of-a-stream"),
        pytest.param([30, 10, 20], [0, 5, 6], (25, 0), [1, 0, 0], id="records-out-of-order"),
    ],
)
def test_batches(times: list[int], tasks: list[int], flip: tuple[int, int], expected: list[int]) -> None:
    stream = np.full(len(times), 3)
    found = batch_ids(stream, np.array(times), np.array(tasks), Flips(np.array([3]), np.array([flip[0]]), np.array([flip[1]])))
    assert found.tolist() == expected


def test_batches_of_several_flips_and_streams() -> None:
    flip = Flips(np.array([3, 4, 3]), np.array([40, 15, 20]), np.array([0, 0, 0]))
    found = batch_ids(np.array([3, 3, 3, 4, 4, 5]), np.array([10, 30, 50, 10, 20, 99]), np.zeros(6, int), flip)
    assert found.tolist() == [0, 1, 2, 0, 1, 0]


def test_look_back_over_many_tasks_stops_at_the_flip_before() -> None:
    times = np.arange(1000)
    tasks = np.where(times < 100, 60000, 1)
    flip = Flips(np.array([3, 3]), np.array([499, 899]), np.array([5, 5]))
    found = batch_ids(np.full(1000, 3), times, tasks, flip)
    # The second flip looks back to the cut of the first, and no further: nothing is left between them.
    assert np.bincount(found).tolist() == [100, 0, 900]


def test_tasks_of_a_folder(tmp_path: Path) -> None:
    mix = ((START, 0x8001, 46, 1200), (SUB_START, 0x8001, 46, 1200), (SUB_END, 0x8001, 46, 1290), (END, 0x8001, 46, 1300))
    rows = joined(
        stars((START, 46, 0, 1100), (END, 46, 0, 1150)),
        stars((START, 49, 1, 1160), (END, 49, 1, 1160), sqe=4, first=2),
        stars(*mix, first=4),
        stars((START, 46, 0, 2000), (END, 46, 0, 2050), first=8),
    )
    rows["sub_type"][5:7] = 6
    side = read_device(device_part(tmp_path, (STARS, rows), (TS_TRACK, flips((46, 1999, 1, 0)))), wide=True)
    assert side.tasks.drop("start_ticks", "end_ticks", "duration_ns", "pmu").cast({"device_type": pl.String}).rows() == [
        (46, 0, 0, None, ns(1100), ns(1150), "AI_CORE"),
        (49, 1, 0, None, ns(1160), ns(1160), "EVENT_RECORD_SQE"),
        (46, 1, 0, None, ns(1200), ns(1300), "AI_CORE"),
        (46, 1, 0, 0, ns(1200), ns(1290), "MIX_AIC"),
        (46, 0, 1, None, ns(2000), ns(2050), "AI_CORE"),
    ]
    assert side.tasks["duration_ns"].to_list() == [1000.0, 0.0, 2000.0, 1800.0, 1000.0]
    assert side.tasks["pmu"].null_count() == 5
    assert _issues(side) == {}


def test_what_is_lost_is_counted(tmp_path: Path) -> None:
    rows = stars((START, 46, 0, 1100), (START, 46, 1, 1200), (END, 46, 2, 1250), (63, 46, 2, 1260), (25, 0, 0, 1270))
    rows["head"][4] += 5 << 6
    counters = pmu({"stream": 46, "task": 9, "end": 1100}, {"function": 41, "stream": 46, "task": 9, "end": 1100}, {"function": 7})
    track = flips((46, 1300, 1, 0))
    track["kind"] = 99
    side = read_device(device_part(tmp_path, (STARS, rows), (PMU, counters), (TS_TRACK, track)), wide=True)
    assert side.tasks.height == 0
    assert side.quality.select("source", pl.col("issue").cast(pl.String), "count", "detail").rows() == [
        ("ts_track.data", "unknown-kind", 1, "kind 99, 40 B each"),
        ("stars_soc.data", "dropped-by-device", 1, ""),
        ("stars_soc.data", "unsupported-kind", 1, "function 25: SIO"),
        ("stars_soc.data", "unknown-kind", 1, "function 63, 64 B each"),
        ("stars_soc.data", "start-without-end", 2, "device tasks"),
        ("stars_soc.data", "end-without-start", 1, "device tasks"),
        ("ffts_profile.data", "unknown-kind", 1, "function 7, 128 B each"),
        ("ffts_profile.data", "unmatched-counters", 1, "of tasks"),
        ("ffts_profile.data", "unmatched-counters", 1, "of blocks"),
    ]


def test_counters_find_the_run_of_their_task(tmp_path: Path) -> None:
    """Task (46, 0) runs twice, as in a graph; the counters of the first run were lost, those of the second came twice."""
    rows = stars(
        (START, 46, 0, 1100), (END, 46, 0, 1150), (START, 46, 0, 1200), (END, 46, 0, 1250), (START, 46, 1, 1300), (END, 46, 1, 1350)
    )
    counters = pmu(
        {"stream": 46, "task": 0, "end": 1170, "cycles": 1},  # between the runs
        {"stream": 46, "task": 0, "end": 1240, "cycles": 2},
        {"stream": 46, "task": 0, "end": 1250, "cycles": 3, "sub_type": 0x400},
        {"stream": 46, "task": 1, "end": 1310, "cycles": 4, "ffts": 1 << 13},
        {"stream": 46, "task": 1, "end": 1360, "cycles": 5},  # after its end
    )
    side = read_device(device_part(tmp_path, (STARS, rows), (PMU, counters)), wide=True)
    assert side.pmu.select(
        "task", "stream", "task_id", "context_id", pl.col("core").cast(pl.String), "cycles", "overflow"
    ).rows() == [
        (1, 46, 0, None, "AIC", 3, True),
        (2, 46, 1, None, "AIV", 4, False),
    ]
    assert side.tasks["pmu"].to_list() == [None, 0, 1]
    assert _issues(side) == {"unmatched-counters": 2, "superseded-counters": 1}


@pytest.mark.parametrize(
    ("ffts", "sub_type", "core"),
    [(0, 0, "AIC"), (4, 0, "AIC"), (1, 0, "AIV"), (5, 0, "AIV"), (4, 6, "MIX_AIC"), (4, 7, "MIX_AIV"), (4, 1, "AIV")],
)
def test_core_kinds(tmp_path: Path, ffts: int, sub_type: int, core: str) -> None:
    sub = ffts == 4
    rows = stars((SUB_START if sub else START, 46, 0, 1100), (SUB_END if sub else END, 46, 0, 1150))
    counters = pmu({"stream": 46, "task": 0, "end": 1120, "ffts": ffts << 13, "sub_type": sub_type})
    side = read_device(device_part(tmp_path, (STARS, rows), (PMU, counters)), wide=True)
    assert side.pmu["core"].to_list() == [core]
    assert side.pmu["context_id"].to_list() == [0 if sub else None]


def test_frequency(tmp_path: Path) -> None:
    records = joined(
        lpm(0, (500, 800), (900, 1650), (1200, 800)), lpm(1, (1100, 775)), lpm(0, (1300, 1650)), lpm(2, (600, 850)), lpm(9, (1, 1))
    )
    side = read_device(device_part(tmp_path, (LPM_INFO, records), end="2500000"), wide=True)
    begin, end = 1_999_500_000, 2_500_000_000
    assert side.points.rows() == [
        ("frequency", begin, 1650),
        ("frequency", ns(1000), 1650),  # what held before the start
        ("frequency", ns(1200), 800),
        ("frequency", ns(1300), 1650),
        ("frequency", end, 1650),
        ("aic_voltage", begin, 900),
        ("aic_voltage", ns(1000), 900),
        ("aic_voltage", ns(1100), 775),
        ("aic_voltage", end, 775),
        ("bus_voltage", begin, 850),
        ("bus_voltage", ns(1000), 850),
        ("bus_voltage", end, 850),
    ]
    assert side.frequency.at(np.array([999, 1199, 1200, 5000], np.uint64)).tolist() == [1000, 1650, 800, 1650]
    assert _issues(side) == {"unknown-kind": 1}


def test_a_frequency_of_zero_is_ignored(tmp_path: Path) -> None:
    side = read_device(device_part(tmp_path, (LPM_INFO, lpm(0, (1200, 0)))), wide=True)
    assert side.frequency.at(np.array([1500], np.uint64)).tolist() == [1000]


def test_marks_among_the_scheduler_records(tmp_path: Path) -> None:
    none = 0xFFFF_FFFF_FFFF_FFFF
    rows = filled(
        TS_TRACK,
        [
            {"kind": 10, "counter": 1200, "index": 7, "model": none, "step_stream": 46, "step_task": 3, "step_tag": 12},
            {"kind": 10, "counter": 1100, "index": 7, "model": none, "step_stream": 46, "step_task": 2, "step_tag": 12},
            {"kind": 10, "counter": 1150, "index": 8, "model": none, "step_stream": 46, "step_task": 4, "step_tag": 11},
            {"kind": 10, "counter": 1300, "index": 1, "model": 5, "step_stream": 46, "step_task": 9, "step_tag": 60000},
            {"kind": 12, "counter": 1400, "stream": 46, "task": 5, "task_type": 66},
            {"kind": 11, "counter": 1500, "stream": 0x8006, "task": 46},
            {"kind": 15, "counter": 1600, "stream": 46, "task": 7, "blocks": 40},
        ],
    )
    side = read_device(device_part(tmp_path, (TS_TRACK, rows)), wide=True)
    assert side.marks.rows() == [(7, ns(1100), ns(1200), 46, 2, True), (8, ns(1150), ns(1150), 46, 4, False)]
    assert side.quality.height == 0, "the other records are known, but no table holds them"


def test_an_empty_folder(tmp_path: Path) -> None:
    side = read_device(device_part(tmp_path), wide=True)
    assert (side.tasks.height, side.pmu.height, side.points.height, side.marks.height, side.quality.height) == (0, 0, 0, 0, 0)
    kernels = pl.DataFrame(schema={"pmu": pl.Int64, "block_num": pl.Int64, "mix_block_num": pl.Int64, "duration_ns": pl.Int64})
    assert side.metrics(kernels).height == 0


@pytest.mark.slow  # half a second and more
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.randoms(use_true_random=False), st.booleans())
def test_no_bytes_stop_the_reader(tmp_path_factory: pytest.TempPathFactory, random: object, wide: bool) -> None:
    """Records with a sound magic and anything else."""
    draw = np.random.default_rng(random.getrandbits(32))  # type: ignore[attr-defined]
    tables = []
    for layout in (STARS, PMU, TS_TRACK, LPM_INFO):
        rows = draw.integers(0, 256, draw.integers(0, 40) * layout.size, np.uint8).view(layout.dtype)
        if layout.magic is not None:
            rows["magic"] = layout.magic
            rows["head"] = draw.choice([0, 1, 34, 35, 40, 41], len(rows))
            rows["stream"], rows["task"] = draw.integers(0, 2, len(rows)), 0
        if layout is TS_TRACK:
            rows["kind"] = draw.integers(10, 16, len(rows))
        tables.append((layout, rows))
    sample = {"ai_core_metrics": "PipeUtilizationExct", "ai_core_profiling_events": "0x416,junk,0x"}
    side = read_device(device_part(tmp_path_factory.mktemp("raw"), *tables, sample=sample), wide)
    kernels = side.pmu.select(
        pl.int_range(pl.len()).alias("pmu"),
        pl.lit(3).alias("block_num"),
        pl.lit(2).alias("mix_block_num"),
        pl.lit(9).alias("duration_ns"),
    )
    assert side.metrics(kernels).height == side.pmu.height
