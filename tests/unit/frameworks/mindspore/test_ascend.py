"""On a device MindSpore's own profiler records and we take its raw data over; here a stand-in leaves recorded data behind."""

from __future__ import annotations

import enum
import json
import sys
import types
from dataclasses import replace

import polars as pl
import prof_folder
import pytest

import stepscope
from stepscope.collect import active, messages
from stepscope.formats.mindspore.records import OP_RANGE, encode
from stepscope.frameworks.mindspore import AicoreMetrics, Profiler, ProfilerActivity, ProfilerLevel, mstx, sources, training_steps

SESSION = replace(prof_folder.SESSION, host_mhz=100.0)  # a tick is ten nanoseconds
FIRST_TICK = SESSION.mono_ns // 10


def stock_profiler(made: list[dict]):
    """What mindspore.Profiler leaves when it stops without analysis: a run folder with FRAMEWORK and PROF_*."""

    class Stock:
        def __init__(self, output_path, **arguments):
            made.append(arguments)
            self.folder = prof_folder.Path(output_path) / "host_1_20240101000000000_ascend_ms"
            (self.folder / "FRAMEWORK").mkdir(parents=True)

        def stop(self):
            prof_folder.write(self.folder, SESSION)
            row = {"tid": prof_folder.TID, "module": 4, "event": 4, "name": "Add", "full_name": "Default/Add-op0"}
            texts = {"module_text": "", "event_text": ""}
            (self.folder / "FRAMEWORK" / "mindspore.op_range").write_bytes(
                encode(OP_RANGE, [{**row, **texts, "start": FIRST_TICK + 100_000, "end": FIRST_TICK + 150_000}])
            )
            (self.folder / "profiler_info_0.json").write_text(json.dumps({"ms_version": "2.10.0", "cann_version": "8.1"}))

    return Stock


@pytest.fixture
def ascend(monkeypatch):
    """A module `mindspore` on an Ascend device."""
    made: list[dict] = []
    clock = types.SimpleNamespace(get_clock_syscnt=lambda: 5)
    profiler = types.SimpleNamespace(
        Profiler=stock_profiler(made),
        **{
            kind.__name__: enum.Enum(kind.__name__, {item.name: item.value for item in kind})
            for kind in (ProfilerActivity, ProfilerLevel, AicoreMetrics)
        },
    )
    module = types.SimpleNamespace(
        __version__="2.10.0",
        get_context=lambda name: {"device_target": "Ascend", "mode": 0, "jit_level": "O0"}[name],
        GRAPH_MODE=0,
        profiler=profiler,
        _c_expression=types.SimpleNamespace(
            PythonProfilerRecorder=lambda name: types.SimpleNamespace(record_start=lambda: None, record_end=lambda: None),
            **vars(clock),
        ),
    )
    monkeypatch.setitem(sys.modules, "mindspore", module)
    monkeypatch.setitem(sys.modules, "mindspore._c_expression", module._c_expression)
    monkeypatch.setattr(training_steps, "_install", lambda: None)
    monkeypatch.setattr(active, "_running", None)
    monkeypatch.setattr(messages, "_printed", set())
    monkeypatch.setenv("STEPSCOPE_MIN_FREE_BYTES", "0")
    monkeypatch.setenv("RANK_ID", "3")
    return made


def test_the_stock_profiler_is_driven_and_its_records_are_ours(ascend, tmp_path, capsys):
    metrics = AicoreMetrics.PipeUtilization
    prof = Profiler(output_path=str(tmp_path), profiler_level=ProfilerLevel.Level1, aic_metrics=metrics, l2_cache=True)
    prof.stop()
    said = capsys.readouterr().err
    assert "failed" not in said, said
    assert ascend[0]["profiler_level"].name == "Level1"
    assert ascend[0]["aic_metrics"].name == "PipeUtilization"
    assert ascend[0]["l2_cache"] is True
    (capture,) = tmp_path.glob("*_ascend_ms")
    assert sorted(path.name.split("_")[0] for path in capture.iterdir()) == ["FRAMEWORK", "PROF", "profiler"]
    info = json.loads((capture / "profiler_info_3.json").read_bytes())
    assert info["cann_version"] == "8.1"
    tables = stepscope.open(capture).tables
    facts = tables.facts
    assert (facts.framework, facts.rank, facts.device_kind, facts.level) == ("mindspore", 3, "npu", "Level1")
    assert facts.activities == ("CPU", "NPU")
    # A hundred thousand ticks after the session's start, on the clock of the device's own files.
    launched = ("Kernel::KernelLaunch::Default/Add-op0", prof_folder.T0 + 1_000_000, prof_folder.T0 + 1_500_000)
    assert tables.ops.select("name", "start_ns", "end_ns").rows() == [launched]
    add = tables.kernels.filter(pl.col("op_type") == "Add")
    assert add["op"].to_list() == [0]  # launched inside that range
    assert tables.kernels.filter(pl.col("kind") == "compute").height > 0
    results = stepscope.analyse(str(capture))
    assert results[0].ok, results[0].error
    names = {path.name for path in (capture / "ASCEND_PROFILER_OUTPUT").iterdir()}
    assert names >= {"trace_view.json", "kernel_details.csv", "step_trace_time.csv", "op_statistic.csv"}
    layers = {
        event["args"]["name"]
        for event in json.loads((capture / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").read_bytes())
        if event["name"] == "process_name"
    }
    assert layers >= {"MindSpore", "CANN", "Ascend Hardware", "Overlap Analysis"}


def test_what_this_machine_records(ascend):
    del ascend
    both = sources.Parameters()
    assert [item.name for item in sources.recorded(both, "Ascend")] == ["CPU", "NPU"]
    assert [item.name for item in sources.recorded(both, "CPU")] == ["CPU"]
    assert [item.name for item in sources.recorded(sources.Parameters(activities=(ProfilerActivity.NPU,)), "CPU")] == ["CPU"]
    assert [source.name for source in sources.choose(both, "Ascend")] == ["mindspore"]


def test_marks_go_through_mindspores_own_functions(ascend, tmp_path):
    told = []
    sys.modules["mindspore"].profiler.mstx = types.SimpleNamespace(
        mark=lambda *given: told.append(("mark", *given)),
        range_start=lambda *given: told.append(("start", *given)) or 7,
        range_end=lambda *given: told.append(("end", *given)),
    )
    mstx.mark("before")
    prof = Profiler(output_path=str(tmp_path), mstx=True)
    number = mstx.range_start("train", "a stream", "mine")
    mstx.range_end(number, "mine")
    prof.stop()
    mstx.mark("after")
    assert ascend[0]["mstx"] is True
    assert told == [("start", "train", "a stream", "mine"), ("end", 7, "mine")]


def test_settings_that_a_cpu_cannot_follow_are_said_once(ascend, tmp_path, monkeypatch, capsys):
    del ascend
    monkeypatch.setattr(sources, "device_target", lambda: "CPU")
    monkeypatch.setattr(sources, "choose", lambda parameters, target: [])
    for _ in range(2):
        Profiler(output_path=str(tmp_path), l2_cache=True, parallel_strategy=True).stop()
    said = capsys.readouterr().err
    assert said.count("without an Ascend device these settings have no effect: l2_cache, parallel_strategy") == 1
    # Each capture knows it, so that `info` does not list them.
    infos = [json.loads(path.read_bytes()) for path in tmp_path.glob("*_ascend_ms/profiler_info_3.json")]
    assert [info["collector"]["without_effect"] for info in infos] == [["l2_cache", "parallel_strategy"]] * 2
