"""Every number of the viewer against the shipped files, computed here in plain Python (viewer.md 11)."""

from __future__ import annotations

import csv
import gzip
import json
import shutil
from collections import Counter, defaultdict
from decimal import Decimal
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from werkzeug.test import Client

from stepscope.web.app import App
from stepscope.web.binary_columns import decode
from stepscope.web.library import Library

LEVELS = ("level0", "level2")
CAPTURES = [(level, rank) for level in LEVELS for rank in (0, 1)]
GPU = "gpu_train_control.pt.trace.json.gz"
NCCL = "gpu_nccl.pt.trace.json.gz"


class Viewer:
    def __init__(self, *roots: Path):
        self.library = Library(roots)
        self.client = Client(App(self.library))

    def get(self, path: str, **query):
        answer = self.client.get(f"/api/v1/{path}", query_string={"wait": 30, **query})
        assert answer.status_code == 200, answer.text
        return answer.json

    def rows(self, path: str, **query) -> list[dict]:
        page = self.get(path, limit=20000, **query)
        assert page["filtered"] == len(page["rows"])
        keys = [column["name"] for column in page["columns"]]
        return [dict(zip(keys, row, strict=True)) for row in page["rows"]]

    def post(self, path: str, body, **query):
        return self.client.post(f"/api/v1/{path}", json=body, query_string={"wait": 30, **query})


def folder(golden: Path, level: str, rank: int) -> Path:
    return golden / "ascend_pt" / "text" / level / f"rank{rank}_ascend_pt" / "ASCEND_PROFILER_OUTPUT"


@pytest.fixture(scope="module")
def npu(golden, tmp_path_factory):
    """The text captures in the literal layout of the seed: <run>/<worker>_<span>/ASCEND_PROFILER_OUTPUT."""
    root = tmp_path_factory.mktemp("samples")
    for level, rank in CAPTURES:
        target = root / level / f"worker{rank}_1" / "ASCEND_PROFILER_OUTPUT"
        shutil.copytree(folder(golden, level, rank), target)
        target.chmod(0o755)
        target.parent.chmod(0o755)
    viewer = Viewer(root)
    yield viewer
    viewer.library.close()


@pytest.fixture(scope="module")
def gpu(golden, tmp_path_factory):
    root = tmp_path_factory.mktemp("kineto")
    for name in (GPU, NCCL):
        shutil.copy(golden / "kineto" / name, root / name)
    viewer = Viewer(root)
    yield viewer
    viewer.library.close()


@cache
def table(path: Path) -> tuple[dict[str, str], ...]:
    with path.open(newline="", encoding="utf-8") as file:
        return tuple(csv.DictReader(file))


@cache
def timeline(path: Path) -> tuple[dict, ...]:
    return tuple(json.loads(path.read_bytes()))


@cache
def kineto(path: Path) -> tuple[dict, ...]:
    with gzip.open(path) as file:
        return tuple(json.load(file)["traceEvents"])


def ns(text: str | float) -> int:
    return int(Decimal(str(text).strip()) * 1000)


def where(level: str, rank: int) -> dict[str, str]:
    return {"run": level, "worker": f"worker{rank}", "span": "1"}


each_capture = pytest.mark.parametrize(("level", "rank"), CAPTURES)


def test_runs_workers_and_spans_of_the_literal_layout(npu):
    runs = npu.get("runs")["runs"]
    assert [
        (run["name"], [(worker["name"], [span["name"] for span in worker["spans"]]) for worker in run["workers"]]) for run in runs
    ] == [
        ("level0", [("worker0", ["1"]), ("worker1", ["1"])]),
        ("level2", [("worker0", ["1"]), ("worker1", ["1"])]),
    ]
    assert runs[1]["views"][:4] == ["Overview", "Operator", "NPU Kernel", "Trace"]
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


@each_capture
def test_every_kernel_with_every_column_of_the_file(npu, golden, level, rank):
    rows = table(folder(golden, level, rank) / "kernel_details.csv")
    page = npu.get("kernels", group="all", limit=20000, **where(level, rank))
    titles = [column["name"] for column in page["columns"]]
    assert titles[: len(rows[0])] == list(rows[0])
    assert [column["shown"] for column in page["columns"]][: len(rows[0])] == [place < 20 for place in range(len(rows[0]))]
    assert len(page["rows"]) == len(rows)
    for row, shown in zip(rows, page["rows"], strict=True):
        for title, cell in zip(rows[0], shown, strict=False):
            text = row[title].strip()
            if isinstance(cell, (int, float)) or cell is None:
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


