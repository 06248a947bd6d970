# SPDX-License-Identifier: Apache-2.0
"""The rules from counts to rates, on values that the vendor's tool showed for real captures.

No real capture with the raw records of HBM and LLC is at hand, only its parsed database. A rate of the database,
taken back by our rule, must be a whole number of accesses; these counts, written as raw records, must read as the
database's values, every one of them.
"""

from __future__ import annotations

import sqlite3

import numpy as np
import pytest
from sampled_folder import ZERO, points, records, sampled

from stepscope.formats.cann import layouts

MB = 1 << 20
CAPTURES = [f"{level}/rank{rank}" for level in ("level0", "level2") for rank in (0, 1)]


@pytest.fixture(params=CAPTURES)
def database(golden, request):
    found = sorted(
        (golden / "ascend_pt/db" / f"{request.param}_ascend_pt").glob("ASCEND_PROFILER_OUTPUT/ascend_pytorch_profiler_*.db")
    )
    if not found:
        pytest.skip("no such capture")
    connection = sqlite3.connect(f"file:{found[0]}?mode=ro&immutable=1", uri=True)
    yield connection
    connection.close()


def test_hbm(database, tmp_path):
    query = "select timestampNs, hbmId, s.value, bandwidth from HBM join STRING_IDS s on s.id = type order by 2, 3, 1"
    rows = database.execute(query).fetchall()
    times = {time: at for at, time in enumerate(sorted({row[0] for row in rows}))}
    start = min(times)
    seconds = np.diff([start, *times]) / 1e9
    samples, expected = [], {}
    for time, memory, way, bandwidth in rows:
        count = bandwidth * seconds[times[time]] / 32
        assert abs(count - round(count)) < 0.001  # the database cuts a byte a second
        samples.append(
            (time, {"time_us": (time - start) // 1000, "event": way == "write", "instance": memory, "count": round(count)})
        )
        shown = way.capitalize()
        expected.setdefault((f"HBM {memory}/{shown}", f"{shown}(MB/s)", None), []).append((time - start, bandwidth))
    samples.sort(key=lambda row: row[0])
    found = points(sampled(tmp_path, {"hbm.data": records(layouts.HBM, *(row for _, row in samples))}), "HBM")
    assert {key: [(time, int(value * MB + 1e-6)) for time, value in values] for key, values in found.items()} == expected


def test_llc(database, tmp_path):
    rows = database.execute("select timestampNs, llcId, throughput, hitRate from LLC order by 2, 1").fetchall()
    start = min(row[0] for row in rows)
    samples, expected, last = [], {}, {}
    for time, cache, throughput, hit_rate in rows:
        count = round(throughput / MB, 3) * MB * (time - last.get(cache, time)) / 1e9 / 4096
        assert abs(count - round(count)) < 0.003  # half a thousandth of a MB/s, over 20 ms
        counts = {0x00: round(count), 0x01: 0, 0x02: round(hit_rate * 10), 0x13: 0, 0x20: 1000, 0x22: 0, 0x34: 0, 0x36: 0}
        samples += [
            {"time_us": (time - start) // 1000, "instance": cache, "event": event, "count": n} for event, n in counts.items()
        ]
        last[cache] = time
        name = f"LLC {cache} Read/"
        expected.setdefault((name + "Throughput", "Throughput(MB/s)", None), []).append((time - start, round(throughput / MB, 3)))
        expected.setdefault((name + "Hit Rate", "Hit Rate(%)", None), []).append((time - start, round(hit_rate / 100, 3)))
    tables = sampled(tmp_path, {"llc.data": records(layouts.LLC, *samples)}, settings={"llc_profiling": "read"})
    assert points(tables, "LLC") == expected


def test_sampler_counts_microseconds(database):
    """The sampler's times lie whole microseconds apart, those of the device's counter do not."""
    for table, whole in (("HBM", True), ("LLC", True), ("NPU_MEM", True), ("ACC_PMU", False)):
        times = np.array([row[0] for row in database.execute(f"select distinct timestampNs from {table}")])
        assert bool((np.diff(np.sort(times)) % 1000 == 0).all()) is whole
    assert ZERO % 1000 == 0  # so that the folder of these tests keeps them
