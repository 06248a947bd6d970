"""The state machine of a profiler (docs/formats/profiler-api.md 5, 6, 7, 22)."""

from __future__ import annotations

import gc
import itertools

import pytest
from profiler_doubles import NotingRecording

from stepscope.collect import active
from stepscope.profiler import ProfilerAction, _KinetoProfile, profile, schedule, tensorboard_trace_handler

N, W, R, S = ProfilerAction


@pytest.fixture(autouse=True)
def _alone():
    yield
    if active.running() is not None:  # what a cycle of references holds; costly beside all of torch
        gc.collect()
    assert active.running() is None


def noting(**options):
    prof = profile(**options)
    prof.prof_if = NotingRecording(prof.prof_if.settings)
    return prof


def following(*actions):
    return lambda step: actions[min(step, len(actions) - 1)]


def test_call_trace_of_nine_steps(noting_tier):
    ready = []
    prof = noting(
        schedule=schedule(wait=1, warmup=1, active=2, repeat=2, skip_first=1),
        on_trace_ready=lambda prof: ready.append(prof.step_num),
    )
    prof.start()
    seen = {}
    for number in range(1, 10):
        before = len(prof.prof_if.primitives())
        prof.step()
        seen[number] = prof.prof_if.primitives()[before:]
    before = len(prof.prof_if.primitives())
    prof.stop()
    assert {number: calls for number, calls in seen.items() if calls} == {
        2: ["init", "warmup"],
        3: ["start"],
        5: ["stop", "finalize", "saved"],
        6: ["init", "warmup"],
        7: ["start"],
        9: ["stop", "finalize", "saved"],
    }
    assert prof.prof_if.primitives()[before:] == []
    assert ready == [5, 9]
    opened = [call for call in prof.prof_if.calls if call.startswith("push_step")]
    assert opened == [f"push_step ProfilerStep#{number}" for number in range(10)]


def test_a_step_is_closed_before_and_the_next_opened_after_the_transition(noting_tier):
    prof = noting(schedule=schedule(wait=0, active=1))
    prof.start()
    prof.step()
    prof.stop()
    assert prof.prof_if.calls == [
        "init", "start", "push_step ProfilerStep#0",
        "pop_step", "stop_at_limit", "stop", "finalize", "saved", "init", "start", "push_step ProfilerStep#1",
        "pop_step", "stop", "finalize", "saved",
    ]  # fmt: skip


END = ["stop", "finalize", "saved"]
EXPECTED = {
    (N, N): [], (N, W): ["init", "warmup"], (N, R): ["init", "start"], (N, S): ["init", "start"],
    (W, N): ["start", "stop", "finalize"], (W, W): [], (W, R): ["start"], (W, S): ["start"],
    (R, N): ["stop", "finalize"], (R, W): [*END, "init", "warmup"], (R, R): [], (R, S): [],
    (S, N): END, (S, W): [*END, "init", "warmup"], (S, R): [*END, "init", "start"], (S, S): [*END, "init", "start"],
}  # fmt: skip


@pytest.mark.parametrize(("before", "after"), list(itertools.product(ProfilerAction, repeat=2)))
def test_transitions(before, after, noting_tier, capsys):
    prof = noting(schedule=following(before, after), on_trace_ready=lambda prof: prof.prof_if.calls.append("handler"))
    prof.start()
    prof.prof_if.calls.clear()
    prof.step()
    calls = prof.prof_if.primitives()
    assert [call for call in calls if call != "handler"] == EXPECTED[before, after]
    assert ("handler" in calls) == ("saved" in EXPECTED[before, after])
    warned = (before, after) in [(W, N), (R, N), (R, W)]
    assert ("WARNING" in capsys.readouterr().err) == warned
    prof.stop()


@pytest.mark.parametrize(("action", "calls"), [(N, []), (W, ["finalize", "delete"]), (R, END), (S, END)])
def test_stop(action, calls, noting_tier, capsys):
    prof = noting(schedule=following(action))
    prof.start()
    prof.prof_if.calls.clear()
    prof.stop()
    assert prof.prof_if.primitives() == calls
    assert capsys.readouterr().err.count("WARNING") == 1


