"""Records of the simulated device become records of a raw folder: numbers that can be checked by hand, no device needed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from stepscope.formats import cann
from stepscope.formats.cann import layouts
from stepscope.formats.cann.folder import open_prof
from stepscope.formats.cann.records import read_records
from stepscope.formats.cann.write.settings import METRIC_EVENTS
from stepscope.simnpu import counters
from stepscope.simnpu.capture import CaptureSwitches, DeviceCapture
from stepscope.simnpu.launches import LaunchTimes, disjoint
from stepscope.simnpu.link_samples import LinkSamples
from stepscope.simnpu.memory_samples import MemorySamples
from stepscope.simnpu.records import CALL, COLLECTIVE, COPY_H2D, EVENT_RECORD, KERNEL, MARK, MEMORY, TASK, TRANSFER
from stepscope.simnpu.transfers import with_calls

RAW, UNIX = 5_000_000_000, 1_767_225_600_000_000_000
TENSOR = {"shape": [4, 256], "dtype": "FLOAT", "format": "ND"}
DESCRIBED = {
    1: {
        "name": "aclnnAdd_AddAiCore_Add", "api": "aclnnAdd", "type": "Add", "core": "AI_VECTOR_CORE", "blocks": 4, "flops": 1024,
        "bytes": 12288, "modelled_ns": 1500, "inputs": [TENSOR, TENSOR], "outputs": [TENSOR],
    },
    2: {
        "name": "hcom_allReduce_", "type": "hcom_allReduce_", "core": "COMMUNICATION", "group_name": "world", "rank": 0,
        "rank_size": 2, "algorithm": "MESH", "data_type_id": 4, "count": 256, "inputs": [], "outputs": [],
    },
}  # fmt: skip


class Recorded:
    """Stands in for the device: gives out what a test made, a part at a time."""

    def __init__(self, *parts, transfers=(), calls=()):
        self._parts = list(parts)
        self._transfers, self._calls = list(transfers), list(calls)

    def start(self, *, attributes=False):
        self.attributes = attributes

    def description(self, number):
        return DESCRIBED[number]

    def tasks(self):
        return self._parts.pop(0) if self._parts else np.empty(0, TASK)

    def transfers(self):
        return self._transfers.pop(0) if self._transfers else np.empty(0, TRANSFER)

    def calls(self):
        return self._calls.pop(0) if self._calls else np.empty(0, CALL)

    def memory(self):
        return np.empty(0, MEMORY)


def tasks_of(count: int, *, first: int = 0, every: int = 1000, **fields):
    """Tasks queued every so many nanoseconds; each runs for 500 ns, 300 ns after its launch."""
    rows = np.zeros(count, TASK)
    at = RAW + (first + np.arange(count)) * every
    rows["enqueue_start"], rows["enqueue_end"], rows["dequeue_start"] = at, at + 50, at + 100
    rows["launch_start"], rows["launch_end"], rows["dequeue_end"] = at + 120, at + 200, at + 200
    rows["start"], rows["end"] = at + 500, at + 1000
    rows["connection"] = first + np.arange(count) + 1
    rows["description"], rows["host_thread"], rows["launch_thread"] = 1, 7, 8
    for name, value in fields.items():
        rows[name] = value
    return rows


def written(folder: Path, recorded: Recorded, *, takes: int = 1, devices=(0,), **wanted) -> Path:
    (folder / "FRAMEWORK").mkdir()
    capture = DeviceCapture(folder, CaptureSwitches(**wanted), recorded)
    capture.start(RAW - 1000, UNIX - 1000, dict.fromkeys(devices, 4096))
    for take in range(takes):
        capture.take(RAW + 10**12, last=take == takes - 1)
    capture.close(UNIX + 10**9)
    return capture.path


@pytest.mark.slow  # half a second and more
def test_numbers_of_tasks_begin_anew_on_both_sides(tmp_path: Path):
    """65 535 tasks fill a stream's numbers; the second part of a capture goes on where the first one ended."""
    prof = written(tmp_path, Recorded(tasks_of(65_000), tasks_of(1_000, first=65_000)), takes=2, metrics="PipeUtilization")
    tables = cann.read(prof)
    assert tables.quality.to_dicts() == []
    assert tables.kernels.height == 66_000
    assert tables.kernels["batch_id"].to_list() == [0] * 65_535 + [1] * 465
    assert tables.kernels["task_id"].to_list()[65_534:65_537] == [65_534, 0, 1]
    assert tables.kernels["name"].cast(pl.String).unique().to_list() == ["aclnnAdd_AddAiCore_Add"]
    assert tables.kernels["start_ns"].to_list()[:2] == [UNIX + 500, UNIX + 1500]
    assert (tables.kernels["end_ns"] - tables.kernels["start_ns"]).unique().to_list() == [500]
    assert tables.kernel_metrics.height == 66_000
    flips = read_records(open_prof(prof).host, layouts.TASK_TRACK).rows
    assert (flips["task_type"] == 98).sum() == 1


