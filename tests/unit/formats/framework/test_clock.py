# SPDX-License-Identifier: Apache-2.0
"""Raw host times to epoch nanoseconds: sources, their order, and exactness."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stepscope.formats.framework import FrameworkClock, read_clock

START = {"syscnt_enable": True, "freq": 100, "start_cnt": 470_002_538_790_308, "start_monotonic": 4_699_801_002_845_430}
END = {"collectionTimeEnd": 1_700_000_000_000_000_500, "MonotonicTimeEnd": 500}
NPU = {"common_config": {"activities": ["ProfilerActivity.CPU", "ProfilerActivity.NPU"]}}
CPU = {"common_config": {"activities": ["ProfilerActivity.CPU"]}}


def prof_folder(root: Path, **files: Any) -> Path:
    prof = root / "PROF_000001_20250101000000000_ABC"
    (prof / "host").mkdir(parents=True)
    (prof / "device_0").mkdir()
    for name, content in files.items():
        path = {
            "info": "host/info.json",
            "log": "host/host_start.log",
            "start": "host/start_info",
            "device": "device_0/start_info.0",
        }
        (prof / path[name]).write_text(content if isinstance(content, str) else json.dumps(content))
    return prof


def epoch(clock: FrameworkClock, *raw: int) -> list[int]:
    return clock.to_epoch_ns(pl.Series("t", raw, dtype=pl.Int64)).to_list()


def notes(clock: FrameworkClock) -> list[str]:
    return clock.quality["detail"].to_list()


def test_worked_example(tmp_path):
    clock = read_clock(
        tmp_path, None, {"config": CPU, "start_info": START, "end_info": {"collectionTimeEnd": 0, "MonotonicTimeEnd": 0}}
    )
    assert epoch(clock, 470_002_538_802_653) == [4_699_801_002_968_880]
    assert notes(clock) == []


def test_without_counter_raw_is_monotonic(tmp_path):
    clock = read_clock(tmp_path, None, {"config": CPU, "start_info": {"syscnt_enable": False, "start_cnt": 9}, "end_info": END})
    assert epoch(clock, 500, 1500) == [1_700_000_000_000_000_500, 1_700_000_000_000_001_500]


def test_counter_beyond_two_to_the_53(tmp_path):
    clock = read_clock(
        tmp_path, None, {"config": CPU, "start_info": {**START, "start_cnt": 2**60, "start_monotonic": 1000}, "end_info": END}
    )
    assert epoch(clock, 2**60 + 1, 2**60 + 3) == [1_700_000_000_000_001_010, 1_700_000_000_000_001_030]


def test_ticks_that_are_not_whole_nanoseconds_are_cut():
    clock = FrameworkClock(counts_ticks=True, mhz=24.0, tick_zero=2**60, monotonic_zero_ns=5)
    assert epoch(clock, 2**60, 2**60 + 1, 2**60 + 24, 2**60 + 25) == [5, 46, 1005, 1046]


def test_prof_comes_first(tmp_path):
    prof = prof_folder(
        tmp_path,
        info={"CPU": [{"Frequency": "50.000000"}]},
        log="[Host]\nclock_monotonic_raw: 7000\ncntvct: 100\ncntvct_diff: 0\n[Device]\ncntvct: 5\nclock_monotonic_raw: 6\n",
        start={"collectionTimeBegin": "1700000000000000.125", "clockMonotonicRaw": "6000"},
    )
    clock = read_clock(tmp_path, prof, {"config": NPU, "start_info": START, "end_info": END})
    assert clock == FrameworkClock(True, 50.0, 100, 7000, 1_700_000_000_000_000_125 - 6000)
    assert epoch(clock, 103) == [1_700_000_000_000_000_125 - 6000 + 7000 + 60]


def test_device_file_when_the_host_has_none(tmp_path):
    prof = prof_folder(tmp_path, device={"collectionTimeBegin": "1700000000000000", "clockMonotonicRaw": "1"})
    assert read_clock(tmp_path, prof, {"config": NPU, "end_info": END}).epoch_offset_ns == 1_699_999_999_999_999_999


@pytest.mark.parametrize(
    ("config", "start"),
    [
        pytest.param(CPU, {"collectionTimeBegin": "1700000000000001", "clockMonotonicRaw": "0"}, id="device-was-off"),
        pytest.param(NPU, {"collectionTimeBegin": "0.001", "clockMonotonicRaw": "1"}, id="no-difference"),
        pytest.param(NPU, "{broken", id="broken-file"),
        pytest.param(NPU, {"collectionTimeBegin": "soon", "clockMonotonicRaw": "1"}, id="no-number"),
    ],
)
def test_end_of_the_capture_when_the_device_cannot_tell(tmp_path, config, start):
    prof = prof_folder(tmp_path, start=start)
    assert read_clock(tmp_path, prof, {"config": config, "end_info": END}).epoch_offset_ns == 1_700_000_000_000_000_000


def test_counter_start_is_taken_from_one_source(tmp_path):
    prof = prof_folder(tmp_path, log="[Host]\ncntvct: 100\n")
    clock = read_clock(tmp_path, prof, {"config": NPU, "start_info": START, "end_info": END})
    assert (clock.tick_zero, clock.monotonic_zero_ns) == (START["start_cnt"], START["start_monotonic"])


def test_an_unknown_clock_is_noted(tmp_path):
    clock = read_clock(tmp_path, None, {})
    assert clock == FrameworkClock()
    assert epoch(clock, 123) == [123]
    assert len(notes(clock)) == 2


@pytest.mark.parametrize("freq", [0, -5, "fast", None, True, 1e-16, "NaN", [1]])
def test_useless_frequency_gives_the_default(tmp_path, freq):
    clock = read_clock(tmp_path, None, {"config": CPU, "start_info": {**START, "freq": freq}, "end_info": END})
    assert clock.mhz == 100.0
    assert notes(clock) == ["frequency of the counter unknown: 100 MHz assumed"]


@pytest.mark.parametrize(
    "info", [{"start_info": 5, "end_info": []}, {"config": {"common_config": "x"}}, {"start_info": {"syscnt_enable": True}}]
)
def test_values_of_the_wrong_type_are_ignored(tmp_path, info):
    clock = read_clock(tmp_path, tmp_path / "absent", info)
    assert (clock.mhz, clock.tick_zero, clock.epoch_offset_ns) == (100.0, 0, 0)
    assert clock.quality.height


def test_extreme_times_do_not_raise():
    for clock in (
        FrameworkClock(True, 100.0, -(2**62), 2**62, 2**61),
        FrameworkClock(True, 1e-14, 3),
        FrameworkClock(epoch_offset_ns=2**62),
    ):
        assert len(epoch(clock, -(2**63), 0, 2**63 - 1)) == 3
