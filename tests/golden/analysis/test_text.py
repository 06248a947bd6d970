"""Recompute the shipped files of the parsed text captures from their own timeline (docs/formats/outputs.md 15).

Every row of every file is compared. The captures are of layout generation G1.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import polars as pl
import pytest

from stepscope.analysis.flows import enqueue_to_dequeue, forward_backward_flows
from stepscope.analysis.link.capture import link
from stepscope.analysis.operators import operator_details
from stepscope.analysis.overlap import LAYERS, layers
from stepscope.analysis.statistics import api_statistic, kernel_rows, op_statistic, waits
from stepscope.analysis.step_time import step_trace_time
from stepscope.formats.ascend.text import read
from stepscope.tables import Facts, Tables

CAPTURES = [f"level{level}/rank{rank}_ascend_pt" for level in (0, 2) for rank in (0, 1)]
STATISTICS = CAPTURES[2:]


@cache
def _capture(output: Path) -> Tables:
    return link(read(output, Facts(generation="G1"))).check()


@cache
def _events(output: Path) -> tuple[dict, ...]:
    return tuple(json.loads((output / "trace_view.json").read_bytes()))


@pytest.fixture
def output(golden: Path, request: pytest.FixtureRequest) -> Path:
    return golden / "ascend_pt" / "text" / request.param / "ASCEND_PROFILER_OUTPUT"


@pytest.fixture
def capture(output: Path) -> Tables:
    return _capture(output)


@pytest.fixture
def events(output: Path) -> tuple[dict, ...]:
    return _events(output)


def shipped(output: Path, name: str) -> pl.DataFrame:
    return pl.read_csv(output / name, infer_schema_length=None)


def nanoseconds(text: str) -> int:
    whole, _, fraction = text.strip().partition(".")
    return int(whole) * 1000 + int(fraction.ljust(3, "0")[:3])


def close(found: pl.Series, expected: pl.Series, within: float) -> bool:
    return bool((found - expected.cast(pl.Float64)).abs().max() <= within)


all_captures = pytest.mark.parametrize("output", CAPTURES, indirect=True)


@all_captures
def test_operator_details(output: Path, capture: Tables):
    expected = shipped(output, "operator_details.csv")
    found = operator_details(capture)
    assert found.height == expected.height == 859
    assert found["name"].cast(pl.String).to_list() == expected["Name"].to_list()
    for ours, theirs in (("shapes", "Input Shapes"), ("stack", "Call Stack")):
        cells = expected[theirs].cast(pl.String).fill_null("").str.replace_all("\r?\n", "")
        assert found[ours].cast(pl.String).fill_null("").to_list() == cells.to_list()
    names = ["Host Self", "Host Total", "Device Self", "Device Total"]
    columns = [f"{name} Duration(us)" for name in names] + [f"Device {part} Duration With AICore(us)" for part in ("Self", "Total")]
    times = ["host_self_ns", "host_total_ns", "device_self_ns", "device_total_ns", "aicore_self_ns", "aicore_total_ns"]
    for ours, theirs in zip(times, columns, strict=True):
        assert close(found[ours] / 1000, expected[theirs], 1e-7), theirs


@all_captures
def test_kernel_steps_and_waiting_time(output: Path, capture: Tables):
    expected = shipped(output, "kernel_details.csv")
    found = kernel_rows(capture)
    assert found.height == expected.height == 191
    starts = pl.Series([nanoseconds(cell) for cell in expected["Start Time(us)"].cast(pl.String)])
    assert close(found["start_ns"] - starts, 0 * starts, 1)  # the timeline and the table round differently
    assert found["step"].to_list() == expected["Step Id"].cast(pl.Int64).to_list()
    assert close(found["wait_ns"] / 1000, expected["Wait Time(us)"], 0.0021)
    cells = pl.DataFrame({"device": 0, "start_ns": starts, "end_ns": starts, "duration_ns": expected["Duration(us)"] * 1000})
    assert close(cells.select(waits()).to_series() / 1000, expected["Wait Time(us)"], 0.0011)


@all_captures
def test_step_trace_time(output: Path, capture: Tables):
    expected = shipped(output, "step_trace_time.csv")
    found = step_trace_time(capture)
    assert found["step"].to_list() == expected["Step"].to_list() == [50]
    values = found.drop("device", "step")
    # The file's durations have digits below the nanosecond, and its Stage and Preparing are quantised to 0.25 us.
    for ours, theirs in zip(values.columns, expected.columns[1:], strict=True):
        assert close(values[ours] / 1000, expected[theirs], 0.5 if theirs in ("Stage", "Preparing") else 0.03), theirs


@all_captures
def test_overlap_layers(capture: Tables, events: tuple[dict, ...]):
    found = layers(capture.kernels, capture.collectives, whole_device=False)
    for layer in LAYERS:
        expected = sorted((nanoseconds(event["ts"]), event["dur"]) for event in events if event["name"] == layer)
        ours = found.filter(pl.col("layer") == layer)
        assert ours.height == len(expected), layer
        assert all(abs(a - b) <= 1 for a, (b, _) in zip(ours["start_ns"], expected, strict=True)), layer
        length = (ours["end_ns"] - ours["start_ns"]) / 1000
        assert close(length, pl.Series([duration for _, duration in expected]), 0.003), layer


@pytest.mark.parametrize("output", STATISTICS, indirect=True)
def test_op_statistic(output: Path, capture: Tables):
    expected = shipped(output, "op_statistic.csv")
    found = op_statistic(capture)
    keys = ["op_type", "core", "count"]
    assert (
        found.select(pl.col(keys).cast(pl.String)).rows()
        == expected.select(pl.col("OP Type", "Core Type", "Count").cast(pl.String)).rows()
    )
    for ours, theirs in (("total_ns", "Total"), ("min_ns", "Min"), ("avg_ns", "Avg"), ("max_ns", "Max")):
        assert close(found[ours] / 1000, expected[f"{theirs} Time(us)"], 0.007 if theirs == "Total" else 0.00051), theirs
    assert close(found["ratio"], expected["Ratio(%)"], 0.00051)


@pytest.mark.parametrize("output", STATISTICS, indirect=True)
def test_api_statistic(output: Path, capture: Tables):
    expected = shipped(output, "api_statistic.csv").with_columns(pl.col("Level").replace("hccl", "communication"))
    found = api_statistic(capture).with_columns(pl.col("level").cast(pl.String).replace("hccl", "communication"))
    keys = found.select(pl.col("level", "name").cast(pl.String), "count").rows()
    assert keys == expected.select("Level", "API Name", "Count").rows()
    for ours, theirs in (("total_ns", "Time"), ("avg_ns", "Avg"), ("min_ns", "Min"), ("max_ns", "Max")):
        assert close(found[ours] / 1000, expected[f"{theirs}(us)"], 1e-6), theirs
    assert close(found["variance_us2"], expected["Variance"], 0.00075)


def arrows(events: tuple[dict, ...], category: str) -> list[tuple]:
    """Pairs of a flow category in file order: start and end as (pid, tid, ns)."""
    chosen = [event for event in events if event.get("cat") == category]
    ends = {event["id"]: event for event in chosen if event["ph"] == "f"}
    place = lambda event: (event["pid"], event["tid"], nanoseconds(event["ts"]))  # noqa: E731
    return [(int(event["id"]), place(event), place(ends[event["id"]])) for event in chosen if event["ph"] == "s"]


@all_captures
def test_operator_to_kernel_flows(capture: Tables, events: tuple[dict, ...]):
    expected = arrows(events, "async_npu")
    where = capture.ops.select("pid", "tid", "start_ns").rows()
    found = pl.concat([capture[name].select("op", "start_ns") for name in ("kernels", "collectives")]).drop_nulls("op")
    assert found.height == len(expected) == 210
    assert {(where[op], at) for op, at in found.iter_rows()} == {(start, end[2]) for _, start, end in expected}


@all_captures
def test_forward_backward_flows(capture: Tables, events: tuple[dict, ...]):
    flows = forward_backward_flows(capture.ops)
    ours = {(row[0], row[1:4], row[4:7]) for row in flows.drop("kind").iter_rows()}
    expected = arrows(events, "fwdbwd")
    assert flows.height == len(expected) == 27
    assert ours == set(expected)


@all_captures
def test_queue_flows(capture: Tables, events: tuple[dict, ...]):
    pairs = enqueue_to_dequeue(capture.queue)
    where = capture.queue.select("pid", "tid", "start_ns").rows()
    ours = {(number, where[start], where[end]) for number, start, end in pairs.iter_rows()}
    assert len(ours) == 159
    assert ours == set(arrows(events, "async_task_queue"))


@all_captures
def test_nothing_is_left_without_operator(capture: Tables):
    assert capture.quality.filter(pl.col("source") == "link").height == 0
