# SPDX-License-Identifier: Apache-2.0
"""A real result of rocprofv3: what is read equals a count made with the standard JSON parser."""

from __future__ import annotations

import gzip
import json
from collections import Counter

import polars as pl
import pytest

import stepscope


@pytest.fixture(scope="module")
def result(golden):
    path = golden / "rocprof" / "908_results.json.gz"
    (process,) = json.loads(gzip.decompress(path.read_bytes()))["rocprofiler-sdk-tool"]
    return stepscope.open(path).tables, process


def test_nothing_is_lost_but_the_time_of_day(result):
    tables, _ = result
    tables.check()
    assert tables.quality["issue"].to_list() == ["incomplete-clock"]


def test_dispatches_by_name(result):
    tables, process = result
    names = {symbol["kernel_id"]: symbol["formatted_kernel_name"] for symbol in process["kernel_symbols"]}
    count, time = Counter(), Counter()
    for record in process["buffer_records"]["kernel_dispatch"]:
        name = names[record["dispatch_info"]["kernel_id"]]
        count[name] += 1
        time[name] += record["end_timestamp"] - record["start_timestamp"]
    rows = tables.kernels.group_by(pl.col("name").cast(pl.String)).agg(pl.len(), pl.col("duration_ns").sum().cast(pl.Int64))
    assert sorted(rows.rows()) == sorted((name, count[name], time[name]) for name in count)


def test_streams_threads_and_grids(result):
    tables, process = result
    wanted = Counter()
    for record in process["buffer_records"]["kernel_dispatch"]:
        info = record["dispatch_info"]
        blocks = [-(-info["grid_size"][axis] // info["workgroup_size"][axis]) for axis in "xyz"]
        wanted[record["stream_id"]["handle"], ",".join(map(str, blocks)), record["start_timestamp"]] += 1
    rows = tables.kernels.select("stream", pl.col("grid").cast(pl.String), "start_ns").rows()
    assert Counter(rows) == wanted


def test_collectives(result):
    tables, _ = result
    assert tables.collectives.height == 1310
    assert tables.facts.device_names == {"0": "AMD Instinct MI350X"}
