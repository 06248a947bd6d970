# SPDX-License-Identifier: Apache-2.0
"""The NPU Kernel view against kernel_details.csv, computed here in plain Python (docs/reference/viewer.md 11)."""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict

import pytest
from viewer.numbers import CAPTURES, Viewer, each_capture, first_event, folder, ns, table, where


@each_capture
def test_every_kernel_with_every_column_of_the_file(npu, golden, level, rank):
    rows = table(folder(golden, level, rank) / "kernel_details.csv")
    page = npu.get("kernels", group="all", limit=20000, **where(level, rank))
    titles = [column["name"] for column in page["columns"]]
    assert titles[: len(rows[0])] == list(rows[0])
    assert [column["shown"] for column in page["columns"]][: len(rows[0])] == [place < 20 for place in range(len(rows[0]))]
    assert len(page["rows"]) == len(rows)
    place, base = [column["key"] for column in page["columns"]].index("start_ms"), first_event(golden, level, rank)
    for row, shown in zip(rows, page["rows"], strict=True):
        for title, cell in zip(rows[0], shown, strict=False):
            text = row[title].strip()
            if title == "Wait Time(us)":
                # The file subtracts times whose parts of a nanosecond it has cut, the page those that it shows.
                assert cell == pytest.approx(float(text), abs=0.0021)
            elif title == "Start Time(us)":
                # A float of microseconds since 1970 has steps of 0.25; the column beside it is exact. The file has
                # communication operators a nanosecond before the timeline.
                assert cell == pytest.approx(float(text), abs=0.25)
                assert base + round(shown[place] * 1e6) == pytest.approx(ns(text), abs=1)
            elif isinstance(cell, (int, float)) or cell is None:
                assert (float(text) if text not in ("", "N/A") else None) == cell, title
            else:
                assert text == cell, title


@each_capture
def test_kernel_statistic(npu, golden, level, rank):
    durations = defaultdict(list)
    cores, blocks = defaultdict(set), defaultdict(set)
    for row in table(folder(golden, level, rank) / "kernel_details.csv"):
        durations[row["Name"]].append(float(row["Duration(us)"]))
        cores[row["Name"]].add(row["Accelerator Core"])
        blocks[row["Name"]].add(row.get("Block Dim", ""))
    shown = npu.rows("kernels", group="statistic", **where(level, rank))
    assert len(shown) == len(durations)
    for row in shown:
        values = durations[row["Operator"]]
        assert row["Calls"] == len(values)
        assert row["Total Duration (us)"] == pytest.approx(sum(values))
        assert row["Avg Duration (us)"] == pytest.approx(sum(values) / len(values))
        assert (row["Max Duration (us)"], row["Min Duration (us)"]) == (max(values), min(values))
        assert set(row["Accelerator Core"].split(", ")) == cores[row["Operator"]]
        assert set(row["Block Dim"].split(", ")) - {""} == blocks[row["Operator"]] - {"", "N/A"}
    totals = [row["Total Duration (us)"] for row in shown]
    assert totals == sorted(totals, reverse=True)


@each_capture
@pytest.mark.parametrize("comm", [0, 1])
def test_accelerator_core_utilization(npu, golden, level, rank, comm):
    sums: Counter[str] = Counter()
    for row in table(folder(golden, level, rank) / "kernel_details.csv"):
        if comm or row["Accelerator Core"] not in ("HCCL", "COMMUNICATION"):
            sums["Using " + row["Accelerator Core"].replace("_", " ")] += float(row["Duration(us)"])
    pie = npu.get("kernels/pies", comm=comm, **where(level, rank))["pies"][1]
    assert {item["name"]: item["value"] for item in pie["items"]} == pytest.approx(dict(sums))


@each_capture
def test_kernel_rows_lead_to_their_slices(npu, level, rank):
    page = npu.get("kernels", group="all", limit=20000, **where(level, rank))
    names = [column["key"] for column in page["columns"]]
    for row in page["rows"][::25]:
        found = npu.get("trace/slice", id=row[names.index("slice")], **where(level, rank))
        assert found["name"] == row[names.index("Name")]
        assert found["start_ns"] / 1e6 == pytest.approx(row[names.index("start_ms")], abs=2e-6)


def test_databases_show_the_same_kernels(golden, npu, tmp_path, monkeypatch):
    """The same workload read from a database has the same kernels by name, although no kernel_details.csv is there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    viewer = Viewer(golden / "ascend_pt" / "db")
    try:
        rows = {row["Operator"]: row["Calls"] for row in viewer.rows("kernels", run="level2", worker="0", comm=0)}
        text = {row["Operator"]: row["Calls"] for row in npu.rows("kernels", comm=0, **where("level2", 0))}
        assert sum(rows.values()) == sum(text.values())
        assert viewer.get("trace/meta", run="level2", worker="0")["slices"] > 4000
        assert {"Operator", "NPU Kernel", "Trace", "Memory"} <= set(viewer.get("runs")["runs"][1]["views"])
    finally:
        viewer.catalogue.close()


def test_types_of_op_statistic_where_the_kernels_are_gone(golden, tmp_path):
    source = folder(golden, *CAPTURES[-1]) / "op_statistic.csv"
    output = tmp_path / "run" / "worker_1" / "ASCEND_PROFILER_OUTPUT"
    output.mkdir(parents=True)
    shutil.copy(source, output)
    viewer = Viewer(tmp_path)
    try:
        query = {"run": "run", "worker": "worker", "span": "1"}
        page = viewer.get("kernels", group="type", **query)
        assert [(row[0], row[1], row[2]) for row in page["rows"]] == [
            (row["OP Type"], int(row["Count"]), float(row["Total Time(us)"])) for row in table(source)
        ]
        assert any("op_statistic.csv" in note for note in page["notes"])
        pies = viewer.get("kernels/pies", top=0, **query)
        assert pies["cores"]
    finally:
        viewer.catalogue.close()
