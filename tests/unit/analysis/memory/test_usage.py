"""Blocks in use, peaks, and what operators allocated."""

from __future__ import annotations

import polars as pl
from capture_rows import MAIN, op, ops, rows, tables

from stepscope.analysis.link.capture import link
from stepscope.analysis.memory.usage import component_peaks, held_at, operator_changes, shown_blocks, touched_between

BLOCKS = rows(
    "allocations",
    {"device_type": "npu", "name": "a", "bytes": 10, "start_ns": 0, "release_ns": 50, "component": "PTA"},
    {"device_type": "npu", "name": "b", "bytes": 30, "start_ns": 20, "component": "GE"},
    {"device_type": "cpu", "name": "c", "bytes": 99, "start_ns": 0},
)


def test_blocks_of_the_host_are_shown_only_alone():
    assert shown_blocks(BLOCKS)["name"].to_list() == ["a", "cann::b"]
    assert shown_blocks(BLOCKS.filter(pl.col("device_type") == "cpu"))["name"].to_list() == ["c"]


def test_held_at_an_instant():
    blocks = shown_blocks(BLOCKS)
    assert [held_at(blocks, at)["bytes"].to_list() for at in (0, 20, 49, 50)] == [[10], [30, 10], [30, 10], [30]]


def test_touched_in_a_window():
    blocks = shown_blocks(BLOCKS)
    assert touched_between(blocks, 1, 50)["bytes"].to_list() == [30]
    assert touched_between(blocks, 50, 51)["bytes"].to_list() == [10]


def test_peaks_are_those_first_reached():
    samples = pl.DataFrame({"component": ["x", "y", "x", "x"], "time_ns": [3, 1, 2, 9], "mb": [5.0, 7.0, 5.0, 1.0]})
    assert component_peaks(samples).rows() == [("y", 7.0, 1), ("x", 5.0, 2)]


def test_operators_own_what_happens_inside_them():
    linked = link(tables(ops=ops(op("outer", 0, 100), op("inner", 10, 50), op("idle", 200, 300))))
    sizes = ((20, 64), (40, -16), (60, 8), (150, 1000))  # the last one outside of all
    events = rows("memory_events", *({"pid": 7, "tid": MAIN, "time_ns": at, "bytes": size} for at, size in sizes))
    columns = ["name", "calls", "increase", "count", "size", "self_increase", "self_count", "self_size"]
    assert operator_changes(linked.ops, events).select(columns).rows() == [
        ("inner", 1, 48, 1, 64, 48, 1, 64),
        ("outer", 1, 56, 2, 72, 8, 1, 8),
    ]