@pytest.mark.slow  # half a second and more
@pytest.mark.parametrize(
    ("ran_on", "wanted", "folders"),
    [
        pytest.param([2, 2], {}, ["device_2"], id="only-the-one-that-worked"),
        pytest.param([2, 0], {}, ["device_0", "device_2"], id="both-worked"),
        pytest.param([2, 2], {"memory": True, "links": True}, ["device_2"], id="an-idle-one-holds-memory"),
        pytest.param([], {}, ["device_0"], id="nothing-ran"),
    ],
)
def test_which_devices_have_a_folder(tmp_path: Path, ran_on, wanted, folders):
    prof = written(tmp_path, Recorded(tasks_of(len(ran_on), device=ran_on)), devices=(0, 2), **wanted)
    assert sorted(path.name for path in prof.glob("device_*")) == folders
    assert sorted(cann.read(prof).kernels["device"]) == sorted(ran_on)


def test_what_a_capture_holds_follows_from_the_kinds_of_tasks(tmp_path: Path):
    kinds = np.array([KERNEL, COPY_H2D, EVENT_RECORD, MARK])
    tasks = tasks_of(4, kind=kinds, description=np.where(kinds == KERNEL, 1, 0), bytes=[0, 4096, 0, 77], event=[0, 0, 5, 0])
    tables = cann.read(written(tmp_path, Recorded(tasks), level=2))
    assert tables.quality.to_dicts() == []
    types = ["AI_VECTOR_CORE", "MEMCPY_ASYNC", "EVENT_RECORD", "PROFILER_TRACE_EX"]
    assert tables.kernels["task_type"].cast(pl.String).to_list() == types
    calls = tables.api_calls.group_by("level").agg(pl.col("name").cast(pl.String))
    named = {level: set(names) for level, names in calls.iter_rows()}
    assert named["acl"] == {"aclnnAdd", "aclrtMemcpyAsync", "aclrtRecordEvent"}
    assert named["runtime"] == {"KernelLaunchWithHandle", "MemcpyAsync", "EventRecord"}


def test_a_collective_is_its_transfers(tmp_path: Path):
    task = tasks_of(1, kind=COLLECTIVE, description=2, bytes=1024)
    parts = np.zeros(3, TRANSFER)
    parts["connection"], parts["kind"], parts["bytes"] = 1, [3, 2, 0], [0, 0, 512]
    parts["start"], parts["end"] = RAW + np.array([500, 600, 700]), RAW + np.array([600, 700, 1000])
    parts["stream"], parts["dst_rank"], parts["flags"], parts["link"], parts["data_type"] = 33, 1, 1, 1, 4
    tables = cann.read(written(tmp_path, Recorded(task, transfers=[parts])))
    assert tables.quality.to_dicts() == []
    (one,) = tables.collectives.to_dicts()
    assert (one["start_ns"], one["end_ns"]) == (UNIX + 500, UNIX + 1000)
    assert (one["op_type"], one["group_name"], one["count"], one["rank_size"]) == ("hcom_allReduce_", "world", 256, 2)
    assert tables.transfers["task_type"].cast(pl.String).to_list() == ["Notify_Record", "Notify_Wait", "Memcpy"]
    assert tables.transfers["bytes"].to_list() == [0, 0, 512]
    assert tables.transfers["dst_rank"].to_list() == [1, 1, 1]
    assert tables.kernels.filter(~pl.col("extra")).height == 0


def test_calls_of_transfers_divide_the_launch():
    launches = LaunchTimes(0).of(tasks_of(2, launch_end=RAW + np.array([160, 1160])))
    rows = np.zeros(5, TRANSFER)
    rows["connection"], rows["start"] = [2, 1, 1, 9, 1], [5, 3, 1, 0, 2]
    parts = with_calls(rows, launches)
    assert parts.rows["start"].tolist() == [1, 2, 3, 5]  # that of another collective waits
    assert parts.of.tolist() == [0, 0, 0, 1]
    # 120 begin, 122 description, then 36 ns for three calls up to 159, the end of the node's call
    assert (parts.begin - RAW).tolist() == [123, 135, 147, 1123]
    assert (parts.stamp - RAW).tolist() == [134, 146, 158, 1158]