def first_event(golden: Path, level: str, rank: int) -> int:
    out = folder(golden, level, rank)
    times = [ns(event["ts"]) for event in timeline(out / "trace_view.json") if event["ph"] in ("X", "C")]
    return min([*times, *(ns(row["Timestamp(us)"]) for row in table(out / "memory_record.csv") if row["Component"] != "APP")])


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


@pytest.mark.parametrize("level", LEVELS)
def test_distributed_bars(npu, golden, level):
    answer = npu.get("distributed/overview", run=level)
    assert answer["workers"] == ["worker0", "worker1"]
    for rank, bars in enumerate(answer["computation"]["rows"]):
        (row,) = table(folder(golden, level, rank) / "step_trace_time.csv")
        computing, overlapped = float(row["Computing"]), float(row["Overlapped"])
        free, exposed = float(row["Free"]), float(row["Communication(Not Overlapped)"])
        expected = [computing - overlapped, overlapped, exposed, free, float(row["Bubble"]), float(row["Preparing"])]
        assert bars == pytest.approx(expected)


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
    assert size == pytest.approx(427_596_096)  # viewer.md 4.6


def test_communication_matrix(npu, golden):
    expected = set()
    for rank in (0, 1):
        document = json.loads((folder(golden, "level2", rank) / "communication_matrix.json").read_bytes())
        for kind in document["step50"].values():
            for op, pairs in kind.items():
                expected |= {
                    (op, pair, link["Transport Type"], link["Bandwidth(GB/s)"], link["Transit Size(MB)"])
                    for pair, link in pairs.items()
                }
    shown = set()
    for op in npu.get("comm/matrix", run="level2")["ops"]:
        for link in npu.get("comm/matrix", run="level2", op=op)["links"]:
            shown.add((op, f"{link['src']}-{link['dst']}", link["transport"], link["bandwidth"], link["size_mb"]))
    assert shown == expected


@each_capture
def test_execution_summary(npu, golden, level, rank):
    (row,) = table(folder(golden, level, rank) / "step_trace_time.csv")
    shown = {name: value for name, value, _ in npu.get("overview", **where(level, rank))["execution"]["rows"]}
    expected = {name: float(row[name]) for name in shown}
    assert shown == pytest.approx(expected)


@each_capture
def test_trace_loses_no_slice(npu, golden, level, rank):
    """Every slice of the file is in exactly one row, none overlaps another in its row, times and names are those of the file."""
    events = [event for event in timeline(folder(golden, level, rank) / "trace_view.json") if event["ph"] == "X"]
    meta = npu.get("trace/meta", **where(level, rank))
    assert meta["slices"] == len(events)
    base = first_event(golden, level, rank)
    assert meta["base_ns"] == str(base)
    names = npu.get("trace/names", **where(level, rank))["names"]
    layers = ("Computing", "Communication", "Communication(Not Overlapped)", "Free")
    found: Counter[tuple[str, int]] = Counter()
    for row in meta["rows"]:
        slices = exact_row(npu, row["id"], meta["length_ns"], where(level, rank))
        assert len(slices["start"]) == row["slices"]
        assert (slices["start"][1:] >= (slices["start"] + slices["dur"])[:-1]).all()
        found.update((names[int(name)], int(start)) for name, start in zip(slices["name"], slices["start"], strict=True))
    expected = Counter((event["name"], ns(event["ts"]) - base) for event in events)
    assert {key: count for key, count in found.items() if key[0] not in layers} == {
        key: count for key, count in expected.items() if key[0] not in layers
    }
    # Layers of the overlap analysis are computed anew; the file's are off by the last digit of a float.
    for layer in layers:
        starts = [sorted(start for name, start in counts.elements() if name == layer) for counts in (found, expected)]
        assert starts[0] == pytest.approx(starts[1], abs=2)


