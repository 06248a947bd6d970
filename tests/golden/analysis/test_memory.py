"""Memory files of real captures, computed again from their events (docs/formats/outputs.md 15)."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

import polars as pl
import pytest

from stepscope.analysis.link.capture import link
from stepscope.analysis.memory.blocks import allocations, record_rows
from stepscope.formats.ascend.text import read
from stepscope.tables import ALL_TABLES, Facts, Tables

CAPTURES = [f"level{level}/rank{rank}_ascend_pt" for level in (0, 2) for rank in (0, 1)]
MB = 1024.0**2
TOTALS = ("total_allocated", "total_reserved", "total_active")


@cache
def _capture(output: Path) -> Tables:
    return link(read(output, Facts(generation="G1")))


@pytest.fixture
def output(golden: Path, request: pytest.FixtureRequest) -> Path:
    return golden / "ascend_pt" / "text" / request.param / "ASCEND_PROFILER_OUTPUT"


@pytest.fixture
def capture(output: Path) -> Tables:
    return _capture(output)


all_captures = pytest.mark.parametrize("output", CAPTURES, indirect=True)


def shipped(output: Path, name: str) -> list[dict[str, str]]:
    with (output / name).open(newline="") as file:
        return list(csv.DictReader(file))


def nanoseconds(text: str) -> int | None:
    whole, _, fraction = text.strip().partition(".")
    return int(whole) * 1000 + int(fraction.ljust(3, "0")[:3]) if whole else None


def in_bytes(text: str) -> float | None:
    return float(text) * MB if text else None


@all_captures
def test_every_row_of_memory_record(output: Path, capture: Tables):
    expected = [
        (
            row["Component"],
            nanoseconds(row["Timestamp(us)"]),
            *(in_bytes(row[f"Total {what}(MB)"]) for what in ("Allocated", "Reserved", "Active")),
            int(row["Stream Ptr"]) if row["Stream Ptr"] else None,
            row["Device Type"],
        )
        for row in shipped(output, "memory_record.csv")
        if row["Component"] != "APP"
    ]
    found = record_rows(capture.memory_events).select(
        "component", "time_ns", *TOTALS, "stream_ptr", pl.format("NPU:{}", "device").alias("tag")
    )
    assert len(expected) == 990
    assert found.rows() == expected


def raw_events(capture: Tables) -> pl.DataFrame:
    """The allocator's events as they were recorded: times from the blocks, totals from the records, addresses made up.

    Releases of blocks that no allocation explains are left over from before the capture and get an address of their own.
    """
    blocks = capture.allocations.filter(pl.col("component") == "PTA").with_columns(ptr=pl.int_range(1, pl.len() + 1))
    moments = (("malloc", "start_ns", 1), ("free", "release_ns", -1), ("block_free", "active_release_ns", -1))
    parts = [
        blocks.select(
            "ptr", pl.col(column).alias("time_ns"), (pl.col("bytes") * sign).alias("bytes"), pl.lit(action).alias("action")
        )
        for action, column, sign in moments
    ]
    known = pl.concat(parts).drop_nulls("time_ns")
    records = capture.memory_events.filter(pl.col("component") == "PTA").select("time_ns", "stream_ptr", "device", *TOTALS)
    joined = records.join(known, on="time_ns", how="left", maintain_order="left")
    return ALL_TABLES["memory_events"].conform(
        joined.with_columns(
            ptr=pl.coalesce("ptr", -pl.int_range(1, pl.len() + 1)),
            action=pl.coalesce("action", pl.lit("free")),
            device_type=pl.lit("npu"),
            component=pl.lit("PTA"),
            inner=pl.lit(True),
        )
    )


@all_captures
def test_blocks_and_their_totals(capture: Tables):
    expected = capture.allocations.filter(pl.col("component") == "PTA")
    found, quality = allocations(raw_events(capture), capture.ops, capture.queue)
    columns = ["bytes", "start_ns", "release_ns", "active_release_ns", "stream_ptr", "device"]
    columns += [f"{side}_{total}" for side in ("alloc", "release") for total in TOTALS]
    assert expected.height == 127
    assert found.select(columns).rows() == expected.select(columns).rows()
    # docs/formats/outputs.md 8.1: 48 of 381 records release blocks of earlier allocations.
    assert [(row["issue"], row["count"]) for frame in quality for row in frame.iter_rows(named=True)] == [
        ("allocated-before-recording", 48)
    ]


@all_captures
def test_operators_of_allocations(capture: Tables):
    """The csv does not say which thread allocated: the name must be what one of the threads was running."""
    expected = capture.allocations.filter(pl.col("component") == "PTA")["name"].cast(pl.String).to_list()
    events = raw_events(capture)
    threads = pl.concat([capture.ops.select("pid", "tid"), capture.queue.select("pid", "tid")]).unique().rows()
    names = []
    for pid, tid in threads:
        found, _ = allocations(
            events.with_columns(pid=pl.lit(pid, dtype=pl.Int64), tid=pl.lit(tid, dtype=pl.Int64)), capture.ops, capture.queue
        )
        names.append(found["name"].cast(pl.String).to_list())
    assert len(threads) >= 3
    assert [name for name, *answers in zip(expected, *names, strict=True) if name not in answers] == []
