"""Real text captures: what the files say must be in the tables, value by value."""

from __future__ import annotations

import csv
import json
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stepscope.formats.ascend import text as ascend_text
from stepscope.formats.ascend.metric_names import is_metric, to_canonical
from stepscope.tables import Facts, Tables

CAPTURES = [f"{level}/rank{rank}" for level in ("level0", "level2") for rank in (0, 1)]
LEVEL2 = [name for name in CAPTURES if name.startswith("level2")]

KERNEL_COLUMNS = {
    "Type": "op_type",
    "OP State": "op_state",
    "Accelerator Core": "core",
    "Block Dim": "block_num",
    "Mix Block Dim": "mix_block_num",
    "HF32 Eligible": "hf32",
    "Input Shapes": "input_shapes",
    "Input Data Types": "input_dtypes",
    "Input Formats": "input_formats",
    "Output Shapes": "output_shapes",
    "Output Data Types": "output_dtypes",
    "Output Formats": "output_formats",
    "Task ID": "task_id",
    "Stream ID": "stream",
    "Context ID": "context_id",
}


@cache
def read(golden: Path, capture: str) -> tuple[Tables, Path]:
    output = golden / "ascend_pt" / "text" / f"{capture}_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    return ascend_text.read(output, Facts(rank=int(capture[-1]))).check(), output


