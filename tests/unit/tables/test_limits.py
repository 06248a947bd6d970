# SPDX-License-Identifier: Apache-2.0
"""Fractions that cannot have been measured are left out and counted; all others stay as they are."""

from __future__ import annotations

import math

import polars as pl
import pytest

from stepscope.analyser import export
from stepscope.analysis.link.capture import link
from stepscope.analysis.operators import operator_times
from stepscope.analysis.statistics import api_statistic
from stepscope.tables import ALL_TABLES, Facts, Tables
from stepscope.tables.limits import LONGEST_NS, within_limits
from stepscope.tables.store import open_store, write_store

ODD = [math.nan, math.inf, -math.inf, 5e303, -5e303, 1e17]


def kernels(durations: list[float | None], **columns: list[float]) -> Tables:
    count = len(durations)
    frame = pl.DataFrame(
        {
            "device": [0] * count, "stream": [1] * count, "start_ns": range(1000, 1000 + count), "duration_ns": durations,
            "name": ["k"] * count, "kind": ["compute"] * count, "launch_ns": [5] * count, "launch_tid": [1] * count, **columns,
        },
        schema_overrides={"duration_ns": pl.Float64},
    )  # fmt: skip
    op = {"tid": [1], "pid": [1], "start_ns": [0], "end_ns": [9_000], "name": ["aten::add"], "scope": [0]}
    return Tables(
        {
            "kernels": ALL_TABLES["kernels"].conform(frame), "ops": ALL_TABLES["ops"].conform(pl.DataFrame(op)),
            "meta": Facts(rank=0, device_ids=(0,), source="ascend_text", device_kind="npu").table(),
        }
    )  # fmt: skip


def counted(tables: Tables) -> list[tuple[object, ...]]:
    return tables.quality.filter(pl.col("issue") == "value-out-of-range").select("source", "count", "detail").rows()


def test_possible_numbers_are_not_touched():
    tables = kernels([1.5, 0.0, LONGEST_NS - 10, -1.5], bandwidth=[0.1, 1e12, 3.0, 0.0])
    assert within_limits(tables) is tables


@pytest.mark.parametrize("odd", [*ODD, None])
def test_an_impossible_duration_is_zero_and_counted(odd):
    found = within_limits(kernels([2.5, odd, 4.0]))
    assert found.kernels["duration_ns"].to_list() == [2.5, 0.0, 4.0]
    assert counted(found) == [("kernels", 1, "column duration_ns")]


def test_a_task_without_a_duration_is_as_long_as_its_span():
    tables = kernels([None, 4.0, None])
    spans = tables.kernels.with_columns(end_ns=pl.Series([1007, 1005, 1 << 62]))
    found = within_limits(tables.replace(kernels=spans))
    assert found.kernels["duration_ns"].to_list() == [None, 4.0, 0.0]
    assert counted(found) == [("kernels", 1, "column duration_ns")]


def test_durations_that_are_too_long_together_lose_the_longest():
    found = within_limits(kernels([0.4 * LONGEST_NS, 5.0, 0.5 * LONGEST_NS, 0.3 * LONGEST_NS]))
    assert found.kernels["duration_ns"].to_list() == [0.4 * LONGEST_NS, 5.0, 0.0, 0.3 * LONGEST_NS]


@pytest.mark.parametrize("odd", ODD)
def test_another_impossible_number_is_missing_and_counted(odd):
    found = within_limits(kernels([1.0, 2.0], bandwidth=[odd, 3.5]))
    assert found.kernels["bandwidth"].to_list() == [None, 3.5]
    assert counted(found) == [("kernels", 1, "column bandwidth")]


@pytest.mark.parametrize("odd", ODD)
def test_a_store_that_somebody_sent_is_opened_and_exported(tmp_path, odd):
    metrics = pl.DataFrame({"kernel": [0, 1], "aic_total_cycles": [odd, 7.0], "aic_mac_ratio": [0.5, odd]})
    tables = kernels([odd, 30.0]).replace(kernel_metrics=ALL_TABLES["kernel_metrics"].conform(metrics))
    write_store(tmp_path / "store", tables, [])
    opened = link(open_store(tmp_path / "store"))
    assert sum(count for _, count, _ in counted(opened)) == 3
    assert operator_times(opened)["device_self_ns"].to_list() == [30.0]
    for form in ("text", "db"):
        (tmp_path / form).mkdir()
        export(opened, [form], tmp_path / form, lambda stage: None)
    (written,) = (tmp_path / "text").rglob("kernel_details.csv")
    rows = pl.read_csv(written)
    assert rows["Duration(us)"].to_list() == [0.0, 0.03]


def test_a_call_without_an_end_has_no_part_in_the_mean():
    times = {"start_ns": [5, 9], "end_ns": [15, None]}
    calls = pl.DataFrame({"level": ["acl"] * 2, "name": ["c"] * 2, "pid": [1] * 2, "tid": [1] * 2, **times})
    found = api_statistic(Tables({"api_calls": ALL_TABLES["api_calls"].conform(calls)}))
    assert found.select("count", "avg_ns", "max_ns").rows() == [(1, 10, 10)]