def exact_row(viewer: Viewer, row: int, length: int, place: dict[str, str]) -> dict[str, np.ndarray]:
    """All slices of a row, by descending into tiles until every entry stands for one slice."""
    top = max(0, (length // 512).bit_length())
    waiting, slices = [(top, 0)], {}
    while waiting:
        batch, waiting = waiting[:256], waiting[256:]
        answer = viewer.post("trace/tiles", [[row, level, index] for level, index in batch], **place)
        assert answer.mimetype == "application/x-cols"
        for (level, index), tile in zip(batch, decode(answer.data), strict=True):
            if (tile["count"] > 1).any():
                waiting += [(level - 1, 2 * index), (level - 1, 2 * index + 1)]
            else:
                for start, dur, name, number in zip(tile["start"], tile["dur"], tile["name"], tile["id"], strict=True):
                    slices[int(number)] = (start, dur, name)
    ordered = np.array([slices[number] for number in sorted(slices)])
    return {"start": ordered[:, 0], "dur": ordered[:, 1], "name": ordered[:, 2]}


@each_capture
def test_trace_counts_overlapping_and_zero_length_slices(npu, golden, level, rank):
    tracks = defaultdict(list)
    for event in timeline(folder(golden, level, rank) / "trace_view.json"):
        if event["ph"] == "X":
            start = ns(event["ts"])
            tracks[event["pid"], event["tid"]].append((start, -(start + ns(event["dur"]))))
    crossing = 0
    for events in tracks.values():
        spans = [(start, max(-negative, start + 1)) for start, negative in sorted(events)]
        for place, (start, end) in enumerate(spans):
            crossing += any(start < other_end < end for other, other_end in spans[:place])
    assert npu.get("trace/meta", **where(level, rank))["overlapping"] == crossing


@each_capture
def test_trace_counters_and_flows(npu, golden, level, rank):
    events = timeline(folder(golden, level, rank) / "trace_view.json")
    meta = npu.get("trace/meta", **where(level, rank))
    assert meta["counters"] == sum(
        len(event["args"]) if "acc_id" not in event["args"] else 1 for event in events if event["ph"] == "C"
    )
    arrows = Counter(event["cat"] for event in events if event["ph"] == "f")
    assert {flow["category"]: flow["count"] for flow in meta["flows"]} == dict(arrows)
    answer = npu.get("trace/flows", cats=",".join(arrows), limit=20000, **where(level, rank))
    assert answer["count"] == sum(arrows.values())
    ends = Counter(ns(event["ts"]) for event in events if event["ph"] == "f")
    assert Counter(time + int(meta["base_ns"]) for time in answer["arrows"]["to_ns"]) == ends


@each_capture
def test_counter_tiles_hold_every_sample(npu, golden, level, rank):
    meta = npu.get("trace/meta", **where(level, rank))
    track = next(track for track in meta["tracks"] if track["kind"] == "counter" and track["label"].startswith("HBM 0/Read"))
    expected = [
        (ns(event["ts"]) - int(meta["base_ns"]), next(iter(event["args"].values())))
        for event in timeline(folder(golden, level, rank) / "trace_view.json")
        if event["ph"] == "C" and event["name"] == "HBM 0/Read"
    ]
    (tile,) = decode(npu.post("trace/counters", [[track["id"], 40, 0]], **where(level, rank)).data)
    assert list(zip(tile["time"], tile["first"], strict=True)) == [
        (time, pytest.approx(float(value))) for time, value in sorted(expected)
    ]


@each_capture
def test_range_statistics_of_everything(npu, golden, level, rank):
    sums: defaultdict[str, list[float]] = defaultdict(list)
    for event in timeline(folder(golden, level, rank) / "trace_view.json"):
        if event["ph"] == "X":
            sums[event["name"]].append(int(ns(event["dur"])) / 1000)
    meta = npu.get("trace/meta", **where(level, rank))
    body = {"tracks": None, "from": 0, "to": meta["length_ns"] + 1, "limit": 20000}
    answer = npu.post("trace/range", body, **where(level, rank)).json
    assert answer["slices"] == meta["slices"]
    shown = {row[0]: row for row in answer["rows"]}
    assert shown.keys() == sums.keys()
    for name, durations in sums.items():
        _, wall, own, average, most, least, count = shown[name]
        assert count == len(durations)
        assert wall == pytest.approx(sum(durations), abs=0.002 * count)
        assert average == pytest.approx(wall / count)
        assert (most, least) == (pytest.approx(max(durations), abs=0.002), pytest.approx(min(durations), abs=0.002))
        assert own <= wall + 1e-9


def test_search_counts_slices(npu, golden):
    expected = sum(
        "conv" in event["name"].lower() for event in timeline(folder(golden, "level2", 0) / "trace_view.json") if event["ph"] == "X"
    )
    answer = npu.get("trace/search", q="CONV", **where("level2", 0))
    assert answer["count"] == expected == sum(answer["density"]["counts"])
    starts = [hit["start_ns"] for hit in answer["hits"]]
    assert starts == sorted(starts)
    assert npu.get("trace/search", q="CONV", case=1, **where("level2", 0))["count"] == 0


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
    answer = npu.get("diff", metric="host_self", limit=20000, **query)
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
        viewer.library.close()


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
    calls = Counter(
        event["name"]
        for event in events
        if event.get("cat") in ("cpu_op", "user_annotation") and not event["name"].startswith("ProfilerStep#")
    )
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