def test_calls_of_one_thread_lie_apart():
    calls = np.zeros(4, CALL)
    calls["thread"], calls["start"], calls["end"] = [1, 1, 2, 1], [10, 12, 12, 21], [20, 15, 15, 30]
    assert disjoint(calls)["start"].tolist() == [10, 21, 12]
    calls["start"][3] = 20  # a call that touches another passes for one inside it
    assert disjoint(calls)["start"].tolist() == [10, 12]
    # Without a task queue memory is taken inside the launch: the launch then begins when it is there.
    times = LaunchTimes(0)
    calls["call"], calls["thread"] = 4, 8
    calls["end"] = RAW + 150
    times.add_calls(calls)
    (begin,) = times.of(tasks_of(1, enqueue_start=0)).begin
    assert begin == RAW + 151


def test_without_a_task_queue_a_collective_begins_behind_its_events():
    """Parsers take every task below its call for one of its own."""
    tasks = tasks_of(4, kind=[EVENT_RECORD, COLLECTIVE, EVENT_RECORD, KERNEL], enqueue_start=0, launch_start=RAW + 100)
    tasks["launch_end"] = RAW + np.array([140, 200, 240, 300])
    begins = LaunchTimes(0).of(tasks).begin - RAW
    assert begins.tolist() == [100, 141, 100, 100]
    # The events may have come with what was written before.
    times = LaunchTimes(0)
    times.of(tasks[:1])
    assert (times.of(tasks[1:2]).begin - RAW).tolist() == [141]
    queued_ones = tasks.copy()
    queued_ones["enqueue_start"] = RAW + 50
    assert (LaunchTimes(0).of(queued_ones).begin - RAW).tolist() == [100, 100, 100, 100]


@pytest.mark.parametrize("metrics", METRIC_EVENTS)
def test_counters_never_pass_the_cycles_and_repeat(metrics):
    kernels = np.zeros(2, [("read", "<f8"), ("written", "<f8"), ("flops", "<f8"), ("modelled_ns", "<f8"), ("half_floats", "?")])
    kernels["read"], kernels["written"], kernels["flops"] = 1 << 20, 1 << 19, 1 << 28
    kernels["modelled_ns"] = 1500 + (1 << 28) / 100_000
    kernels["half_floats"] = [False, True]
    for cube in (True, False):
        work = counters.work_of(kernels, np.array([1e6, 1e6]), cube=cube)
        table = counters.counts(work, metrics, METRIC_EVENTS[metrics][0 if cube else 1])
        assert table.shape == (2, len(METRIC_EVENTS[metrics][0].split(",")))
        assert (table <= 1_000_000).all()
        assert (table == counters.counts(work, metrics, METRIC_EVENTS[metrics][0 if cube else 1])).all()


def test_counters_mean_what_was_computed_and_moved():
    kernels = np.zeros(1, [("read", "<f8"), ("written", "<f8"), ("flops", "<f8"), ("modelled_ns", "<f8"), ("half_floats", "?")])
    kernels["read"], kernels["written"], kernels["flops"], kernels["modelled_ns"] = 128_000, 64_000, 81_920_000, 1000
    cube = counters.work_of(kernels, np.array([1e6]), cube=True)
    fops, *_ = counters.counts(cube, "ArithmeticUtilization", "0x49")[0]
    assert fops * 8192 == 81_920_000
    pipes = counters.counts(cube, "PipeUtilization", "0x416,0xc,0x303")[0]
    assert pipes.tolist() == [819_200, 128_000, 64_000]  # 819.2 of 1000 ns compute, 128 read, 64 write
    moved = counters.counts(cube, "MemoryAccess", "0x50d,0x50c")[0]
    assert moved.tolist() == [1000, 500]  # eighths of a KB


@pytest.mark.parametrize("wanted", [True, False])
def test_attributes_are_written_if_they_are_wanted(tmp_path, monkeypatch, wanted):
    described = {**DESCRIBED[1], "attributes": {"alpha": 2, "approximate": "none", "dims": [0, 1], "keep": True}}
    monkeypatch.setitem(DESCRIBED, 1, described)
    recorded = Recorded(tasks_of(2))
    tables = cann.read(written(tmp_path, recorded, attributes=wanted))
    assert recorded.attributes is wanted
    expected = 'alpha:2;approximate:"none";dims:[0,1];keep:true' if wanted else None
    assert tables.kernels["attrs"].to_list() == [expected] * 2


