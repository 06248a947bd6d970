# SPDX-License-Identifier: Apache-2.0
"""The Memory view against the memory files, computed here in plain Python (docs/reference/viewer.md 11)."""

from __future__ import annotations

import numpy as np
import pytest
from viewer.numbers import each_capture, first_event, folder, ns, table, where


@each_capture
def test_memory_curve_and_peak(npu, golden, level, rank):
    rows = [row for row in table(folder(golden, level, rank) / "memory_record.csv") if row["Component"] == "PTA+GE"]
    base = first_event(golden, level, rank)
    answer = npu.get("memory/curve", group="operator", **where(level, rank))
    allocated = [float(row["Total Allocated(MB)"]) for row in rows]
    assert answer["device"] == rows[0]["Device Type"]
    assert answer["titles"] == [f"Peak Memory Usage: {max(allocated):.1f}MB"]
    series = {line["name"]: line for line in answer["series"]}
    assert series["Allocated (MB)"]["y"] == pytest.approx(allocated)
    assert series["Reserved (MB)"]["y"] == pytest.approx([float(row["Total Reserved(MB)"]) for row in rows])
    assert series["Allocated (MB)"]["x_ms"] == pytest.approx([(ns(row["Timestamp(us)"]) - base) / 1e6 for row in rows])


@each_capture
def test_memory_curve_by_component(npu, golden, level, rank):
    peaks: dict[str, float] = {}
    for row in table(folder(golden, level, rank) / "memory_record.csv"):
        value = float(row["Total Allocated(MB)"] or 0) if row["Component"] != "APP" else float(row["Total Reserved(MB)"])
        peaks[row["Component"]] = max(peaks.get(row["Component"], 0), value)
    peaks.pop("PTA+GE")
    titles = npu.get("memory/curve", group="component", **where(level, rank))["titles"]
    assert sorted(titles) == sorted(f"{name} Peak Memory Usage: {peak:.1f}MB" for name, peak in peaks.items())


@each_capture
def test_memory_blocks(npu, golden, level, rank):
    base = first_event(golden, level, rank)

    def ms(text: str) -> float | None:
        return (ns(text) - base) / 1e6 if text.strip() else None

    expected = sorted(
        (row["Name"], abs(float(row["Size(KB)"])), ms(row["Allocation Time(us)"]), ms(row["Release Time(us)"]) or -1.0)
        for row in table(folder(golden, level, rank) / "operator_memory.csv")
    )
    shown = sorted(
        (
            row["Name"],
            row["Size (KB)"],
            row["Allocation Time (ms)"],
            row["Release Time (ms)"] if row["Release Time (ms)"] is not None else -1.0,
        )
        for row in npu.rows("memory/events", **where(level, rank))
    )
    assert [row[0] for row in shown] == [row[0] for row in expected]
    assert np.allclose(np.array([row[1:] for row in shown]), np.array([row[1:] for row in expected]), rtol=0, atol=1e-6)


@each_capture
def test_memory_components(npu, golden, level, rank):
    base = first_event(golden, level, rank)
    peaks: dict[str, tuple[float, float]] = {}
    for row in table(folder(golden, level, rank) / "npu_module_mem.csv"):
        value, time = float(row["Total Reserved(MB)"]), (ns(row["Timestamp(us)"]) - base) / 1e6
        if row["Component"] not in peaks or value > peaks[row["Component"]][0]:
            peaks[row["Component"]] = (value, time)
    shown = {
        row["Component"]: (row["Peak Memory Usage (MB)"], row["Time (ms)"])
        for row in npu.rows("memory/components", **where(level, rank))
    }
    assert shown.keys() == peaks.keys()
    for name, (value, time) in peaks.items():
        assert shown[name] == (pytest.approx(value), pytest.approx(time))


def test_the_next_peak_without_the_largest_owner(npu, golden):
    """Against the blocks one by one: at every sample, what is left without the blocks of that line."""
    answer = npu.get("memory/peak", **where("level2", 0))
    without = answer["without"]
    named = [one for one in answer["owners"] if one["owner"] not in ("held before the capture", "(no owner recorded)")]
    assert without["owner"] == named[0]["owner"]
    assert without["bytes"] + without["saved"] == answer["bytes"]
    assert 0 < without["saved"] <= named[0]["bytes"]
    at = next(
        one for one in npu.get("memory/curve", group="operator", **where("level2", 0))["series"] if "Allocated" in one["name"]
    )
    level = max(
        y for x, y in zip(at["x_ms"], at["y"], strict=True) if x <= without["at"] / 1e6 + 1e-6 and x >= without["at"] / 1e6 - 1e-6
    )
    assert without["bytes"] <= level * 2**20 * 1.0001
