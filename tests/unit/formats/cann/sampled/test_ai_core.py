# SPDX-License-Identifier: Apache-2.0
"""Samples of cores, and records whose layout differs on chips with unique task numbers."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from cann_device_folder import device_part, filled, ns
from hypothesis import given, settings
from hypothesis import strategies as st

from stepscope.formats import cann
from stepscope.formats.cann.device.side import read_device
from stepscope.formats.cann.folder import open_prof
from stepscope.formats.cann.layouts import AICORE_SAMPLE, AICORE_SAMPLE_NEXT, SOC_PMU_NEXT, VECTOR_SAMPLE, Layout
from stepscope.formats.cann.records import read_records
from stepscope.formats.cann.sampled.tables import read_sampled
from stepscope.tables import ALL_TABLES

OLD = {"ai_core_profiling_mode": "sample-based", "ai_core_metrics": "PipeUtilization", "ai_core_profiling_events": "0x8,0xa,0x9"}
NEW = {**OLD, "ai_core_profiling_events": "0x501,0x301,0x1"}


@pytest.mark.parametrize(
    ("chip", "layout", "sample"),
    [(0, AICORE_SAMPLE, OLD), (1, AICORE_SAMPLE, OLD), (4, AICORE_SAMPLE, OLD), (15, AICORE_SAMPLE_NEXT, NEW),
     (16, AICORE_SAMPLE_NEXT, NEW)],
)  # fmt: skip
def test_shares_of_each_core(tmp_path: Path, chip: int, layout: Layout, sample: dict[str, str]):
    records = ({"counters": [100, 50] + [0] * (layout.dtype["counters"].shape[0] - 2), "cycles": c, "counter": at, "core_id": core}
               for c, at, core in ((1000, 1100, 0), (0, 1100, 1), (400, 1200, 0)))  # fmt: skip
    device_part(tmp_path, (layout, filled(layout, records)), sample=sample, chip=chip)
    prof = open_prof(tmp_path / "PROF_1")
    tables = read_sampled(prof, wide=False)
    found = tables.counters.filter(pl.col("name") == "vec_ratio").sort("time_ns", "series")
    assert found.select("source", "series", "time_ns", "value").rows() == [
        ("AI Core Utilization", "core 0", ns(1100), 0.1),
        ("AI Core Utilization", "core 1", ns(1100), 0.0),
        ("AI Core Utilization", "core 0", ns(1200), 0.25),
    ]
    assert tables.quality.rows() == []
    assert read_device(prof.devices[0], False).quality.rows() == []  # they are no damaged counters of tasks
    assert cann.read(tmp_path / "PROF_1").counters.height == tables.counters.height


def test_vector_cores_have_events_of_their_own(tmp_path: Path):
    sample = {**OLD, "aiv_metrics": "ArithmeticUtilization", "aiv_profiling_events": "0x4b"}
    records = [{"counters": [20, *[0] * 7], "cycles": 100, "counter": 1100, "core_id": 2}]
    device_part(tmp_path, (VECTOR_SAMPLE, filled(VECTOR_SAMPLE, records)), sample=sample, chip=4)
    found = read_sampled(open_prof(tmp_path / "PROF_1"), wide=False).counters.filter(pl.col("name") == "vec_fp32_ratio")
    assert found.select("series", "value").rows() == [("AIV core 2", 0.2)]


def test_cut_samples_are_counted(tmp_path: Path):
    device_part(tmp_path, sample=OLD, chip=1)
    (tmp_path / "PROF_1" / "device_0" / "data" / "aicore.data.0.slice_0").write_bytes(bytes(96 * 2 + 5))
    tables = read_sampled(open_prof(tmp_path / "PROF_1"), wide=False)
    assert tables.quality["issue"].cast(pl.String).to_list() == ["truncated-record"]


def test_socpmu_of_the_950_has_wide_task_numbers(tmp_path: Path):
    records = [{"data_type": 1, "stream": 5, "task": 70_000, "events": [100, 10, 0, 0, 5, 5, 0, 0]}]
    sample = {"l2CacheTaskProfilingEvents": "0x00,0x81,0x82,0x83,0x74,0x75"}
    device_part(tmp_path, (SOC_PMU_NEXT, filled(SOC_PMU_NEXT, records)), sample=sample, chip=15)
    rates = read_sampled(open_prof(tmp_path / "PROF_1"), wide=False).cache_rates
    assert rates.select("stream", "task_id", "other_rate").rows() == [(5, 70_000, 0.1)]


@pytest.mark.parametrize(
    ("chip", "layout", "sample"),
    [(1, AICORE_SAMPLE, OLD), (4, VECTOR_SAMPLE, OLD), (15, AICORE_SAMPLE_NEXT, NEW), (15, SOC_PMU_NEXT, NEW)],
)
@settings(max_examples=20)
@given(data=st.data())
def test_what_is_written_is_read(chip: int, layout: Layout, sample: dict[str, str], data: st.DataObject):
    """Any bytes that a record has room for, several records after one another; reading them as samples never raises."""
    written = np.frombuffer(data.draw(st.binary(min_size=2 * layout.size, max_size=2 * layout.size)), np.uint8).view(layout.dtype)
    with tempfile.TemporaryDirectory() as folder:
        part = device_part(Path(folder), (layout, written), sample=sample, chip=chip)
        found = read_records(part, layout)
        prof = open_prof(Path(folder) / "PROF_1")
        tables = read_sampled(prof, wide=False)
    assert [found.rows[name].tolist() for name in layout.dtype.names or ()] == [
        written[name].tolist() for name in layout.dtype.names or ()
    ]
    assert found.lost == ()
    for name in tables.filled():
        ALL_TABLES[name].check(tables[name])
