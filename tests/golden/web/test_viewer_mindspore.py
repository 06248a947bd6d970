"""The viewer opens raw records of MindSpore and shows what MindSpore's own viewer made of them (docs/formats/mindspore.md 10)."""

from __future__ import annotations

import json
import shutil
from collections import Counter, defaultdict

import pytest
from viewer.numbers import Viewer

import stepscope

CAPTURES = {"oprange-stack": "host0_1_20261115193954277_ascend_ms", "oprange-graph": "host0_2_20261115193954277_ascend_ms"}


@pytest.fixture(scope="module")
def viewer(golden, tmp_path_factory):
    run = tmp_path_factory.mktemp("viewed") / "run"
    for sample, name in CAPTURES.items():
        for part in ("FRAMEWORK", "clock.json"):
            source, target = golden / "mindspore" / sample / part, run / name / part
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(source, target) if source.is_dir() else shutil.copyfile(source, target)
    assert all(result.ok for result in stepscope.analyse(str(run)))
    opened = Viewer(run.parent)
    yield opened
    opened.catalogue.close()


@pytest.mark.parametrize("sample", CAPTURES)
def test_operators_kernels_and_timeline(viewer, golden, sample):
    worker = {"run": "run", "worker": "_".join(CAPTURES[sample].split("_")[:2])}
    shown = json.loads((golden / "mindspore" / sample / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").read_bytes())
    spans = [event for event in shown if event["ph"] == "X"]
    host = Counter(event["name"] for event in spans if event["pid"] == 1 and event["cat"] == "")
    assert {row["Name"]: row["Calls"] for row in viewer.rows("operators", group="op", **worker)} == host
    spent: defaultdict[str, list[float]] = defaultdict(list)
    for event in spans:
        if event["pid"] == 2:
            spent[event["name"]].append(float(event["dur"]))
    kernels = {row["Name"]: row for row in viewer.rows("kernels", **worker)}
    assert {name: row["Calls"] for name, row in kernels.items()} == {name: len(times) for name, times in spent.items()}
    for name, times in spent.items():
        assert kernels[name]["Total Duration (us)"] == pytest.approx(sum(times), abs=0.001 * len(times))
    meta = viewer.get("trace/meta", **worker)
    names = {process["id"]: process["name"] for process in meta["processes"]}
    slices = Counter()
    for track in meta["tracks"]:
        slices[names[track["process"]]] += track["slices"]
    assert slices["Python"] == sum(event["pid"] == 1 for event in spans)
    assert slices["CPU OP"] == sum(event["pid"] == 2 for event in spans)
    arrows = sum(event["ph"] == "s" for event in shown)
    assert {flow["category"]: flow["count"] for flow in meta["flows"]}.get("mindspore_to_self", 0) == arrows
    views = next(run["views"] for run in viewer.get("runs")["runs"])
    assert {"Overview", "Operator", "CPU Kernel", "Trace"} <= set(views)
