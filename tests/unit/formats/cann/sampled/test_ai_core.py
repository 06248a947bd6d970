# SPDX-License-Identifier: Apache-2.0
"""Samples of cores, and records whose layout differs on chips with unique task numbers."""

from __future__ import annotations

import itertools
import struct
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


# Written without the layouts: offsets and sizes are spelled a second time, as docs/formats/cann.md has them.
OLD_SAMPLE = struct.Struct("<B7x8QQQBB6x")  # mode, counters, cycles, counter, count, core
NEW_SAMPLE = struct.Struct("<B7x10QQQBB6x")
CACHE = struct.Struct("<6xHHHI8Q")  # data type, task type, stream, task, events
BYTE, SHORT, WORD, LONG = (st.integers(0, 2**bits - 1) for bits in (8, 16, 32, 64))


def sample_fields(counters: int) -> dict[str, object]:
    return {"mode": BYTE, "counters": (LONG, counters), "cycles": LONG, "counter": LONG, "count": BYTE, "core_id": BYTE}


@pytest.mark.parametrize(
    ("chip", "layout", "writer", "fields"),
    [
        (1, AICORE_SAMPLE, OLD_SAMPLE, sample_fields(8)),
        (4, VECTOR_SAMPLE, OLD_SAMPLE, sample_fields(8)),
        (15, AICORE_SAMPLE_NEXT, NEW_SAMPLE, sample_fields(10)),
        (15, SOC_PMU_NEXT, CACHE, {"data_type": SHORT, "task_type": SHORT, "stream": SHORT, "task": WORD, "events": (LONG, 8)}),
    ],
)  # fmt: skip
@settings(max_examples=20)
@given(data=st.data())
def test_what_is_written_is_read(chip, layout, writer, fields, data):
    kinds = {
        name: st.lists(kind[0], min_size=kind[1], max_size=kind[1]) if isinstance(kind, tuple) else kind
        for name, kind in fields.items()
    }
    records = data.draw(st.lists(st.fixed_dictionaries(kinds), min_size=1, max_size=3))
    packed = b"".join(
        writer.pack(*itertools.chain(*([one[name]] if isinstance(one[name], int) else one[name] for name in fields)))
        for one in records
    )
    assert writer.size == layout.size
    with tempfile.TemporaryDirectory() as folder:
        rows = np.frombuffer(packed, np.uint8)
        part = device_part(Path(folder), (layout, rows), sample=NEW if chip == 15 else OLD, chip=chip)
        found = read_records(part, layout)
        tables = read_sampled(open_prof(Path(folder) / "PROF_1"), wide=False)
    assert {name: found.rows[name].tolist() for name in fields} == {name: [one[name] for one in records] for name in fields}
    assert found.lost == ()
    for name in tables.filled():
        ALL_TABLES[name].check(tables[name])
