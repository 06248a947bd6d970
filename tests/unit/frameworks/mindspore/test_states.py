"""States of the MindSpore profiler and its messages on misuse; the recording is a stand-in (docs/formats/mindspore.md 2.3, 2.5)."""

from __future__ import annotations

import json

import pytest

from stepscope.collect import active, messages
from stepscope.frameworks.mindspore import offline, profiler, training_steps
from stepscope.frameworks.mindspore.profiler import Profiler, profile, tensor_board_trace_handler
from stepscope.frameworks.mindspore.scheduling import schedule


class NotingRecording:
    def __init__(self, parameters, place, metadata):
        self.calls, self.place, self.metadata, self.prof_path = [], place, metadata, "there"
        self.user_metadata, self.analysed, self.recording = [], [], False

    def __getattr__(self, name):
        def noted():
            self.calls.append(name)
            if name == "finalize":
                self.user_metadata.append(self.metadata())

        return noted

    def push_step(self, name):
        self.calls.append(name)

    def pop_step(self):
        self.calls.append("end")

    def saved(self):
        pass

    def analyse(self, **how):
        self.analysed.append(how)


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    monkeypatch.setattr(profiler, "Recording", NotingRecording)
    monkeypatch.setattr(active, "_running", None)
    monkeypatch.setattr(messages, "_printed", set())
    monkeypatch.setattr(training_steps, "_install", lambda: None)
    monkeypatch.delenv("RANK", raising=False)


def work(prof) -> list[str]:
    return [call for call in prof.prof_if.calls if not call.startswith("ProfilerStep") and call != "end"]


def test_without_a_schedule_everything_is_recorded():
    prof = Profiler()
    prof.stop()
    assert prof.prof_if.calls == ["init", "start", "stop", "finalize"]


def test_start_profile_false_waits():
    prof = Profiler(start_profile=False)
    assert prof.prof_if.calls == []
    prof.start()
    prof.stop()
    assert work(prof) == ["init", "start", "stop", "finalize"]


def test_two_cycles_of_a_schedule():
    ready = []
    with Profiler(schedule=schedule(wait=1, warmup=1, active=1, repeat=2), on_trace_ready=lambda: ready.append(1)) as prof:
        for _ in range(7):
            prof.step()
    cycle = ["init", "warmup", "start", "stop", "finalize"]
    assert work(prof) == cycle * 2
    assert ready == [1, 1]


def test_a_schedule_without_step_stops_all_the_same(capsys):
    """Defect 1: the reference returns without stopping."""
    prof = Profiler(schedule=schedule(wait=0, active=2, warmup=0))
    prof.stop()
    assert work(prof) == ["init", "start", "stop", "finalize"]
    assert "step() was never called" in capsys.readouterr().err
    again = Profiler()
    assert work(again) == ["init", "start"]
    again.stop()


def test_misuse_is_said(capsys):
    prof = Profiler()
    prof.start()
    prof.step()
    prof.stop()
    prof.stop()
    said = capsys.readouterr().err
    assert "is already running; this start is ignored" in said
    assert "has no schedule; step() has no effect" in said
    assert "is not running; this stop is ignored" in said
    assert work(prof) == ["init", "start", "stop", "finalize"]


def test_a_step_after_the_end_is_said(capsys):
    prof = Profiler(schedule=schedule(wait=0, active=1, warmup=0), start_profile=False)
    prof.step()
    assert "has stopped; step() has no effect" in capsys.readouterr().err


def test_one_profiler_at_a_time(capsys):
    first, second = Profiler(), Profiler()
    assert "another profiler is already running" in capsys.readouterr().err
    second.stop()
    first.stop()
    assert (work(first), work(second)) == (["init", "start", "stop", "finalize"], [])


def test_analyse_stops_first():
    prof = Profiler()
    prof.analyse(pretty=True, step_list=[3, 2], mode="async")
    assert work(prof) == ["init", "start", "stop", "finalize"]
    assert prof.prof_if.analysed == [{"background": True, "pretty": True, "steps": [2, 3]}]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"mode": "later"}, "neither 'sync' nor 'async'"),
        ({"mode": 1}, "neither 'sync' nor 'async'"),
        ({"pretty": "yes"}, "is not a bool"),
        ({"step_list": (1, 2)}, "not a list of consecutive"),
        ({"step_list": [1, 3]}, "not a list of consecutive"),
        ({"step_list": ["1"]}, "not a list of consecutive"),
        ({"step_list": [0]}, "not a list of consecutive"),
        ({"offline_path": "there"}, "use Profiler.offline_analyse"),
    ],
)
def test_wrong_arguments_of_analyse(arguments, word, capsys):
    prof = Profiler()
    prof.analyse(**arguments)
    assert word in capsys.readouterr().err
    assert prof.prof_if.analysed == [{"background": False, "pretty": False, "steps": None}]


