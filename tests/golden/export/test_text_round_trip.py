"""A real text capture, read and written again: every file equals the shipped one, value by value.

The captures are of the first layout generation, the files we write of the current one: renamed columns, a device column,
layers with other numbers. Nothing else may differ, except where the reference lost digits (docs/formats/outputs.md 7, 9).
"""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from stepscope.analysis.link.capture import link
from stepscope.export.text_files import write_text
from stepscope.formats.ascend import text as ascend_text
from stepscope.formats.ascend.profiler_info import read_capture_facts
from stepscope.tables import Tables

OUTPUT = "ASCEND_PROFILER_OUTPUT"
CAPTURES = ["level0/rank0_ascend_pt", "level0/rank1_ascend_pt", "level2/rank0_ascend_pt", "level2/rank1_ascend_pt"]
# Blocks of the graph engine stand in the order of their release in the shipped file, in ours in that of allocation.
UNORDERED = ("op_statistic.csv", "api_statistic.csv", "operator_memory.csv")
RENAMED = {"Block Dim": "Block Num", "Mix Block Dim": "Mix Block Num"}
REWORDED = {("Accelerator Core", "HCCL"): "COMMUNICATION", ("Level", "hccl"): "communication"}
# Largest difference by file and column; all other numbers are equal to the last digit.
TOLERANCE = {
    # The shipped file has the communication operators a nanosecond before the timeline.
    ("kernel_details.csv", "Start Time(us)"): 0.0011,
    ("kernel_details.csv", "Wait Time(us)"): 0.0021,
    ("step_trace_time.csv", "Stage"): 0.5,
    ("step_trace_time.csv", "Preparing"): 0.5,
    # Sums of many durations: the last digits depend on the order.
    ("step_trace_time.csv", ""): 0.03,
    ("operator_details.csv", ""): 1e-9,
    ("op_statistic.csv", ""): 0.0075,
    ("api_statistic.csv", "Avg(us)"): 0.00051,
    ("api_statistic.csv", "Variance"): 0.0011,
}


@pytest.fixture(scope="module", params=CAPTURES)
def rewritten(request, golden, tmp_path_factory):
    capture = golden / "ascend_pt" / "text" / request.param
    facts, _ = read_capture_facts(capture)
    tables = link(ascend_text.read(capture / OUTPUT, facts))
    folder = tmp_path_factory.mktemp("written") / OUTPUT
    write_text(tables, folder)
    return capture / OUTPUT, folder, tables


def test_the_same_files_appear(rewritten):
    shipped, ours, _ = rewritten
    # docs/formats/outputs.md 1.1: task_time.csv came with the current generation.
    assert {path.name for path in ours.iterdir()} == {path.name for path in shipped.iterdir()} | {"task_time.csv"}


@pytest.mark.parametrize(
    "name",
    [
        "kernel_details.csv",
        "operator_details.csv",
        "step_trace_time.csv",
        "op_statistic.csv",
        "api_statistic.csv",
        "memory_record.csv",
        "operator_memory.csv",
        "npu_module_mem.csv",
        "l2_cache.csv",
    ],
)
def test_csv_values_equal_the_shipped_ones(rewritten, name):
    shipped, ours, _ = rewritten
    if not (shipped / name).exists():
        pytest.skip(f"this capture has no {name}")
    wanted, found = rows_of(shipped / name), rows_of(ours / name)
    assert len(found) == len(wanted)
    if name in UNORDERED:
        wanted, found = sorted(wanted, key=identity), sorted(found, key=identity)
    different = [
        (number, column, value, row.get(column))
        for number, (want, row) in enumerate(zip(wanted, found, strict=True))
        for column, value in want.items()
        if not same(name, column, value, row.get(column, "no such column"))
    ]
    assert not different, different[:10]


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as handle:
        rows = csv.DictReader(handle)
        return [{RENAMED.get(key, key): value.replace("\r\n", "\n") for key, value in row.items()} for row in rows]


def identity(row: dict[str, str]) -> list[str]:
    keys = ("OP Type", "Core Type", "API Name", "Allocation Time(us)", "Name", "Size(KB)")
    return [row.get(key, "") for key in keys] + [REWORDED.get(("Level", row.get("Level", "")), row.get("Level", ""))]


def same(name: str, column: str, want: str, found: str) -> bool:
    want = REWORDED.get((column, want), want)
    if want == found:
        return True
    try:
        one, other = float(want), float(found)
    except ValueError:
        return False
    if column in ("Start Time(us)", "Timestamp(us)"):
        return abs(nanoseconds(want) - nanoseconds(found)) <= 1000 * TOLERANCE.get((name, column), 0)
    limit = TOLERANCE.get((name, column), TOLERANCE.get((name, ""), 0.0))
    return abs(one - other) <= limit


