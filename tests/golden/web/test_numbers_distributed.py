# SPDX-License-Identifier: Apache-2.0
"""Overview, Distributed, Communication and Diff against the shipped files, in plain Python (docs/reference/viewer.md 11)."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from viewer.numbers import LEVELS, each_capture, folder, step_time, table, where


@pytest.mark.parametrize("level", LEVELS)
def test_distributed_bars(npu, golden, level):
    answer = npu.get("distributed/overview", run=level)
    assert answer["workers"] == ["worker0", "worker1"]
    for rank, bars in enumerate(answer["computation"]["rows"]):
        (row,) = table(folder(golden, level, rank) / "step_trace_time.csv")
        computing, overlapped, exposed, free, bubble, preparing = bars
        assert computing + overlapped == step_time(row, "Computing")
        assert overlapped == step_time(row, "Overlapped")
        assert exposed == step_time(row, "Communication(Not Overlapped)")
        assert free == step_time(row, "Free")
        assert (bubble, preparing) == (step_time(row, "Bubble"), step_time(row, "Preparing"))


@pytest.mark.parametrize("rank", [0, 1])
def test_synchronizing_bars_equal_the_elapse_time(npu, golden, rank):
    document = json.loads((folder(golden, "level2", rank) / "communication.json").read_bytes())
    total = [0.0] * 5
    for step in document.values():
        for kind in step.values():
            for name, operator in kind.items():
                if name != "Total Op Info":
                    times = operator["Communication Time Info"]
                    keys = ("Transit Time(ms)", "Synchronization Time(ms)", "Wait Time(ms)", "Idle Time(ms)", "Elapse Time(ms)")
                    total = [value + times[key] for value, key in zip(total, keys, strict=True)]
    transit, sync, wait, idle, elapse = (value * 1000 for value in total)
    bars = npu.get("distributed/overview", run="level2")["synchronizing"]["rows"][rank]
    assert bars == pytest.approx([transit, sync, wait - sync, idle])
    assert sum(bars) == pytest.approx(elapse, rel=1e-3)


def test_bytes_of_communication_count_no_link_twice(npu, golden):
    document = json.loads((folder(golden, "level2", 0) / "communication.json").read_bytes())
    size = calls = elapse = 0.0
    for kind in document["step50"].values():
        for name, operator in kind.items():
            if name != "Total Op Info":
                links = operator["Communication Bandwidth Info"]
                size += (links["RDMA"]["Transit Size(MB)"] + links["SDMA"]["Transit Size(MB)"]) * 1e6
                elapse += operator["Communication Time Info"]["Elapse Time(ms)"] * 1000
                calls += 1
    (row,) = npu.rows("distributed/ops", **where("level2", 0))
    assert (row["Calls"], row["Total Transit Size (bytes)"]) == (calls, pytest.approx(size))
    assert row["Elapse Time (us)"] == pytest.approx(elapse)
    assert row["Avg Transit Size (bytes)"] == pytest.approx(size / calls)
    assert size == pytest.approx(427_596_096)  # docs/reference/viewer.md 4.6


def test_communication_matrix(npu, golden):
    expected = set()
    for rank in (0, 1):
        document = json.loads((folder(golden, "level2", rank) / "communication_matrix.json").read_bytes())
        for kind in document["step50"].values():
            for op, pairs in kind.items():
                expected |= {
                    (op, pair, link["Transport Type"], link["Bandwidth(GB/s)"], round(link["Transit Size(MB)"], 9))
                    for pair, link in pairs.items()
                }
    shown = set()
    for op in npu.get("comm/matrix", run="level2")["ops"]:
        for link in npu.get("comm/matrix", run="level2", op=op)["links"]:
            shown.add((op, f"{link['src']}-{link['dst']}", link["transport"], link["bandwidth"], round(link["size_mb"], 9)))
    assert shown == expected


@each_capture
def test_execution_summary(npu, golden, level, rank):
    (row,) = table(folder(golden, level, rank) / "step_trace_time.csv")
    shown = {name: value for name, value, _ in npu.get("overview", **where(level, rank))["execution"]["rows"]}
    assert shown == {name: step_time(row, name) for name in shown}


def test_diff_of_two_levels_counts_all_threads(npu, golden):
    sides = []
    for level in LEVELS:
        calls: Counter[str] = Counter()
        host: Counter[str] = Counter()
        for row in table(folder(golden, level, 0) / "operator_details.csv"):
            calls[row["Name"]] += 1
            host[row["Name"]] += float(row["Host Self Duration(us)"])
        sides.append((calls, host))
    query = {
        side: "&".join(f"{key}={value}" for key, value in where(level, 0).items()) for side, level in zip("ab", LEVELS, strict=True)
    }
    answer = npu.get("diff", level="operator", metric="host_self", limit=20000, **query)
    columns = [column["name"] for column in answer["table"]["columns"]]
    assert columns[5:9] == [
        "Baseline Self Host Duration (us)",
        "Exp Self Host Duration (us)",
        "Delta Self Host Duration (us)",
        "Delta Self Host Duration%",
    ]
    shown = {row[0]: dict(zip(columns, row, strict=True)) for row in answer["table"]["rows"]}
    assert shown.keys() == sides[0][0].keys() | sides[1][0].keys()
    for name, row in shown.items():
        assert (row["Baseline Calls"], row["Exp Calls"]) == (sides[0][0][name], sides[1][0][name])
        assert row["Delta Calls"] == row["Exp Calls"] - row["Baseline Calls"]
        assert row["Delta Self Host Duration (us)"] == pytest.approx(sides[1][1][name] - sides[0][1][name], abs=1e-3)
    deltas = [abs(row["Delta Self Host Duration (us)"]) for row in shown.values()]
    assert deltas == sorted(deltas, reverse=True)
