"""Real GPU and CPU traces: what is read equals a count made with the standard JSON parser."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import stepscope
from stepscope.analysis.link.capture import link
from stepscope.formats.kineto import read as kineto
from stepscope.tables import Tables

DEVICE_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")
TRACES = (
    "gpu_nccl.pt.trace.json.gz",
    "gpu_train_control.pt.trace.json.gz",
    "mi250_minitoy_train_ROCm6_2_kineto.json.gz",
    "rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz",
    "rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz",
)


@pytest.fixture(scope="module", params=TRACES)
def trace(request, golden: Path) -> tuple[Tables, list[dict[str, Any]], int]:
    path = golden / "kineto" / request.param
    # Numbers with a point stay exact: a double cannot hold microseconds of today with three digits behind the point.
    whole = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
    return kineto.read(path), whole["traceEvents"], whole.get("baseTimeNanoseconds", 0)


def of(events: list[dict[str, Any]], *categories: str) -> list[dict[str, Any]]:
    return [event for event in events if event["ph"] == "X" and event.get("cat") in categories]


def test_tables_are_whole_and_nothing_is_lost(trace):
    tables, _, _ = trace
    tables.check()
    assert tables.quality.height == 0


def test_row_counts(trace):
    tables, events, _ = trace
    assert tables.ops.height == len(of(events, "cpu_op", "user_annotation"))
    assert tables.api_calls.height == len(of(events, "cuda_runtime", "cuda_driver"))
    assert tables.kernels.height == len(of(events, *DEVICE_CATEGORIES))
    assert tables.marks.height == len(of(events, "gpu_user_annotation"))
    assert tables.steps.height == sum(event["name"].startswith("ProfilerStep#") for event in of(events, "user_annotation"))
    assert tables.collectives.height == sum(event["name"].startswith("nccl") for event in of(events, "kernel"))
    assert tables.flows.height == sum(event["ph"] == "s" and event.get("cat") == "fwdbwd" for event in events)


def test_device_time_of_every_stream(trace):
    tables, events, _ = trace
    expected: dict[tuple[int, int], list[Decimal]] = defaultdict(lambda: [Decimal(0), Decimal(0)])
    for event in of(events, *DEVICE_CATEGORIES):
        total = expected[event["args"]["device"], event["args"]["stream"]]
        total[0] += 1
        total[1] += Decimal(event["dur"]) * 1000
    span = (pl.col("end_ns") - pl.col("start_ns")).sum()
    found = tables.kernels.group_by("device", "stream").agg(pl.len(), span)
    assert {(device, stream): [count, time] for device, stream, count, time in found.rows()} == expected


def test_every_start_is_exact(trace):
    tables, events, base_ns = trace
    for table, categories in (("ops", ("cpu_op", "user_annotation")), ("kernels", DEVICE_CATEGORIES)):
        expected = Counter((event["name"], base_ns + int(Decimal(event["ts"]) * 1000)) for event in of(events, *categories))
        assert Counter(tables[table].select("name", "start_ns").rows()) == expected


def test_every_kernel_finds_the_operator_its_ids_name(trace):
    tables, events, base_ns = trace
    linked = link(tables)
    tasks = of(events, *DEVICE_CATEGORIES)
    # Before 2023 the External id of a device task was its correlation id and named nothing.
    names_operators = any(task["args"]["External id"] != task["args"]["correlation"] for task in tasks)
    if not names_operators:
        pytest.skip("no ids of operators on the tasks of this trace")
    operators = {}
    for event in of(events, "cpu_op", "user_annotation"):
        operators.setdefault(event["args"]["External id"], (event["name"], base_ns + int(Decimal(event["ts"]) * 1000)))
    expected = {
        task["args"]["correlation"]: operators[task["args"]["External id"]]
        for task in tasks
        if task["args"]["External id"] in operators
    }
    assert len(expected) > 0.9 * len(tasks)
    owners = linked.ops.select("name", "start_ns").with_row_index("op").cast({"op": pl.Int64})
    pairs = linked.kernels.select("connection_id", "op").join(owners, on="op", how="left")
    found = {correlation: (name, start) for correlation, _, name, start in pairs.rows() if correlation in expected}
    assert found == expected


def test_kernels_without_ids_are_linked_by_their_launch(trace):
    tables, events, _ = trace
    if not tables.kernels.height or tables.kernels["external_id"].count():
        pytest.skip("the tasks of this trace name their operators")
    linked = link(tables)
    calls = {call["args"]["correlation"]: call for call in of(events, "cuda_runtime")}
    ops = linked.ops.select("name", "start_ns", "end_ns", "tid").rows()
    covered = 0
    for correlation, owner in linked.kernels.select("connection_id", "op").rows():
        call = calls[correlation]
        launch = int(Decimal(call["ts"]) * 1000)
        if owner is not None:
            covered += 1
            _, start, end, thread = ops[owner]
            assert start <= launch <= end
            assert thread == call["tid"]
    assert covered > 0.9 * linked.kernels.height


def test_collectives_know_their_group_and_size(golden):
    tables = kineto.read(golden / "kineto" / TRACES[0])
    assert tables.collectives.height == 21
    assert set(tables.collectives["group"].to_list()) == {"0"}
    assert tables.collectives.select(pl.col("bytes", "count", "rank_size", "op_type").null_count()).row(0) == (0, 0, 0, 0)
    assert tables.kernels.filter(pl.col("kind") == "communication").height == 21


@pytest.mark.parametrize(
    ("name", "kind", "rank"), list(zip(TRACES, ("cuda", "cuda", "rocm", "cuda", "cpu"), (0, 3, -1, 0, 34), strict=True))
)
def test_facts(golden, name, kind, rank):
    facts = kineto.read(golden / "kineto" / name).facts
    assert (facts.device_kind, facts.rank, facts.source) == (kind, rank, "kineto")


def events_of(golden: Path, name: str) -> list[dict[str, Any]]:
    return json.loads(gzip.decompress((golden / "kineto" / f"{name}.json.gz").read_bytes()))["traceEvents"]


def test_device_events_of_mtia(golden):
    events = of(events_of(golden, "mtia_inference_rank_0"), "mtia_ccp_events")
    tables = link(kineto.read(golden / "kineto" / "mtia_inference_rank_0.json.gz")).check()
    assert Counter(tables.kernels["name"].to_list()) == Counter(event["name"] for event in events)
    copied = sum(event["args"]["size"] for event in events if event["name"] == "dma_request")
    assert tables.kernels.filter(pl.col("kind") == "memcpy")["bytes"].sum() == copied
    assert set(tables.kernels["stream"].to_list()) == {event["args"]["stream"] for event in events}
    assert (tables.facts.device_kind, tables.facts.device_names) == ("mtia", {"17": "ARTEMIS"})
    assert tables.quality.filter(pl.col("severity") != "note").height == 0


def test_kernels_of_a_graph_keep_the_names_of_its_capture(golden):
    events = events_of(golden, "sglang_decode_graph")
    (launch,) = [event for event in events if event["name"] == "hipGraphLaunch"]
    identity = launch["args"]["correlation"]
    inside = [event["name"] for event in of(events, "kernel") if event["args"]["correlation"] == identity]
    tables = link(kineto.read(golden / "kineto" / "sglang_decode_graph.json.gz"))
    kernels = tables.kernels.filter(pl.col("connection_id") == identity)
    assert Counter(kernels["name"].to_list()) == Counter(inside)
    assert len(inside) == 544
    # All of them were launched by the one call.
    (call,) = tables.api_calls.filter(pl.col("name") == "hipGraphLaunch")["start_ns"].to_list()
    assert kernels["launch_ns"].unique().to_list() == [call]


def test_the_array_of_events_alone_is_read_as_the_whole_trace(golden, tmp_path):
    """Scripts that cut a trace often keep the array and drop the object around it."""
    source = golden / "kineto" / "mi250_minitoy_train_ROCm6_2_kineto.json.gz"
    events = json.loads(gzip.decompress(source.read_bytes()))["traceEvents"]
    (tmp_path / "cut.json").write_text(json.dumps(events))
    whole, alone = (stepscope.open(path).tables for path in (source, tmp_path / "cut.json"))
    for table in ("ops", "kernels", "api_calls", "steps"):
        assert alone[table].height == whole[table].height > 0
    assert alone.kernels["kind"].to_list() == whole.kernels["kind"].to_list()
