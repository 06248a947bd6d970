"""`stepscope run --profile`: which steps of a script without profiling code are recorded, and what is said if none is."""

from __future__ import annotations

import gc
import os
import sys
import types

import pytest

from stepscope.collect import active
from stepscope.dynamic_profile import module_calls
from stepscope.integrations import script as recorded_script
from stepscope.integrations.plan import Plan
from stepscope.integrations.script import RecordedScript
from stepscope.profiler import ProfilerActivity

torch = pytest.importorskip("torch", reason="torch is not installed")


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    yield
    if active.running() is not None:
        gc.collect()
    assert active.running() is None


@pytest.fixture
def script(noting_tier, monkeypatch):
    """A script whose captures are not analysed."""
    monkeypatch.setattr("stepscope.profiler.handlers.TraceHandler.__call__", lambda self, prof: None)
    monkeypatch.setattr(recorded_script, "_devices_in_use", lambda: [ProfilerActivity.CPU])

    def make(first=2, last=3, main_pid=None, ranks=None):
        made = RecordedScript(Plan(first, last, "runs", ranks), str(main_pid or os.getpid()))
        made._unwatch_modules = lambda: None
        return made

    return make


def calls(script, number):
    for _ in range(number):
        script._before_call()
        script._step()


def recorded(noted):
    return [call.removeprefix("push ProfilerStep#") for call in noted if call.startswith("push")]


@pytest.mark.parametrize(
    ("first", "last", "steps"), [(2, 3, ["2", "3"]), (0, 0, ["0"]), (0, 1, ["0", "1"]), (1, 1, ["1"]), (5, 9, ["5", "6"])]
)
@pytest.mark.parametrize("has_optimizer", [True, False])
def test_steps_keep_their_numbers(script, noting_tier, first, last, steps, has_optimizer):
    made = script(first, last)
    if has_optimizer:
        made._optimizer_created()
    calls(made, 7)
    made.end()
    assert [step for step in recorded(noting_tier) if int(step) < 7] == steps


@pytest.mark.parametrize(("rank", "steps"), [("0", []), ("1", ["2", "3"])])
def test_a_rank_that_is_known_only_after_torch_was_imported(script, noting_tier, monkeypatch, capsys, rank, steps):
    made = script(ranks=frozenset({1}))
    monkeypatch.setenv("RANK", rank)
    made._optimizer_created()
    calls(made, 6)
    made.end()
    assert recorded(noting_tier) == steps
    assert "nothing was recorded" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, "the first rank of the plan is 7, but the job has rank 0 only"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "the first rank of the plan is 7, but the job has ranks 0 to 1"),
        ({"RANK": "1", "WORLD_SIZE": "2"}, ""),
        ({"RANK": "0", "WORLD_SIZE": "8"}, ""),
        ({"RANK": "0"}, ""),
    ],
    ids=["one-process", "rank-0-of-2", "another-rank", "somebody-records", "size-unknown"],
)
def test_ranks_that_the_job_does_not_have_are_one_line(script, noting_tier, monkeypatch, capsys, environment, said):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    made = script(ranks=frozenset({7}))
    made._optimizer_created()
    calls(made, 6)
    made.end()
    assert recorded(noting_tier) == []
    shown = capsys.readouterr().err
    assert said in shown
    assert shown.count("\n") == bool(said)


def test_calls_before_the_first_optimizer_are_another_phase(script, noting_tier, capsys):
    made = script()
    calls(made, 1)  # a rehearsal; the profiler has begun to warm up
    made._optimizer_created()
    calls(made, 6)
    made.end()
    assert recorded(noting_tier) == ["2", "3"]
    assert "WARNING" not in capsys.readouterr().err


def test_a_profiler_that_failed_is_not_called_a_window_too_late(script, monkeypatch, capsys):
    made = script()
    monkeypatch.setattr("stepscope.profiler.profiler.profile.start", lambda self: None)  # as after a failure, which it says itself
    made._optimizer_created()
    calls(made, 6)
    made.end()
    assert "nothing was recorded" not in capsys.readouterr().err


BEGINS = "nothing was recorded: steps=2:3 begins at step 2, counted from 0, but the script"


@pytest.mark.parametrize(
    ("has_optimizer", "number", "said"),
    [
        pytest.param(True, 2, f"{BEGINS} made 2 optimizer steps", id="short-training"),
        pytest.param(
            False, 1, f"{BEGINS} created no optimizer, and called its outermost module (Net) 1 times", id="short-inference"
        ),
        pytest.param(False, 0, "nothing was recorded: the script created no torch.optim.Optimizer and called no", id="no-steps"),
    ],
)
def test_a_script_that_was_not_recorded_says_why(script, tmp_path, has_optimizer, number, said, capsys):
    made = script()
    made._module = "Net"
    if has_optimizer:
        made._optimizer_created()
    calls(made, number)
    made.end()
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "WARNING" in line]
    assert said in line
    assert list(tmp_path.glob("*/*_ascend_pt")) == []


@pytest.mark.parametrize(("rank", "main_pid"), [(None, 1), ("1", os.getppid()), ("0", 1)], ids=["child", "rank-1", "other"])
def test_other_processes_are_silent(script, rank, main_pid, monkeypatch, capsys):
    made = script(main_pid=main_pid)
    if rank is not None:
        monkeypatch.setenv("RANK", rank)
    made.end()
    assert capsys.readouterr().err == ""


def test_children_that_recorded_are_enough(script, tmp_path, capsys):
    made = script()
    (tmp_path / "runs" / "child_ascend_pt").mkdir(parents=True)
    made.end()
    assert capsys.readouterr().err == ""


def test_outermost_calls_are_seen_and_torch_is_restored():
    before = torch.nn.Module.__call__
    seen = []
    end = module_calls.watch(lambda: seen.append("begins"), lambda module: seen.append(type(module).__name__))
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    torch.nn.MSELoss()(net(torch.ones(1, 2)), torch.ones(1, 2))
    with pytest.raises(RuntimeError):
        net(torch.ones(1, 3))
    net[0](torch.ones(1, 2))
    end()
    net(torch.ones(1, 2))
    assert seen == ["begins", "Sequential", "begins", "begins", "Linear"]
    assert torch.nn.Module.__call__ is before


@pytest.mark.parametrize(
    ("cuda_began", "npu_bytes", "imported", "expected"),
    [
        pytest.param(False, 0, [], ["CPU"], id="cpu"),
        pytest.param(True, 0, [], ["CPU", "CUDA"], id="gpu"),
        pytest.param(False, 64, [], ["CPU", "NPU"], id="npu-holds-memory"),
        pytest.param(False, 0, ["torch_npu"], ["CPU", "NPU"], id="torch_npu"),
    ],
)
def test_only_devices_in_use_are_recorded(cuda_began, npu_bytes, imported, expected, monkeypatch):
    """On a machine where all could be; the simulated NPU always can."""
    monkeypatch.setattr(recorded_script, "supported_activities", lambda: set(ProfilerActivity))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: cuda_began)
    npu = types.SimpleNamespace(device_count=lambda: 2, max_memory_allocated=lambda number: npu_bytes * number)
    monkeypatch.setattr(torch, "npu", npu, raising=False)
    monkeypatch.delitem(sys.modules, "torch_npu", raising=False)
    for name in imported:
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    assert [activity.name for activity in recorded_script._devices_in_use()] == expected
