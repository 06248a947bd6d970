# SPDX-License-Identifier: Apache-2.0
"""The views of GPU traces against the events of the file, computed here in plain Python (docs/reference/viewer.md 4)."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict

import pytest
from viewer.numbers import GPU, NCCL, kineto


@pytest.mark.parametrize("name", [GPU, NCCL])
def test_gpu_kernels(gpu, golden, name):
    durations = defaultdict(list)
    for event in kineto(golden / "kineto" / name):
        if event.get("cat") == "kernel" and event["ph"] == "X":
            durations[event["name"]].append(float(event["dur"]))
    shown = gpu.rows("kernels", worker=name.split(".")[0])
    assert {row["Name"]: row["Calls"] for row in shown} == {kernel: len(values) for kernel, values in durations.items()}
    for row in shown:
        assert row["Total Duration (us)"] == pytest.approx(sum(durations[row["Name"]]), abs=0.01)
        assert row["Max Duration (us)"] == pytest.approx(max(durations[row["Name"]]), abs=0.001)


@pytest.mark.parametrize("name", [GPU, NCCL])
def test_gpu_operators_and_slices(gpu, golden, name):
    events = [event for event in kineto(golden / "kineto" / name) if event["ph"] == "X"]
    calls = Counter(event["name"] for event in events if event.get("cat") == "cpu_op")
    worker = name.split(".")[0]
    assert {row["Name"]: row["Calls"] for row in gpu.rows("operators", worker=worker)} == dict(calls)
    meta = gpu.get("trace/meta", worker=worker)
    known = [event for event in events if event.get("cat") not in ("Trace", None)]
    layers = {process["name"]: process["id"] for process in meta["processes"]}
    own = [track for track in meta["tracks"] if track["process"] != layers["Overlap Analysis"] and track["kind"] == "slice"]
    assert sum(track["slices"] for track in own) == len(known)


@pytest.mark.parametrize("name", [GPU, NCCL])
def test_gpu_steps_add_up(gpu, golden, name):
    steps = {
        event["name"]: float(event["dur"])
        for event in kineto(golden / "kineto" / name)
        if event["ph"] == "X" and event["name"].startswith("ProfilerStep#") and event.get("cat") == "user_annotation"
    }
    answer = gpu.get("overview", worker=name.split(".")[0])
    shown = {f"ProfilerStep#{row['step']}": row for row in answer["steps"]["rows"]}
    assert {step: row["total"] for step, row in shown.items()} == pytest.approx(steps, abs=0.01)
    for row in shown.values():
        assert sum(row["values"]) == pytest.approx(row["total"])
        assert min(row["values"]) >= -1e-6
    assert answer["average_step_us"] == pytest.approx(sum(steps.values()) / len(steps), abs=0.01)


@pytest.mark.parametrize("name", [GPU, NCCL])
def test_gpu_kernel_properties(gpu, golden, name):
    """Kernels of one name by operator, grid, block, registers and shared memory; means weighted by duration."""
    groups = defaultdict(list)
    for event in kineto(golden / "kineto" / name):
        if event.get("cat") == "kernel" and event["ph"] == "X":
            args = event["args"]
            shape = (",".join(map(str, args["grid"])), ",".join(map(str, args["block"])))
            key = (event["name"], *shape, args["registers per thread"], args["shared memory"])
            groups[key].append((float(event["dur"]), args["blocks per SM"], args["est. achieved occupancy %"]))
    shown = defaultdict(list)
    for row in gpu.rows("kernels", worker=name.split(".")[0], group="properties"):
        shown[row["Name"], row["Grid"], row["Block"], row["Register Per Thread"], row["Shared Memory"]].append(row)
    assert shown.keys() == groups.keys()
    for key, rows in shown.items():
        length = sum(duration for duration, _, _ in groups[key])
        assert sum(row["Calls"] for row in rows) == len(groups[key])
        for title, place in (("Mean Blocks Per SM", 1), ("Mean Est. Achieved Occupancy (%)", 2)):
            mean = sum(row[title] * row["Total Duration (us)"] for row in rows if row[title] is not None)
            assert mean == pytest.approx(sum(one[0] * one[place] for one in groups[key]), rel=1e-6, abs=1e-6 * length)


def test_gpu_summary(gpu, golden):
    """Utilization, SM efficiency and occupancy of the one GPU that ran, from the events alone."""
    with gzip.open(golden / "kineto" / NCCL) as file:
        trace = json.load(file)
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    steps = [event for event in events if event["name"].startswith("ProfilerStep#") and event["cat"] == "user_annotation"]
    whole = sum(event["dur"] for event in steps)
    kernels = [event for event in events if event.get("cat") == "kernel"]
    device = kernels[0]["args"]["device"]
    time = sum(event["dur"] for event in kernels)
    efficiency = sum(event["dur"] * min(1, event["args"]["blocks per SM"]) for event in kernels)
    occupancy = sum(event["dur"] * event["args"]["est. achieved occupancy %"] for event in kernels)
    shown = {fact["name"]: fact["value"] for fact in gpu.get("overview", worker=NCCL.split(".")[0])["gpu_summary"]}
    known = trace["deviceProperties"][device]
    assert (shown["Name"], shown["Memory"]) == (known["name"], known["totalGlobalMem"])
    assert shown["Compute Capability"] == f"{known['computeMajor']}.{known['computeMinor']}"
    assert shown["Est. SM Efficiency"] == pytest.approx(100 * efficiency / whole, rel=1e-3)
    assert shown["Est. Achieved Occupancy"] == pytest.approx(occupancy / time, rel=1e-3)
    assert 0 < shown["GPU Utilization"] <= 100
