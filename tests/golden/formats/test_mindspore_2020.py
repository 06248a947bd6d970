# SPDX-License-Identifier: Apache-2.0
"""A run of MindSpore 2020 on a 910A, against what MindSpore itself made of the same records: every row and value."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from stepscope.formats import registry
from stepscope.formats.cann.layouts import TRAINING_TRACE
from stepscope.formats.mindspore_2020 import texts
from stepscope.formats.mindspore_2020.read import read
from stepscope.formats.mindspore_2020.step_trace import step_trace
from stepscope.tables import Tables

NS_PER_TICK = 10
TICKS_PER_MS = 100_000


@pytest.fixture(scope="module")
def folder(golden: Path) -> Path:
    return golden / "prof_older" / "910a_2020_raw"


@pytest.fixture(scope="module")
def tables(folder: Path) -> Tables:
    return read(folder)


def test_the_folder_is_a_capture(folder: Path):
    claimed = registry.claim(folder)
    assert claimed is not None
    assert claimed.format == "mindspore_2020"


def test_every_operator_is_that_of_the_timeline(golden: Path, tables: Tables):
    text = (golden / "prof_older" / "910a_2020_parsed" / "output_timeline_data_1.txt").read_text()
    expected = {
        (name, int(stream), round(float(start) * TICKS_PER_MS), round(float(lasted) * TICKS_PER_MS))
        for name, stream, start, lasted in (line.rsplit(",", 3) for line in text.splitlines()[1:])
    }
    operators = tables.kernels.filter(pl.col("kind") == "compute")
    lasted = (pl.col("end_ns") - pl.col("start_ns")) // NS_PER_TICK
    found = operators.select(pl.col("name").cast(pl.String), "stream", pl.col("start_ns") // NS_PER_TICK, lasted)
    assert len(expected) == operators.height == 2817
    assert set(found.rows()) == expected


def test_starts_without_an_end_are_counted(tables: Tables):
    assert tables.kernels.height == 31_385
    found = tables.quality.filter(pl.col("issue").cast(pl.String) == "start-without-end")
    assert found.select("source", "count").rows() == [("hwts.data", 77)]


def test_every_value_of_every_step_is_that_of_the_table(golden: Path, folder: Path, tables: Tables):
    with (golden / "prof_older" / "910a_2020_parsed" / "step_trace_raw_1_detail_time.csv").open() as handle:
        titles, *expected = csv.reader(handle)
    [path] = (folder / "data").glob("training_trace.*")
    trace = step_trace(np.fromfile(path, TRAINING_TRACE.dtype))
    of_step = {step: rows for (step,), rows in trace.reduces.group_by("step")}
    compared = 0
    for row, step in zip(expected[:-1], trace.steps.iter_rows(named=True), strict=True):  # the last line is the average
        values = {
            "start_point": step["start"], "end_point": step["end"], "total": step["end"] - step["start"],
            "fp_point": step["forward"], "bp_point": step["backward"], "iteration_interval": step["forward"] - step["start"],
            "fp_and_bp": step["backward"] - step["forward"], "tail": step["end"] - step["backward"],
        }  # fmt: skip
        for reduce in of_step[step["step"]].iter_rows(named=True):
            name = f"stream_{reduce['stream']}_parallel_0"
            values |= {f"{name}_start_point": reduce["start"], f"{name}_end_point": reduce["end"]}
        assert int(row[0]) == step["step"]
        assert values == {title: int(cell) for title, cell in zip(titles, row, strict=True) if title in values}
        compared += len(values)
    assert compared == 9660
    assert tables.steps.height == 322
    assert tables.steps["end_ns"].to_list() == (trace.steps["end"] * NS_PER_TICK).to_list()
    assert tables.collectives.height == 322 * 11


def test_collectives_have_the_names_of_their_points(tables: Tables):
    assert "AllGather" in tables.collectives["op_type"].cast(pl.String).to_list()


def test_ai_cpu_table_is_the_same(golden: Path):
    place = golden / "prof_older" / "910a_aicpu"
    [path] = (place / "data").iterdir()
    [result] = (place / "expect").iterdir()
    lines = [line.split() for line in result.read_text().splitlines()[2:-1]]
    found, strange = texts.ai_cpu(path.read_text())
    assert strange == 0
    times = found.select("node", "total_us", "dispatch_us", "run_start_us", "run_end_us")
    shown = [(at, texts.short_name(node), *values) for at, (node, *values) in enumerate(times.rows(), 1)]
    expected = [
        (int(number), name, round(float(total) * 1000), round(float(sent) * 1000), int(start), int(end))
        for number, name, total, sent, start, end in lines
    ]
    assert shown == expected
    assert read(place).aicpu_tasks.height == 3
