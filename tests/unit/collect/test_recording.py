"""What is written beside the operators: settings, metadata, garbage collections, samples; limits and spooling."""

from __future__ import annotations

import gc
import json
import os
import shutil
import struct
import threading
import time
from pathlib import Path

import orjson
import pytest

from stepscope.capture import open_capture
from stepscope.collect import active, budget, spool
from stepscope.collect.clocks import now, raw_ns
from stepscope.collect.settings import Budget
from stepscope.collect.sources import host_sampler
from stepscope.collect.sources.gc_pauses import GcPauses
from stepscope.collect.sources.host_sampler import HEADER, HostSampler
from stepscope.formats.ascend.profiler_info import read_capture_facts
from stepscope.formats.collector import os_calls
from stepscope.formats.framework import FrameworkClock
from stepscope.profiler import _ExperimentalConfig, profile, schedule, tensorboard_trace_handler

GC_RECORD = struct.Struct("<3Q")


def captures(tmp_path):
    return sorted(tmp_path.rglob("*_ascend_pt"))


def metadata(capture):
    return json.loads((capture / "profiler_metadata.json").read_text())


def recorded(*, steps=1, during=lambda prof: None, **options):
    with profile(on_trace_ready=lambda prof: None, **options) as prof:
        during(prof)
        for _ in range(steps):
            prof.step()
    return prof