def test_a_schedule_to_the_end_ends_with_training(noting_tier, capsys):
    from stepscope.profiler.scheduling import TO_THE_END

    prof = noting(schedule=schedule(wait=0, active=TO_THE_END, repeat=1))
    prof.start()
    prof.step()
    prof.stop()
    assert prof.prof_if.primitives()[-len(END) :] == END
    assert "WARNING" not in capsys.readouterr().err


LATE = schedule(wait=2, warmup=1, active=1, skip_first=1)
RECORDS_FROM_4 = "the schedule records from step 4 (skip_first 1 + wait 2 + warmup 1), counted from 0, but"


@pytest.mark.parametrize(
    ("plan", "steps", "said"),
    [
        pytest.param(
            schedule(wait=2, warmup=1, active=1, skip_first=1), 3, f"{RECORDS_FROM_4} step() was called 3 times", id="short"
        ),
        pytest.param(
            schedule(wait=2, warmup=1, active=1, skip_first=1), 0, f"{RECORDS_FROM_4} step() was never called", id="no-step"
        ),
        pytest.param(schedule(wait=9, active=1, skip_first_wait=1, warmup=2), 1, "from step 2 (warmup 2)", id="in-the-warmup"),
        pytest.param(following(N), 2, "gave no step to record in steps 0 to 2", id="own-schedule"),
    ],
)
@pytest.mark.parametrize("end", ["stop", "end_with_process"])
def test_a_run_that_ends_before_its_window_says_the_arithmetic(plan, steps, said, end, noting_tier, capsys):
    prof = noting(schedule=plan)
    prof.start()
    for _ in range(steps):
        prof.step()
    getattr(prof, end)()
    active.release(prof)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "WARNING" in line]
    assert "nothing was recorded: " in line
    assert said in line


def test_a_capture_without_a_handler_names_the_next_command(noting_tier, capsys):
    for handler in (None, tensorboard_trace_handler(analyse_flag=False)):
        with noting(on_trace_ready=handler):
            pass
        (line,) = capsys.readouterr().err.splitlines()
        assert line.endswith("; next: stepscope verdict /capture")


def test_a_capture_that_was_never_exported_is_not_removed_in_silence(noting_tier, tmp_path, capsys):
    with _KinetoProfile() as prof:
        pass
    del prof
    gc.collect()
    assert capsys.readouterr().err.count("no export_* method was called") == 1


def test_without_a_schedule_there_are_no_warnings_and_no_steps(noting_tier, capsys):
    with noting() as prof:
        prof.step()
        prof.step()
    assert prof.prof_if.calls == ["init", "start", "stop_at_limit", "stop_at_limit", "stop", "finalize", "saved"]
    assert "WARNING" not in capsys.readouterr().err


def test_a_word_that_is_no_action_is_named_once(noting_tier, capsys):
    prof = noting(schedule=following(R, "later", "later", R))
    prof.start()
    for _ in range(3):
        prof.step()
    assert capsys.readouterr().err.count("'later'") == 1
    prof.stop()


def test_never_started_does_nothing(noting_tier, tmp_path, capsys):
    del_me = noting(on_trace_ready=lambda prof: prof.prof_if.calls.append("handler"))
    calls = del_me.prof_if.calls
    del del_me
    gc.collect()
    assert calls == []
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("call", ["stop", "step"])
def test_before_start_is_a_warning(call, noting_tier, capsys):
    prof = noting()
    getattr(prof, call)()
    getattr(prof, call)()
    assert prof.prof_if.calls == []
    assert prof.step_num == 0
    assert capsys.readouterr().err.count("WARNING") == (2 if call == "stop" else 1)


def test_start_twice_and_stop_twice_are_warnings(noting_tier, capsys):
    prof = noting()
    prof.start()
    prof.start()
    assert prof.prof_if.primitives() == ["init", "start"]
    prof.stop()
    prof.stop()
    assert prof.prof_if.primitives() == ["init", "start", *END]
    prof.step()
    assert capsys.readouterr().err.count("WARNING") == 3


def test_start_again_makes_another_capture(noting_tier):
    prof = noting()
    for _ in range(2):
        prof.start()
        prof.stop()
    assert prof.prof_if.primitives() == ["init", "start", *END] * 2