def test_analyse_with_a_schedule_is_the_handlers(capsys):
    prof = Profiler(schedule=schedule(wait=0, active=1, warmup=0))
    prof.step()
    prof.analyse()
    assert prof.prof_if.analysed == []
    assert "pass on_trace_ready" in capsys.readouterr().err


def test_handlers_of_every_kind():
    plan = schedule(wait=0, active=1, warmup=0, repeat=1)
    seen = []
    for handler in (tensor_board_trace_handler, lambda prof: prof.analyse(async_mode=True), lambda: seen.append("none")):
        with Profiler(schedule=plan, on_trace_ready=handler) as prof:
            prof.step()
        seen.append(prof.prof_if.analysed)
    plain = {"pretty": False, "steps": None}
    assert seen == [[{"background": False, **plain}], [{"background": True, **plain}], "none", []]


def test_a_handler_that_fails_ends_nothing_but_itself(capsys):
    def broken(prof):
        raise RuntimeError("no disk")

    prof = Profiler(schedule=schedule(wait=0, active=1, warmup=0), on_trace_ready=broken)
    prof.step()
    prof.step()
    prof.stop()
    assert "no disk" in capsys.readouterr().err
    after = Profiler()
    assert work(after) == ["init", "start"]
    after.stop()


def test_metadata(capsys):
    prof = Profiler()
    prof.add_metadata("job", "a")
    prof.add_metadata("job", "b")
    prof.add_metadata_json("args", json.dumps({"world": 2}))
    prof.add_metadata_json("bad", "{")
    prof.add_metadata(1, "x")
    prof.MAX_META_SIZE = 10_000
    prof.add_metadata("big", "x" * 20_000)
    prof.stop()
    assert prof.prof_if.user_metadata == [{"job": "b", "args": {"world": 2}}]
    said = capsys.readouterr().err
    assert all(word in said for word in ("is replaced", "is not valid JSON", "must be str", "would exceed"))


def test_a_body_that_raises_stops_the_profiler():
    with pytest.raises(KeyError), Profiler() as prof:
        raise KeyError("training")
    assert work(prof) == ["init", "start", "stop", "finalize"]


def test_steps_of_a_schedule_are_marked():
    with Profiler(schedule=schedule(wait=0, active=2, warmup=0, repeat=1)) as prof:
        prof.step()
    assert [call for call in prof.prof_if.calls if call.startswith("ProfilerStep")] == ["ProfilerStep#0", "ProfilerStep#1"]


def test_the_later_class_calls_the_handler_without_a_schedule():
    seen = []
    with profile(on_trace_ready=lambda prof: seen.append(prof), output_path="ignored") as prof:
        prof.step()
    assert seen == [prof]
    assert [call for call in prof.prof_if.calls if call.startswith("ProfilerStep")] == ["ProfilerStep#0", "ProfilerStep#1"]


def test_without_a_schedule_nothing_is_said_about_one(capsys):
    with profile(on_trace_ready=lambda prof: None):
        pass
    assert "schedule" not in "".join(capsys.readouterr())


def test_no_message_has_an_empty_path(capsys):
    prof = Profiler(schedule=schedule(wait=5, active=1, warmup=1))
    prof.prof_if.prof_path = ""
    prof.step()
    prof.end_with_process()
    said = "".join(capsys.readouterr())
    assert "ended at step 1, before the schedule's first recorded step: nothing was recorded" in said
    assert "analyse `" not in said
    active.release(prof)


def test_offline_analysis_has_a_worker_on_one_core(monkeypatch, tmp_path, capsys):
    """Defect 5: half of one core is not a core."""
    asked = []

    class Done:
        ok, error, seconds, files, unmet = True, None, 0.0, ("a.csv", "b.csv"), "steps [2] were not recorded"

    class Process:
        def __init__(self, request):
            asked.append(request)

        def wait(self):
            return Done

    monkeypatch.setattr(offline.os, "cpu_count", lambda: 1)
    monkeypatch.setattr(offline, "AnalysisProcess", Process)
    for name in ("a", "b"):
        (tmp_path / f"{name}_1_20240101000000000_ascend_ms" / "FRAMEWORK").mkdir(parents=True)
    Profiler.offline_analyse(str(tmp_path), step_list=[1, 2], data_simplification=True)
    assert [request["steps"] for request in asked] == [[1, 2], [1, 2]]
    assert [request["simplify"] for request in asked] == [True, True]
    said = "".join(capsys.readouterr())
    assert said.count("analysed in") == said.count("ERROR") == 2
    assert f"2 files in {tmp_path}/a_1_20240101000000000_ascend_ms/ASCEND_PROFILER_OUTPUT; next: stepscope top {tmp_path}" in said
    assert "steps [2] were not recorded" in said
    assert f"2 of 2 captures in {tmp_path} analysed" in said


@pytest.mark.parametrize("path", ["nowhere", 5])
def test_offline_analysis_of_nothing(path, capsys):
    Profiler.offline_analyse(path)
    assert "expected a *_ascend_ms folder or a folder of such folders" in capsys.readouterr().err