@pytest.mark.slow  # half a second and more
def test_info_is_read_back(noting_tier, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    before = time.time_ns()
    recorded(schedule=schedule(wait=0, active=1, repeat=1), record_shapes=True)
    (capture,) = captures(tmp_path)
    assert (capture / "profiler_info_3.json").is_file()
    facts, quality = read_capture_facts(capture, raw=True)
    assert quality.height == 0
    assert (facts.rank, facts.record_shapes, facts.activities, facts.device_kind) == (3, True, ("CPU",), "cpu")
    assert before <= facts.session_start_ns <= facts.session_end_ns <= time.time_ns()
    info = facts.profiler_info
    assert info["collector"]["tier"] == "noting"
    assert info["collector"]["complete"] is True
    # the end is taken on the clock of the records.
    offsets = [
        info["start_info"]["unix_ns"] - info["start_info"]["start_monotonic"],
        info["end_info"]["collectionTimeEnd"] - info["end_info"]["MonotonicTimeEnd"],
    ]
    assert abs(offsets[0] - offsets[1]) < 10_000_000
    assert abs(now().raw_ns - raw_ns()) < 1_000_000_000


def test_a_killed_process_leaves_settings_and_clocks(noting_tier, tmp_path):
    prof = profile(on_trace_ready=lambda prof: None)
    prof.start()
    (capture,) = captures(tmp_path)
    facts, _ = read_capture_facts(capture, raw=True)
    assert facts.profiler_info["collector"]["complete"] is False
    assert facts.session_end_ns is not None
    prof.stop()


def test_metadata_goes_into_every_capture(noting_tier, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HCCL_RDMA_TC", "132")

    def mark(prof):
        prof.add_metadata("model", "small")
        prof.add_metadata_json("sizes", '{"tp": 2}')

    recorded(schedule=schedule(wait=0, active=1, repeat=2), steps=3, during=mark)
    first, second = map(metadata, captures(tmp_path))
    for found in (first, second):
        assert found["model"] == "small"
        assert found["sizes"] == {"tp": 2}
        assert found["ENV_VARIABLES"]["HCCL_RDMA_TC"] == "132"
        assert found["ENV_VARIABLES"]["HCCL_ALGO"] == ""
        assert len(found["ENV_VARIABLES"]) == 9
        assert len(found["trace_id"]) == 32
        assert found["trace_id"] == found["trace_id"].upper()
    assert first["trace_id"] != second["trace_id"]
    assert "WARNING" not in capsys.readouterr().err


def test_metadata_limits(noting_tier, tmp_path, capsys):
    def mark(prof):
        prof.add_metadata(1, "v")
        prof.add_metadata("k", None)
        prof.add_metadata("k" * 4097, "v")
        prof.add_metadata("k", "v" * 4097)
        prof.add_metadata_json("k", "{")
        assert capsys.readouterr().err.count("WARNING") == 5
        prof.add_metadata("k", "old")
        prof.add_metadata("k", "new")
        assert capsys.readouterr().err.count("WARNING") == 1
        for number in range(12):
            prof.add_metadata(f"large{number}", "v" * 4096)
        assert capsys.readouterr().err.count("WARNING") == 0
        prof.add_metadata("large12", "v" * 4096)
        assert capsys.readouterr().err.count("50 KiB") == 1

    recorded(during=mark)
    found = metadata(captures(tmp_path)[0])
    assert found["k"] == "new"
    assert sum(key.startswith("large") for key in found) == 12


@pytest.mark.parametrize(("callback", "kept"), [(lambda: "run-7", True), (lambda: 7, False), (lambda: "x" * 1025, False)])
def test_trace_id_callback(callback, kept, noting_tier, tmp_path):
    prof = recorded(custom_trace_id_callback=callback)
    assert (prof.get_trace_id() == callback()) is kept
    assert metadata(captures(tmp_path)[0])["trace_id"] == prof.get_trace_id()


@pytest.mark.parametrize(("threshold_ms", "pause_ms", "noted"), [(0, 0, True), (1, 5, True), (1000, 0, False)])
def test_gc_threshold(threshold_ms, pause_ms, noted, tmp_path):
    pauses = GcPauses(tmp_path, threshold_ms)
    before = raw_ns()
    pauses.start()
    pauses._on_collection("start", {})
    while raw_ns() - before < pause_ms * 1e6:
        pass
    pauses._on_collection("stop", {})
    pauses.stop()
    assert pauses._on_collection not in gc.callbacks
    file = tmp_path / "torch.gc_record"
    assert file.exists() is noted
    if noted:
        pid, start, end = GC_RECORD.unpack(file.read_bytes()[:24])
        assert pid == os.getpid()
        assert before <= start <= end <= raw_ns()
        assert end - start >= threshold_ms * 1e6


def test_a_collection_that_began_before_us_is_left_out(tmp_path):
    pauses = GcPauses(tmp_path, 0)
    pauses._on_collection("stop", {})
    pauses.stop()
    assert not (tmp_path / "torch.gc_record").exists()


def test_gc_pauses_are_shown_with_the_real_process(noting_tier, tmp_path):
    recorded(experimental_config=_ExperimentalConfig(gc_detect_threshold=0), during=lambda prof: gc.collect())
    capture = open_capture(captures(tmp_path)[0])
    assert capture.gc_pauses["pid"].to_list() == [os.getpid()] * capture.gc_pauses.height
    assert capture.gc_pauses.height >= 1
    start = capture.gc_pauses["start_ns"][0]
    assert abs(time.time_ns() - start) < 60_000_000_000


def test_processors_one_by_one(tmp_path, monkeypatch):
    monkeypatch.setattr(host_sampler, "_TICKS", 100)
    monkeypatch.setattr(host_sampler.os, "cpu_count", lambda: 2)

    def thread(tid, user, system, processor):
        folder = tmp_path / str(tid)
        folder.mkdir(exist_ok=True)
        fields = ["S", *["0"] * 10, str(user), str(system), *["0"] * 23, str(processor)]
        (folder / "stat").write_text(f"{tid} (a ) b) " + " ".join(fields))

    cpu = host_sampler._Cpu(tmp_path)
    thread(1, 100, 50, 0)
    assert cpu(10**9) == []
    thread(1, 110, 60, 1)  # 0.2 s on processor 1, where it was seen last
    thread(2, 30, 0, 0)  # new: 0.3 s
    assert [(name, round(value, 3)) for _, name, _, value in cpu(2 * 10**9)] == [
        ("CPU 0", 30.0),
        ("CPU 1", 20.0),
        ("CPU Avg", 25.0),
    ]


def test_host_samples_become_counters(noting_tier, tmp_path):
    recorded(experimental_config=_ExperimentalConfig(host_sys=["cpu", "mem", "disk", "network"]))
    counters = open_capture(captures(tmp_path)[0]).counters
    assert set(counters["source"]) >= {"CPU Usage", "Memory Usage", "Disk Usage"}
    memory = counters.filter(counters["source"].cast(str) == "Memory Usage")["value"]
    assert memory.len() == 2
    assert ((memory > 0) & (memory < 100)).all()


def test_a_torn_line_of_samples_is_counted(noting_tier, tmp_path):
    recorded(experimental_config=_ExperimentalConfig(host_sys=["mem"]))
    (capture,) = captures(tmp_path)
    file = capture / "FRAMEWORK" / "x.host_counters.csv"
    file.write_bytes(file.read_bytes() + b"12345,Memory Us")
    opened = open_capture(capture)
    assert opened.counters.height == 2
    assert opened.quality.filter(opened.quality["issue"].cast(str) == "unreadable-line")["count"].to_list() == [1]


PERF = """#!/bin/sh
trap 'exit 0' INT
while [ "$1" != -o ]; do shift; done
printf '%s' "{output}" > "$2"
{then}
"""


@pytest.fixture
def perf(tmp_path, monkeypatch):
    """A `perf` that writes what a test says and then does as it says."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def make(output, then, attached=True):
        monkeypatch.setattr("stepscope.collect.sources.os_calls._has_event_buffer", lambda pid: attached)
        (folder / "perf").write_text(PERF.format(output=output, then=then))
        (folder / "perf").chmod(0o755)

    return make


def test_calls_of_the_operating_system(perf, noting_tier, tmp_path, monkeypatch):
    lines = ["     ? (         ):  ... [continued]: read())  = 0", " 1000.500 ( 2.000 ms): a b/77 futex(uaddr: 0x1) = 0",
             " 1001.000 (         ): a b/78 read(fd: 1</x/9 >  ...", " 1001.000 ( 0.250 ms): a b/78  ... [continued]: read()) = 1",
             *[" 2000.000 ( 0.001 ms): a b/77 getsid() = 1"] * 5]  # fmt: skip
    perf("\n".join(lines), "while :; do sleep 0.05; done")
    monkeypatch.setattr("stepscope.collect.sources.os_calls.raw_ns", lambda: 9_000_000_000)
    config = _ExperimentalConfig(host_sys=["osrt"])
    with profile(on_trace_ready=lambda prof: None, experimental_config=config) as prof:
        framework = Path(prof.prof_if.prof_path) / "FRAMEWORK"
        while not (framework / "x.os_calls.txt").stat().st_size:
            os.sched_yield()
    calls = os_calls.read(framework, FrameworkClock()).api_calls
    assert calls.filter(calls["name"].cast(str) != "getsid").select("tid", "start_ns", "end_ns").rows() == [
        (77, 9_000_000_000 - 999_500_000, 9_000_000_000 - 997_500_000),
        (78, 9_000_000_000 - 999_000_000, 9_000_000_000 - 998_750_000),
    ]
    assert set(calls["level"].cast(str)) == {"os"}
    assert (framework / "x.os_calls.txt").stat().st_mode & 0o777 == 0o640
    (framework / "x.os_call_anchors.csv").unlink()
    assert os_calls.read(framework, FrameworkClock()).quality["count"].to_list() == [7]


@pytest.mark.parametrize("there", [True, False])
def test_calls_that_cannot_be_recorded_are_a_message_for_each_capture(there, perf, noting_tier, monkeypatch, capsys):
    perf("", "echo Permission denied >&2; exit 255")
    if not there:
        monkeypatch.setenv("PATH", "")
    for _ in range(2):
        with profile(on_trace_ready=lambda prof: None, experimental_config=_ExperimentalConfig(host_sys=["osrt"])) as prof:
            started = [item._perf for item in prof.prof_if._sources if getattr(item, "_perf", None)]
            assert [one.wait(20) for one in started] == ([255] if there else [])
    out = capsys.readouterr().err
    assert out.count("WARNING") == 2
    assert out.count("Permission denied" if there else "perf is not installed") == 2


@pytest.mark.parametrize(("attached", "why"), [(False, "was not attached to this process"), (True, "recorded no call")])
def test_a_capture_without_calls_says_why(attached, why, perf, noting_tier, monkeypatch, capsys):
    perf("", "while :; do sleep 0.05; done", attached)
    if not attached:
        monkeypatch.setattr("stepscope.collect.sources.os_calls._ATTACH_SECONDS", 0.05)
    with profile(on_trace_ready=lambda prof: None, experimental_config=_ExperimentalConfig(host_sys=["osrt"])):
        pass
    assert why in capsys.readouterr().err


def test_recording_begins_when_perf_is_attached(perf, noting_tier, monkeypatch):
    perf("", "while :; do sleep 0.05; done")
    looks = iter([False, False, True])
    monkeypatch.setattr("stepscope.collect.sources.os_calls._has_event_buffer", lambda pid: next(looks))
    with profile(on_trace_ready=lambda prof: None, experimental_config=_ExperimentalConfig(host_sys=["osrt"])):
        assert list(looks) == []


@pytest.mark.slow  # perf starts and stops
def test_the_shortest_capture_has_the_calls_of_its_own_time(noting_tier, capsys):
    if shutil.which("perf") is None:
        pytest.skip("perf is not installed")
    with profile(on_trace_ready=lambda prof: None, experimental_config=_ExperimentalConfig(host_sys=["osrt"])) as prof:
        os.getpriority(os.PRIO_PROCESS, 0)
    said = capsys.readouterr().err
    if "perf trace failed" in said or "was not attached" in said:  # not allowed here, or no time on a busy machine
        pytest.skip(said)
    calls = os_calls.read(Path(prof.prof_if.prof_path) / "FRAMEWORK", FrameworkClock()).api_calls
    assert "getpriority" in calls["name"].cast(str).to_list()


def test_what_the_host_cannot_give_is_said(tmp_path, noting_tier, capsys):
    sampler = HostSampler(tmp_path, ("numa",))
    sampler.start()
    sampler.stop()
    assert capsys.readouterr().err.count("WARNING") == 1
    assert not (tmp_path / "x.host_counters.csv").exists()
    assert HEADER.count(",") == 4


def test_limits_in_words(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPSCOPE_MIN_FREE_BYTES", "0")
    (tmp_path / "records").write_bytes(b"x" * 100)

    def passed(**limits):
        return budget.Watch(tmp_path, Budget(**limits), print).exceeded()

    assert passed() is None
    assert passed(max_bytes=101) is None
    assert passed(max_bytes=100) == "max_bytes=100"
    assert passed(max_seconds=3600) is None
    assert passed(max_seconds=0) == "max_seconds=0"
    monkeypatch.setenv("STEPSCOPE_MIN_FREE_BYTES", str(1 << 60))
    assert passed() == "the disk is nearly full"


@pytest.mark.parametrize("stops_anywhere", [True, False])
def test_a_capture_ends_at_its_limit_and_says_so(stops_anywhere, noting_tier, tmp_path, monkeypatch, capsys):
    reached = threading.Event()
    monkeypatch.setattr("profiler_doubles.NotingTier.stops_anywhere", stops_anywhere)
    monkeypatch.setattr(budget.Watch, "_run", lambda watch: (watch._on_limit("max_seconds=1"), reached.set()))
    prof = profile(on_trace_ready=lambda prof: noting_tier.append("ready"), schedule=schedule(wait=0, active=3, repeat=1))
    prof.start()
    assert reached.wait(10)
    assert ("stop" in noting_tier) is stops_anywhere
    assert ("silence" in noting_tier) is not stops_anywhere
    for _ in range(3):
        prof.step()
    prof.stop()
    assert [call for call in noting_tier if "Step" not in call and call not in ("pop", "silence")] == [
        "prepare",
        "start",
        "stop",
        "ready",
    ]
    assert capsys.readouterr().err.count("ends early") == 1
    info = orjson.loads(next(tmp_path.rglob("profiler_info.json")).read_bytes())
    assert info["collector"]["limit"] == "max_seconds=1"


def test_a_nearly_full_disk_refuses_a_capture(noting_tier, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("STEPSCOPE_MIN_FREE_BYTES", str(1 << 60))
    prof = recorded(steps=3)
    assert noting_tier == []
    assert captures(tmp_path) == []
    out = capsys.readouterr().err
    assert out.count("WARNING") == 1
    assert "MiB free" in out
    assert not prof._running


def test_captures_are_spooled_and_moved(noting_tier, tmp_path):
    handler = tensorboard_trace_handler("shared", analyse_flag=False)
    with profile(on_trace_ready=handler, spool_dir=str(tmp_path / "local"), schedule=schedule(wait=0, active=1, repeat=2)) as prof:
        assert Path(prof.prof_if.prof_path).parent == tmp_path / "local"
        for _ in range(2):
            prof.step()
    for thread in threading.enumerate():
        if thread.name == "stepscope-spool":
            thread.join()
    assert [path.parent.name for path in captures(tmp_path)] == ["shared"] * 2
    assert Path(prof.prof_if.prof_path) in captures(tmp_path)
    assert list((tmp_path / "local").iterdir()) == []


def test_moving_to_another_file_system_is_whole_or_nothing(tmp_path, monkeypatch, capsys):
    def other_device(source, target):
        if Path(source).parent != Path(target).parent:
            raise OSError(18, "Invalid cross-device link")
        return rename(source, target)

    rename = os.rename
    monkeypatch.setattr(os, "rename", other_device)
    capture = tmp_path / "local" / "c_ascend_pt"
    (capture / "FRAMEWORK").mkdir(parents=True)
    (capture / "FRAMEWORK" / "torch.op_range").write_bytes(b"12")
    moved = spool.move(capture, tmp_path / "shared")
    assert (moved / "FRAMEWORK" / "torch.op_range").read_bytes() == b"12"
    assert not capture.exists()
    shutil.copytree(moved, capture)
    monkeypatch.setattr(shutil, "copytree", lambda *_, **__: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    spool.move_in_background(capture, tmp_path / "other").join()
    assert capture.is_dir()
    assert list((tmp_path / "other").iterdir()) == []
    assert "No space left" in capsys.readouterr().err


def test_child_threads_reach_the_recording(noting_tier, capsys):
    profile.enable_profiler_in_child_thread()
    assert "no profiler" in capsys.readouterr().err
    with profile(on_trace_ready=lambda prof: None):
        thread = threading.Thread(target=lambda: profile.enable_profiler_in_child_thread(with_modules=True, with_stack=1))
        thread.start()
        thread.join()
        profile.disable_profiler_in_child_thread()
    assert noting_tier[2:4] == ["enable True", "disable"]
    assert capsys.readouterr().err.count("WARNING") == 1


def test_the_process_ends_while_recording(noting_tier, tmp_path, capsys):
    prof = profile(on_trace_ready=tensorboard_trace_handler("r"))
    prof.start()
    active._at_exit()
    assert noting_tier == ["prepare", "start", "stop"]
    assert "stepscope analyse" in capsys.readouterr().err
    assert not list(tmp_path.rglob("ASCEND_PROFILER_OUTPUT"))
    active.release(prof)