def nanoseconds(text: str) -> int:
    whole, _, part = text.strip().partition(".")
    return int(whole) * 1000 + int(part.ljust(3, "0")[:3])


def test_timeline_events_equal_the_shipped_ones(rewritten):
    shipped, ours, _ = rewritten
    wanted, found = (normal(json.loads((folder / "trace_view.json").read_text("utf-8"))) for folder in (shipped, ours))
    assert sorted(wanted) == sorted(found)
    different = [
        (key, lengths, found[key])
        for key, lengths in wanted.items()
        if len(lengths) != len(found[key]) or any(abs(a - b) > 1e-6 for a, b in zip(lengths, found[key], strict=True))
    ]
    assert not different, different[:5]


def test_overlap_layers_equal_the_shipped_ones(rewritten):
    shipped, ours, _ = rewritten
    wanted, found = (overlap(json.loads((folder / "trace_view.json").read_text("utf-8"))) for folder in (shipped, ours))
    assert {layer: len(lengths) for layer, lengths in found.items()} == {layer: len(lengths) for layer, lengths in wanted.items()}
    for layer, lengths in wanted.items():
        # Digits below 1 ns per span (docs/formats/outputs.md 2.6).
        assert sum(found[layer]) == pytest.approx(sum(lengths), abs=0.12), layer


def overlap(events: list[dict[str, Any]]) -> dict[str, list[float]]:
    spans: dict[str, list[float]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X" and event["name"] in ("Computing", "Communication", "Communication(Not Overlapped)", "Free"):
            spans[event["name"]].append(event["dur"])
    return spans


def normal(events: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Events as comparable text with their durations in ns: pids by the layer they stand for, arrows by their two ends."""
    layer = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    layer = {pid: "Communication" if name == "HCCL" else name for pid, name in layer.items()}
    shown: dict[str, list[float]] = defaultdict(list)
    arrows: dict[tuple[str, str], dict[str, list[tuple[Any, ...]]]] = {}
    for event in events:
        place = layer.get(event["pid"], "CANN")  # level 0 leaves that layer without a name
        if event["ph"] == "M":
            # Planes without tasks, and at level 0 threads without arrows, leave nothing to know them by.
            if event["name"] == "thread_name" and place not in ("Communication", "CANN"):
                shown[f"thread {place} {event['tid']} {event['args']['name']}"].append(0)
        elif event["ph"] in "sf":
            ends = arrows.setdefault((event["cat"], str(event["id"])), {"s": [], "f": []})
            ends[event["ph"]].append((place, event["tid"], event["ts"], event.get("bp") if event["ph"] == "f" else None))
        elif place != "Overlap Analysis":
            shown[json.dumps(plain(event, place), sort_keys=True)].append(event.get("dur", 0) * 1000)
    for (category, _), ends in arrows.items():
        shown[f"arrow {category} {ends['s']} {sorted(ends['f'])}"].append(0)
    return {key: sorted(lengths) for key, lengths in shown.items()}


def plain(event: dict[str, Any], place: str) -> dict[str, Any]:
    args = {
        {"data size(Byte)": "size(B)", "memcpy direction": "operation"}.get(key, key): "communication" if value == "hccl" else value
        for key, value in event.get("args", {}).items()
    }
    if place == "Ascend Hardware":
        args.pop("bandwidth(GB/s)", None)
    if place == "CANN":
        args.pop("Thread Id")
    ts = nanoseconds(event["ts"])
    name = event["name"].replace("Hccl@", "Communication@").replace("write_band_width", "write_bandwidth")
    # The current generation names the task also where it is put into the queue; `test_link` says with which name.
    name = name.partition("@")[0] if name.startswith("Enqueue") else name
    args = {key: round(float(value), 9) if isinstance(value, float | int) else value for key, value in args.items()}
    return {"ph": event["ph"], "name": name, "at": place, "tid": event["tid"], "ts": ts, "args": args}


def test_reading_our_files_gives_the_same_tables(rewritten):
    _, ours, tables = rewritten
    again = link(ascend_text.read(ours, tables.facts))
    # A timeline of the current generation names the core as task type, one of the first says AI_CORE for all: at level 0,
    # where no other file names the core, the reader cannot know which it has.
    unsure = {"kernels": ["core"]} if tables.facts.level == "Level0" else {}
    for name in tables.filled():
        # The free time of a capture reaches as far as its generation has it, and what we write is of the current one.
        if name not in ("meta", "quality", "overlap"):
            assert comparable(again, name, unsure).equals(comparable(tables, name, unsure)), name


def comparable(tables: Tables, name: str, unsure: dict[str, list[str]]) -> pl.DataFrame:
    return tables[name].drop(unsure.get(name, [])).with_columns(pl.col(pl.Categorical).cast(pl.String))
