"""MindSpore captures against what MindSpore's own parser and viewer made of the same files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import orjson
import polars as pl
import pytest

from stepscope.analyser import export
from stepscope.analysis.views import module_view
from stepscope.capture import open_all, open_capture
from stepscope.export.text_files import write_text
from stepscope.formats.discover import find
from stepscope.formats.mindspore import ranges
from stepscope.formats.mindspore.clock import read_tick_clock
from stepscope.tables import Tables

RANGES = ("oprange-graph", "oprange-pynative", "oprange-stack")
OFFICIAL = {"cpu-official-graph": 148, "cpu-official-pynative": 180}


@pytest.fixture
def samples(golden: Path) -> Path:
    return golden / "mindspore"


def microseconds(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


def reference(capture: Path) -> list[dict]:
    return orjson.loads((capture / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").read_bytes())


def load(capture: Path) -> Tables:
    return open_capture(capture, source="raw").load(keep=False).check()


@pytest.mark.parametrize(("name", "events", "arrows"), [(RANGES[0], 627, 0), (RANGES[1], 3103, 288), (RANGES[2], 6425, 288)])
def test_host_records_are_the_references_events(samples, name, events, arrows):
    capture = samples / name
    quality: list[pl.DataFrame] = []
    found = ranges.read(capture / "FRAMEWORK", read_tick_clock(capture, None, {}), version="2.10.0", pid=None, quality=quality)
    tables = ranges.tables(found)
    ours = Counter(
        (text, tid, microseconds(start), microseconds(end - start), category)
        for table, category in (("ops", ""), ("python_calls", "python_function"))
        for text, tid, start, end in tables[table].select("name", "tid", "start_ns", "end_ns").iter_rows()
    )
    theirs = [event for event in reference(capture) if event["pid"] == 1]
    shown = Counter((e["name"], e["tid"], e["ts"], e["dur"], e["cat"]) for e in theirs if e["ph"] == "X")
    assert ours == shown
    assert ours.total() == events
    ends = Counter()
    # The reference leaves out arrows whose ids occur several times; ours are another kind.
    drawn = tables.flows.filter(pl.col("kind") == ranges.FLOW_KIND)
    for number, from_tid, from_ns, to_tid, to_ns in drawn.select("id", "from_tid", "from_ns", "to_tid", "to_ns").iter_rows():
        ends[("s", from_tid, microseconds(from_ns), str(number))] += 1
        ends[("f", to_tid, microseconds(to_ns), str(number))] += 1
    assert ends == Counter((e["ph"], e["tid"], e["ts"], e["id"]) for e in theirs if e["ph"] in "sf")
    assert ends.total() == 2 * arrows
    assert not quality


@pytest.mark.parametrize(("name", "count"), OFFICIAL.items())
def test_cpu_kernels_sum_up_to_the_profilers_own_sums(samples, name, count):
    capture = next((samples / name).iterdir())
    kernels = load(capture).kernels
    assert kernels.height == count
    summary = pl.read_csv(capture / "FRAMEWORK" / "cpu_op_type_info_0.csv").select(
        "op_type", "type_occurrences", "total_compute_time"
    )
    ours = kernels.group_by(pl.col("op_type").cast(pl.String)).agg(pl.len(), ms=pl.col("duration_ns").sum() / 1e6)
    joined = summary.join(ours, on="op_type")
    assert joined.height == summary.height == ours.height
    assert joined.filter(pl.col("type_occurrences") != pl.col("len")).is_empty()
    assert joined.select(((pl.col("ms") - pl.col("total_compute_time")).abs() / pl.col("total_compute_time")).max()).item() < 1e-5


@pytest.mark.parametrize("name", [*RANGES, *OFFICIAL])
def test_cpu_kernels_are_those_of_the_reference_without_its_shift(samples, name):
    capture = samples / name if name in RANGES else next((samples / name).iterdir())
    kernels = load(capture).kernels.select("name", "start_ns", "end_ns").sort("start_ns")
    theirs = sorted(
        (int(e["ts"].replace(".", "")), e["name"], e["dur"]) for e in reference(capture) if e["pid"] == 2 and e["ph"] == "X"
    )
    ours = [(start, text, microseconds(end - start)) for text, start, end in kernels.iter_rows()]
    assert [row[1:] for row in ours] == [row[1:] for row in theirs]
    assert {theirs[at][0] - ours[at][0] for at in range(len(ours))} <= {36, 37, 38}  # a binary 0.001 in the reference


def test_every_kernel_of_a_graph_has_its_launch(samples):
    tables = load(samples / "oprange-graph")
    assert tables.kernels["launch_tid"].null_count() == 0
    owner = tables.ops["name"].cast(pl.String).gather(tables.kernels["op"])
    assert (owner == "Kernel::KernelLaunch::" + tables.kernels["name"].cast(pl.String)).all()
    assert tables.steps.height == 2
    assert tables.kernels["input_shapes"].null_count() == 0


def test_parsed_files_give_the_same_spans_as_the_records(samples):
    capture = samples / "oprange-stack"
    raw, text = load(capture), open_capture(capture, source="text").load(keep=False).check()
    span = ["name", "tid", "start_ns", "end_ns"]
    for table in ("ops", "python_calls"):
        assert text[table].select(span).sort(span).equals(raw[table].select(span).sort(span))
    drawn = raw.flows.filter(pl.col("kind") == ranges.FLOW_KIND)
    assert text.flows.select("from_ns", "to_ns").sort("from_ns").equals(drawn.select("from_ns", "to_ns").sort("from_ns"))
    assert text.kernels.select("name", "op_type").equals(raw.kernels.select("name", "op_type"))


@pytest.mark.parametrize(("device", "pieces"), [(0, 216), (1, 228)])
def test_a_graph_of_2023_on_two_devices(samples, device, pieces):
    found = open_all(samples / "ascend-2023-mindinsight" / "profiler")
    tables = found[device].load(keep=False).check()
    folder = found[device].path / f"device_{device}"
    events = [event for event in orjson.loads(next(folder.glob("timeline/msprof_*.json")).read_bytes()) if event["ph"] == "X"]
    layers = {"Computing", "Communication", "Communication(Not Overlapped)", "Free"}
    assert tables.facts.device_ids == (device,)
    assert tables.facts.device_names == {str(device): "Ascend910A"}
    assert tables.kernels.height == sum("Task Type" in event.get("args", {}) for event in events) == 490
    assert tables.transfers.height == sum("notify_id" in event.get("args", {}) for event in events) == 337
    assert tables.collectives["name"].to_list() == ["Default/AllReduce-op534_0"]
    # Counted by us from the tasks alone, and by msprof of that time.
    assert tables.overlap.height == sum(event["name"] in layers for event in events) == pieces
    assert tables.steps["step"].to_list() == list(range(1, 11))
    session = (tables.facts.session_start_ns, tables.facts.session_end_ns)
    assert session[0] < tables.kernels["start_ns"].min() < tables.kernels["end_ns"].max() < session[1]


@pytest.fixture(scope="module")
def exported(golden, tmp_path_factory) -> Path:
    """All files that we make of the samples, by sample."""
    folder = tmp_path_factory.mktemp("exported")
    for name in RANGES:
        write_text(load(golden / "mindspore" / name), folder / name)
    return folder


def shown(event: dict, late_ns: int = 0) -> str:
    """The event as text; times of kernels and scopes without the lateness of the reference."""
    late = late_ns if event["pid"] in (2, 3) else 0
    time = {"ts": int(event["ts"].replace(".", "")) - late} if "ts" in event else {}
    return orjson.dumps({**event, **time}).decode()


@pytest.mark.parametrize(("name", "events"), [(RANGES[0], 882), (RANGES[1], 3894), (RANGES[2], 7216)])
def test_the_timeline_is_the_references(samples, exported, name, events):
    ours = orjson.loads((exported / name / "trace_view.json").read_bytes())
    theirs = reference(samples / name)
    assert Counter(map(shown, ours)) == Counter(shown(event, late_ns=37) for event in theirs)
    assert len(ours) == events


@pytest.mark.parametrize("name", RANGES)
@pytest.mark.parametrize(
    "file",
    ["dataset.csv", "minddata_pipeline_raw_0.csv", "minddata_pipeline_summary_0.csv", "minddata_pipeline_summary_0.json"],
)
def test_files_of_the_input_pipeline_are_the_references_to_the_byte(samples, exported, name, file):
    assert (exported / name / file).read_bytes() == (samples / name / "ASCEND_PROFILER_OUTPUT" / file).read_bytes()


def test_files_have_the_columns_of_mindspore(exported):
    def titles(name: str) -> list[str]:
        return (exported / RANGES[0] / name).read_text().splitlines()[0].split(",")

    assert titles("kernel_details.csv")[0] == "Step ID"
    assert "Device_id" not in titles("kernel_details.csv")
    assert titles("step_trace_time.csv")[0] == "Step"
    assert titles("operator_details.csv") == ["Name", "Input Shapes"]
    assert titles("memory_record.csv")[-1] == "Device Type"
    assert "Stream Ptr" not in titles("memory_record.csv")


def test_a_database_has_mindspores_name(samples, tmp_path):
    written = export(load(samples / "oprange-graph"), ["db"], tmp_path, lambda stage: None)
    assert "ascend_mindspore_profiler_0.db" in {path.name for path in written}
    assert not (tmp_path / "trace_view.json").exists()


@pytest.mark.parametrize(("name", "events"), [("runtime-profiler-graph", 125), ("runtime-profiler-pynative", 1554)])
def test_the_runtimes_own_trace(samples, name, events):
    (trace,) = (samples / name / "rank_0").glob("*.json")
    tables = open_capture(trace).load(keep=False).check()
    raw = orjson.loads(trace.read_bytes())
    starts = Counter(event["args"]["flow_id"] for event in raw if event["name"].endswith("::flow"))
    ends = Counter(event["args"]["flow_id"] for event in raw if not event["name"].endswith("::flow"))
    assert tables.ops.height + starts.total() == len(raw) == events
    assert set(tables.ops["name"].cast(pl.String)) == {event["name"] for event in raw if not event["name"].endswith("::flow")}
    drawn = tables.flows["kind"] == ranges.FLOW_KIND
    assert drawn.sum() == sum(starts[number] == ends[number] == 1 for number in starts)
    launched = sum(event["name"].startswith("Kernel::KernelLaunch::") for event in raw)
    assert tables.kernels.height == launched


def test_cells_have_the_time_of_their_kernels(samples):
    """PyNative launches on other threads; each type of kernel below runs in one kind of cell only."""
    tables = load(samples / "oprange-stack")
    cells = {row["path"]: row for row in module_view(tables).iter_rows(named=True)}
    by_type = dict(tables.kernels.group_by(pl.col("op_type").cast(pl.String)).agg(pl.col("duration_ns").sum()).iter_rows())
    for path, types in (
        ("Net/Conv2d", ["Conv2D"]),
        ("Net/ReLU", ["ReLU"]),
        ("Net/MaxPool2d", ["MaxPool"]),
        ("Net/Flatten", ["Flatten"]),
        ("Momentum", ["ApplyMomentum", "AssignAdd"]),
    ):
        assert cells[path]["device_total_ns"] == sum(by_type[name] for name in types), path
    inside = [row for path, row in cells.items() if path.startswith("Net/")]
    assert cells["Net"]["device_total_ns"] == sum(row["device_self_ns"] for row in inside)


@pytest.mark.parametrize(("name", "again"), [(RANGES[1], 94), (RANGES[2], 94)])
def test_arrows_with_ids_used_again_join_the_same_operator(samples, name, again):
    """A task of the front end carries the name of the operator whose call queued it."""
    tables = load(samples / name)
    found = tables.flows.filter(pl.col("kind") == ranges.QUEUE_KIND)
    assert found.height == again
    text = pl.col("name").cast(pl.String)
    checked = 0
    for row in found.iter_rows(named=True):
        here = tables.ops.filter(pl.col("tid") == row["to_tid"], pl.col("start_ns") == row["to_ns"])
        name = here.select(text.str.extract(r"PyNativeFrontendTask::(\w+)$")).drop_nulls().to_series()
        calls = tables.ops.filter(
            pl.col("tid") == row["from_tid"], pl.col("start_ns") <= row["from_ns"], pl.col("end_ns") >= row["from_ns"]
        )
        called = calls.select(text.str.extract(r"RunOp::(\w+)$")).drop_nulls().to_series()
        if name.len() and called.len():
            assert name[0] == called[-1]
            checked += 1
    assert checked > 5


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_a_run_folder_that_holds_only_ranks(golden, mode):
    """The runtime writes to rank_N of the folder that the user named; that folder opens."""
    (found,) = find(golden / "mindspore" / f"runtime-profiler-{mode}")
    assert found.root.name.startswith("RuntimeProfilerJson")