def test_the_cache_tells_hits(tmp_path):
    rates = cann.read(written(tmp_path, Recorded(tasks_of(2)), l2_cache=True)).cache_rates
    # Lines of 128 bytes: 64 are read and 32 written. Nine tenths of each were there, in whole lines 57 and 28; 4 had to go.
    assert rates["hit_rate"].to_list() == pytest.approx([85 / 96] * 2)
    assert rates["other_rate"].to_list() == pytest.approx([4 / 96] * 2)


def test_traffic_is_sampled_where_it_flows(tmp_path: Path):
    tasks = tasks_of(2, every=25_000_000, kind=[COPY_H2D, 2], description=0, bytes=[20_000_000, 5_000_000])
    capture = DeviceCapture(tmp_path, CaptureSwitches(framework=False, links=True, ports=True), Recorded(tasks))
    capture.start(RAW, UNIX, {0: 0})
    capture.take(RAW + 65_000_000, last=True)
    capture.close()
    tables = cann.read(capture.path)
    assert tables.quality.to_dicts() == []
    rows = tables.counters.filter(pl.col("source") == "PCIe", pl.col("series").is_in(["Tx", "Rx"]), pl.col("value") > 0)
    bytes_per_us = 1_000_000 / (1 << 20)
    assert rows.select("name", "time_ns", "value").rows() == [
        ("PCIe_cpl", UNIX, pytest.approx(1000 * bytes_per_us)),  # 20 MB in the first 20 ms
        ("PCIe_post", UNIX + 20_000_000, pytest.approx(250 * bytes_per_us)),
    ]
    ports = tables.counters.filter(pl.col("source").is_in(["NIC", "RoCE"]), pl.col("series") == "Bandwidth(MB/s)")
    assert ports.height == 2 * 6
    assert ports["value"].unique().to_list() == [25_000.0]
    assert tables.counters.filter(pl.col("source") == "HCCS")["value"].unique().to_list() == [0.0]
    summary = {mode: (least, most, mean) for _, _, mode, least, most, mean in tables.link_summary.rows()}
    # Three samples of 20 ms and one of 5 ms; 20 MB arrived within one quarter of a sample.
    assert summary["Rx_cpl_avg(MB/s)"] == pytest.approx((0, 4000 * bytes_per_us, 1000 / 4 * bytes_per_us))


@pytest.mark.parametrize(("length_ns", "samples"), [(3_000_000, 1), (13_000_000, 1), (20_000_000, 1), (47_000_000, 3)])
def test_the_last_sample_is_taken_at_the_end(length_ns, samples):
    """A capture shorter than a sample has one, and what moved last is in it."""

    class Samples:
        def __init__(self):
            self.pcie_rows, self.lines = [], ""

        def pcie(self, *, raw_ns, values):
            self.pcie_rows += zip(raw_ns.tolist(), values.tolist(), strict=True)

        def text(self, file, lines):
            self.lines += lines

    tasks = tasks_of(1, kind=[COPY_H2D], description=0, bytes=[1_000_000])
    tasks["end"] = RAW + length_ns - 1
    transfers = np.zeros(1, TRANSFER)
    transfers["link"], transfers["bytes"], transfers["end"] = 1, 4096, RAW + length_ns - 1
    writer = Samples()
    LinkSamples(writer, RAW, links=True, ports=False).write(tasks, transfers, RAW + length_ns, last=True)
    assert len(writer.pcie_rows) == samples
    header, *totals = writer.lines.splitlines()
    assert header.startswith("Time")
    assert [int(line.split()[1]) for line in totals] == [*[0] * samples, 4096]
    assert totals[0] == f"{RAW}: 0 0"
    assert max(values[-2] for _, values in writer.pcie_rows) > 0


def test_memory_is_sampled_evenly():
    class Samples:
        def __init__(self):
            self.rows = []

        def memory(self, *, at_ns, hbm, app=False):
            self.rows += [(int(at), int(held)) for at, held in zip(at_ns, hbm, strict=True) if app]

        def module_memory(self, **columns):
            pass

    writer = Samples()
    samples = MemorySamples(writer, 0, 7, 100)
    events = np.zeros(2, MEMORY)
    events["time"], events["reserved"] = [30_000_000, 10_000_000], [200, 100]
    samples.write(events, 50_000_000)
    samples.write(events[:0], 70_000_000)
    assert writer.rows == [(100, 7), (20_000_100, 100), (40_000_100, 200), (60_000_100, 200)]
