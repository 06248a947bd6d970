# SPDX-License-Identifier: Apache-2.0
"""Runs and the Operator view against operator_details.csv, computed here in plain Python (docs/reference/viewer.md 11)."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import pytest
from viewer.numbers import each_capture, folder, ns, table, timeline, where


def test_runs_workers_and_spans_of_the_literal_layout(npu):
    runs = npu.get("runs")["runs"]
    assert [
        (run["name"], [(worker["name"], [span["name"] for span in worker["spans"]]) for worker in run["workers"]]) for run in runs
    ] == [
        ("level0", [("worker0", ["1"]), ("worker1", ["1"])]),
        ("level2", [("worker0", ["1"]), ("worker1", ["1"])]),
    ]
    assert runs[1]["views"][:6] == ["Verdict", "Cluster", "Overview", "Operator", "NPU Kernel", "Trace"]
    assert {"Memory", "Distributed", "Communication"} <= set(runs[1]["views"])


@each_capture
@pytest.mark.parametrize("group", ["op", "op_shape"])
def test_operators(npu, golden, level, rank, group):
    """Self times and calls are sums over the rows; a total leaves out calls inside a call of the same name."""
    rows = table(folder(golden, level, rank) / "operator_details.csv")
    titles = ("Device Self Duration", "Host Self Duration", "Device Self Duration With AICore")
    sums: defaultdict[tuple, list[float]] = defaultdict(lambda: [0.0] * 4)
    plain: defaultdict[tuple, list[float]] = defaultdict(lambda: [0.0] * 2)
    for row in rows:
        shapes = row["Input Shapes"].replace("\r", "").replace("\n", "").strip('"')
        shown = f"[[{shapes.replace(';', '],[')}]]" if shapes else ""
        key = (row["Name"], shown) if group == "op_shape" else (row["Name"],)
        for place, title in enumerate(titles):
            sums[key][place] += float(row[f"{title}(us)"])
        sums[key][3] += 1
        plain[key][0] += float(row["Device Total Duration(us)"])
        plain[key][1] += float(row["Host Total Duration(us)"])
    shown_rows = npu.rows("operators", group=group, **where(level, rank))
    assert len(shown_rows) == len(sums)
    for row in shown_rows:
        key = (row["Name"], row["Input Shapes"]) if group == "op_shape" else (row["Name"],)
        device, host, aicore, calls = sums[key]
        assert row["Calls"] == calls
        # The file cuts device times to three digits, the viewer adds what the timeline says.
        assert row["Device Self Duration (us)"] == pytest.approx(device, abs=0.002 * calls)
        assert row["Host Self Duration (us)"] == pytest.approx(host, abs=1e-6 * calls)
        assert row["AI Cores Self (%)"] == pytest.approx(100 * aicore / device if device else 0, abs=0.01)
        assert row["Device Total Duration (us)"] <= plain[key][0] + 0.01
        assert row["Host Total Duration (us)"] <= plain[key][1] + 0.01
    order = [row["Device Self Duration (us)"] for row in shown_rows]
    assert order == sorted(order, reverse=True)


def nested(golden: Path, level: str, rank: int) -> dict[str, list[float]]:
    """Host total by name of the timeline's operators, calls inside a call of the same name left out."""
    by_thread = defaultdict(list)
    for event in timeline(folder(golden, level, rank) / "trace_view.json"):
        if event.get("cat") == "cpu_op" and not event["name"].startswith("ProfilerStep#"):
            start = ns(event["ts"])
            by_thread[event["tid"]].append((start, -(start + ns(event["dur"])), event["name"]))
    totals: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for events in by_thread.values():
        open_calls: list[tuple[int, str]] = []
        for start, negative_end, name in sorted(events):
            while open_calls and start > open_calls[-1][0]:
                open_calls.pop()
            totals[name][1] += (-negative_end - start) / 1000
            if name not in [other for _, other in open_calls]:
                totals[name][0] += (-negative_end - start) / 1000
            open_calls.append((-negative_end, name))
    return totals


@each_capture
def test_operator_totals_count_no_time_twice(npu, golden, level, rank):
    expected = nested(golden, level, rank)
    shown = {row["Name"]: row["Host Total Duration (us)"] for row in npu.rows("operators", **where(level, rank))}
    assert shown == pytest.approx({name: outer for name, (outer, _) in expected.items()}, abs=1e-3)
    assert any(outer < plain - 1 for outer, plain in expected.values())


@each_capture
def test_operator_pies_show_the_largest_and_the_rest(npu, golden, level, rank):
    rows = table(folder(golden, level, rank) / "operator_details.csv")
    sums: Counter[str] = Counter()
    for row in rows:
        sums[row["Name"]] += float(row["Host Self Duration(us)"])
    pie = next(pie for pie in npu.get("operators/pies", top=10, **where(level, rank))["pies"] if pie["key"] == "host_self")
    largest = sums.most_common(10)
    assert [item["name"] for item in pie["items"]] == [name for name, _ in largest]
    assert [item["value"] for item in pie["items"]] == pytest.approx([value for _, value in largest])
    assert pie["other"] == pytest.approx(sum(sums.values()) - sum(value for _, value in largest))


@each_capture
def test_operator_stacks(npu, golden, level, rank):
    calls: Counter[str] = Counter()
    for row in table(folder(golden, level, rank) / "operator_details.csv"):
        if row["Name"] == "aten::empty" and row["Call Stack"]:
            calls[";".join(part.strip() for part in row["Call Stack"].replace("\r\n", "").split(";") if part.strip())] += 1
    answer = npu.get("operators/stacks", name="aten::empty", **where(level, rank))
    place = [column["key"] for column in answer["columns"]].index("calls")
    shown = {";".join(frame["text"] for frame in row["frames"]): row["cells"][place] for row in answer["rows"]}
    assert shown == dict(calls)
    frame = answer["rows"][0]["frames"][0]
    assert frame["text"] == f"{frame['file']}({frame['line']}): {frame['function']}"