def test_start_again_with_an_exhausted_schedule_warns(noting_tier, capsys):
    prof = noting(schedule=schedule(wait=0, active=1, repeat=1))
    prof.start()
    prof.step()
    prof.stop()
    prof.start()
    prof.step()
    prof.stop()
    assert prof.prof_if.primitives() == ["init", "start", *END]
    assert capsys.readouterr().err.count("cycles of the schedule are over") == 1


def test_the_second_of_two_profilers_has_no_effect(noting_tier, capsys):
    first, second = noting(), noting()
    first.start()
    second.start()
    second.step()
    second.stop()
    assert second.prof_if.calls == []
    assert first._running
    first.stop()
    assert first.prof_if.primitives() == ["init", "start", *END]
    assert capsys.readouterr().err.count("ERROR") == 1
    second.start()
    second.stop()
    assert second.prof_if.primitives() == ["init", "start", *END]


def test_exception_of_the_body_comes_out_after_the_handler(noting_tier):
    ready = []
    with pytest.raises(KeyError), noting(on_trace_ready=ready.append):
        raise KeyError
    assert len(ready) == 1


def test_keyboard_interrupt_passes_and_saves(noting_tier):
    ready = []
    with pytest.raises(KeyboardInterrupt), noting(on_trace_ready=ready.append):
        raise KeyboardInterrupt
    assert len(ready) == 1


def test_exception_in_the_handler_is_shown_as_its_own_and_once_per_capture(noting_tier, capsys):
    called = []

    def handler(prof):
        called.append(1)
        raise RuntimeError("disk on fire")

    prof = noting(on_trace_ready=handler, schedule=schedule(wait=0, active=1))
    prof.start()
    for _ in range(3):
        prof.step()
    prof.stop()
    del prof
    gc.collect()
    assert len(called) == 4
    shown = capsys.readouterr().err
    assert shown.count("on_trace_ready raised an exception; training continues") == 4
    assert f'File "{__file__}", line {handler.__code__.co_firstlineno + 2}, in handler' in shown
    assert shown.count("RuntimeError: disk on fire") == 4
    assert "guard.py" not in shown


def test_exception_in_the_schedule_is_one_warning(noting_tier, capsys):
    def plan(step):
        if step == 2:
            raise ZeroDivisionError
        return R

    with noting(schedule=plan) as prof:
        for _ in range(5):
            prof.step()
    assert capsys.readouterr().err.count("WARNING") == 1
    assert prof.prof_if.calls[-1] == "abandon"


def test_destruction_stops(noting_tier):
    prof = noting()
    prof.start()
    calls = prof.prof_if.calls
    del prof
    gc.collect()
    assert calls[-3:] == END


def test_observer_of_the_user_is_forwarded(noting_tier):
    calls = []

    class Observer:
        def start(self):
            calls.append("start")

        def stop(self):
            calls.append("stop")

    with noting(execution_trace_observer=Observer()):
        pass
    assert calls == ["start", "stop"]


def test_kineto_profile_is_a_context_manager_without_steps(noting_tier):
    prof = _KinetoProfile()
    prof.prof_if = NotingRecording(prof.prof_if.settings)
    with prof as entered:
        assert entered is prof
    assert prof.prof_if.calls == ["init", "start", "stop", "finalize"]
    assert not hasattr(prof, "step")
    assert not hasattr(prof, "enable_profiler_in_child_thread")


@pytest.mark.parametrize("name", ["PROFILER_SAMPLECONFIG", "PROFILING_MODE"])
def test_an_outer_tool_makes_every_call_idle(name, noting_tier, monkeypatch, capsys):
    monkeypatch.setenv(name, "dynamic")
    with noting() as prof:
        prof.step()
    assert prof.prof_if.calls == []
    assert capsys.readouterr().err.count("WARNING") == 1


def test_warnings_are_silent_on_other_ranks(noting_tier, monkeypatch, capsys):
    monkeypatch.setenv("RANK", "1")
    noting().stop()
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("RANK", "0")
    noting().stop()
    assert "[WARNING]" in capsys.readouterr().err
    monkeypatch.setenv("TORCH_NPU_WARNING_DISABLE", "1")
    noting().stop()
    assert capsys.readouterr().err == ""