def lines(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def ns(text: str) -> int | None:
    return int(Decimal(text.strip()) * 1000) if text.strip() else None


def scaled(text: str, factor: int) -> float | None:
    return float(text) * factor if text else None


def known(text: str) -> str | None:
    return None if text == "N/A" else text.strip('"')


def is_communication(row: dict[str, str]) -> bool:
    return row["Accelerator Core"] == "HCCL"


@pytest.mark.parametrize("capture", CAPTURES)
def test_facts(golden, capture):
    facts = read(golden, capture)[0].facts
    assert (facts.source, facts.generation, facts.device_ids, facts.rank) == (
        "ascend_text", "G1", (int(capture[-1]),), int(capture[-1]))  # fmt: skip


@pytest.mark.parametrize("capture", CAPTURES)
def test_every_kernel_row(golden, capture):
    tables, output = read(golden, capture)
    expected = [row for row in lines(output / "kernel_details.csv") if not is_communication(row)]
    kernels = tables.kernels.with_row_index("kernel").filter(pl.col("kind") == "compute")
    assert kernels.height == len(expected) == 187
    assert tables.quality.height == 0
    metrics = {row["kernel"]: row for row in tables.kernel_metrics.iter_rows(named=True)}
    for row, actual in zip(expected, kernels.iter_rows(named=True), strict=True):
        assert (actual["name"], actual["start_ns"]) == (row["Name"], ns(row["Start Time(us)"]))
        assert actual["duration_ns"] == pytest.approx(ns(row["Duration(us)"]), abs=0.501)  # the csv rounds to whole ns
        assert actual["device"] == int(capture[-1])
        for title, column in KERNEL_COLUMNS.items():
            if title in row and known(row[title]) is not None:
                assert str(actual[column]) == known(row[title]), title
        counters = {title: text for title, text in row.items() if is_metric(title) and known(text) is not None}
        values = metrics.get(actual["kernel"], {"kernel": None})
        assert {name for name, value in values.items() if value is not None} - {"kernel"} == {
            to_canonical(title)[0] for title in counters
        }
        for title, text in counters.items():
            name, factor = to_canonical(title)
            assert values[name] == float(Decimal(text) * int(factor)), title


@pytest.mark.parametrize("capture", CAPTURES)
def test_every_communication_row(golden, capture):
    tables, output = read(golden, capture)
    expected = [row for row in lines(output / "kernel_details.csv") if is_communication(row)]
    assert tables.collectives["name"].to_list() == [row["Name"] for row in expected]
    for row, actual in zip(expected, tables.collectives.iter_rows(named=True), strict=True):
        # The csv cuts off what the timeline rounds.
        assert actual["start_ns"] - (ns(row["Start Time(us)"]) or 0) in (0, 1)
        assert int(actual["duration_ns"]) == ns(row["Duration(us)"])
        if known(row["Type"]):
            assert actual["op_type"] == row["Type"]


@pytest.mark.parametrize("capture", CAPTURES)
def test_every_memory_record(golden, capture):
    tables, output = read(golden, capture)
    rows = lines(output / "memory_record.csv")
    parts = {name: [row for row in rows if row["Component"] == name] for name in ("APP", "PTA", "GE", "PTA+GE", "WORKSPACE")}
    assert sum(map(len, parts.values())) == len(rows)
    totals = ("Total Allocated(MB)", "Total Reserved(MB)", "Total Active(MB)")
    expected = [
        (
            ns(row["Timestamp(us)"]),
            name,
            *(scaled(row[title], 1 << 20) for title in totals),
            int(row["Stream Ptr"]) if row["Stream Ptr"] else None,
            int(row["Device Type"][4:]),
        )
        for name in ("PTA", "GE", "WORKSPACE")
        for row in parts[name]
    ]
    names = ("time_ns", "component", "total_allocated", "total_reserved", "total_active", "stream_ptr", "device")
    assert sorted(tables.memory_events.select(names).rows(), key=repr) == sorted(expected, key=repr)
    app = tables.counters.filter(pl.col("name") == "APP/Memory")
    assert dict(app.select("time_ns", "value").rows()) == {
        ns(row["Timestamp(us)"]): scaled(row["Total Reserved(MB)"], 1024) for row in parts["APP"]
    }


@pytest.mark.parametrize("capture", CAPTURES)
def test_every_allocation(golden, capture):
    tables, output = read(golden, capture)
    titles = ("Allocation Total Allocated", "Allocation Total Reserved", "Release Total Allocated", "Release Total Active")
    expected = [
        (row["Name"].removeprefix("cann::"), "GE" if row["Name"].startswith("cann::") else "PTA", float(row["Size(KB)"]) * 1024,
         ns(row["Allocation Time(us)"]), ns(row["Release Time(us)"]), ns(row["Active Release Time(us)"]),
         *(scaled(row[f"{title}(MB)"], 1 << 20) for title in titles), int(row["Device Type"][4:]))
        for row in lines(output / "operator_memory.csv")
    ]  # fmt: skip
    names = ("name", "component", "bytes", "start_ns", "release_ns", "active_release_ns", "alloc_total_allocated",
             "alloc_total_reserved", "release_total_allocated", "release_total_active", "device")  # fmt: skip
    assert sorted(tables.allocations.select(names).rows(), key=repr) == sorted(
        ((*row[:2], int(row[2]), *row[3:]) for row in expected), key=repr)  # fmt: skip


@pytest.mark.parametrize("capture", CAPTURES)
def test_every_module_memory_and_cache_row(golden, capture):
    tables, output = read(golden, capture)
    modules = tables.counters.filter(pl.col("source") == "NPU Module Mem").select(
        pl.col("name").cast(pl.String), "time_ns", "value", "device"
    )
    expected = [
        (row["Component"], ns(row["Timestamp(us)"]), scaled(row["Total Reserved(MB)"], 1024), int(row["Device"][4:]))
        for row in lines(output / "npu_module_mem.csv")
    ]
    assert sorted(modules.rows()) == sorted(expected)
    cache = [
        ("l2", int(capture[-1]), int(row["Stream Id"]), int(row["Task Id"]), known(row["Op Name"]), None, float(row["Victim Rate"]))
        for row in lines(output / "l2_cache.csv")
    ]
    assert tables.cache_rates.rows() == cache


@pytest.mark.parametrize("capture", LEVEL2)
def test_every_communication_operator(golden, capture):
    tables, output = read(golden, capture)
    content: dict[str, Any] = json.loads((output / "communication.json").read_text())["step50"]["collective"]
    content.pop("Total Op Info")
    keys = [tuple(key.split("@")) for key in content]
    assert tables.collective_times.select("name", "group").rows() == keys
    named = tables.collectives.with_row_index("row")
    assert tables.collective_times["collective"].to_list() == [
        named.filter(pl.col("name") == name)["row"].item() for name, _ in keys
    ]
    assert dict(tables.collectives.select("name", "group").rows()) == dict(keys)
    for info, row in zip(content.values(), tables.collective_times.iter_rows(named=True), strict=True):
        times = info["Communication Time Info"]
        titles = ("Start Timestamp(us)", "Elapse Time(ms)", "Synchronization Time(ms)", "Idle Time(ms)")
        assert [row[name] for name in ("start_us", "elapse_ms", "sync_ms", "idle_ms")] == [times[title] for title in titles]
    packets = [
        (*key, transport, values["Transit Size(MB)"], values["Bandwidth(GB/s)"], *packet)
        for key, info in zip(keys, content.values(), strict=True)
        for transport, values in info["Communication Bandwidth Info"].items()
        if values["Size Distribution"] or values["Transit Time(ms)"]  # the file also lists transports that were not used
        for packet in [(float(size), *counted) for size, counted in values["Size Distribution"].items()] or [(None, None, None)]
    ]
    names = ("name", "group", "transport", "transit_mb", "bandwidth", "packet_mb", "packets", "packets_ms")
    assert tables.collective_packets.select(names).rows() == packets
    assert tables.collective_links.height == 0  # the matrix of a parsed capture holds no single operators


@pytest.mark.parametrize("capture", CAPTURES)
def test_kernels_alone_when_the_trace_is_gone(golden, capture, tmp_path):
    tables, output = read(golden, capture)
    (tmp_path / "kernel_details.csv").write_bytes((output / "kernel_details.csv").read_bytes())
    alone = ascend_text.read(tmp_path, Facts()).check()
    assert alone.kernels.height == 187
    assert alone.collectives.height == 4
    whole = tables.kernels.filter(pl.col("kind") == "compute")
    columns = ["name", "start_ns", "op_type", "core", "input_shapes", "block_num"]
    assert alone.kernels.select(columns).equals(whole.select(columns))
    assert alone.kernel_metrics.drop("kernel").equals(tables.kernel_metrics.drop("kernel"))
