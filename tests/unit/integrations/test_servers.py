"""Plugins of inference servers, against doubles that have the documented hooks of vLLM and SGLang."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import stepscope
from stepscope.integrations import script, servers, sglang, vllm

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    monkeypatch.setattr(script, "_prepared", False)
    monkeypatch.setattr(script, "_script", None)


def put_module(monkeypatch, name, **content):
    """A module and the packages above it."""
    parts = name.split(".")
    for number in range(1, len(parts) + 1):
        path = ".".join(parts[:number])
        if path not in sys.modules:
            monkeypatch.setitem(sys.modules, path, ModuleType(path))
    module = sys.modules[name]
    for key, value in content.items():
        setattr(module, key, value)
    return module


class WorkerProfiler:
    """As in vLLM: begins after some iterations, and ends after some."""

    def __init__(self, profiler_config):
        self.delay, self.most = profiler_config.delay_iterations, profiler_config.max_iterations
        self.active = self.running = False
        self.seen = self.recorded = 0

    def start(self):
        self.active = True
        if not self.delay:
            self._start()
            self.running = True

    def step(self):
        if not self.active:
            return
        self.seen += 1
        if not self.running and self.delay and self.seen == self.delay:
            self._start()
            self.running = True
        if self.running:
            self.recorded += 1
            if self.most and self.recorded > self.most:
                self._stop()
                self.running = False

    def stop(self):
        self.active = False
        if self.running:
            self._stop()
            self.running = False

    def _start(self):
        raise NotImplementedError

    def _stop(self):
        raise NotImplementedError


class TorchProfilerWrapper(WorkerProfiler):
    def __init__(self, profiler_config, worker_name, local_rank, activities, on_trace_ready=None):
        super().__init__(profiler_config)


def fake_vllm(monkeypatch):
    put_module(monkeypatch, "vllm.profiler.wrapper", WorkerProfiler=WorkerProfiler, TorchProfilerWrapper=TorchProfilerWrapper)
    return put_module(monkeypatch, "vllm.v1.worker.gpu_worker", TorchProfilerWrapper=TorchProfilerWrapper)


def batch():
    torch.ones(4, 4) @ torch.ones(4, 4)


@pytest.mark.parametrize("load", [vllm.load, sglang.load])
def test_without_the_variable_nothing_happens(monkeypatch, load):
    monkeypatch.delenv(servers.VARIABLE, raising=False)
    worker = fake_vllm(monkeypatch)
    load()
    assert worker.TorchProfilerWrapper is TorchProfilerWrapper
    assert not script._prepared


def test_vllm_records_between_its_requests(monkeypatch, tmp_path):
    monkeypatch.setenv(servers.VARIABLE, "shapes")
    worker = fake_vllm(monkeypatch)
    vllm.load()
    made = worker.TorchProfilerWrapper
    vllm.load()  # vLLM may call it again
    assert worker.TorchProfilerWrapper is made
    assert script._prepared
    config = SimpleNamespace(delay_iterations=1, max_iterations=2, torch_profiler_dir=str(tmp_path / "traces"))
    profiler = made(config, worker_name="w", local_rank=0, activities=["CPU"])
    profiler.start()
    for _ in range(6):
        with profiler.annotate_context_manager("execute_model", metrics={"tokens": 3}):
            batch()
        profiler.step()
    profiler.stop()
    capture = stepscope.open(tmp_path / "traces")
    assert capture.steps.height == 2
    assert {"aten::mm", "execute_model"} <= set(capture.ops["name"].to_list())


class SchedulerProfilerMixin:
    """As in SGLang's scheduler, without what its other activities need."""

    module: ModuleType  # that it stands in

    def __init__(self, folder):
        self.torch_profiler, self.torch_profiler_output_dir = None, folder
        self.forward_ct, self.target = 0, 0

    def start_profile(self, stage=None):
        here = self.module
        activities = [here.torch.profiler.ProfilerActivity.CPU]
        self.torch_profiler = here.torch.profiler.profile(activities=activities, with_stack=True, on_trace_ready=None)
        self.torch_profiler.start()

    def stop_profile(self, stage=None):
        self.torch_profiler.stop()
        self.torch_profiler.export_chrome_trace(str(self.torch_profiler_output_dir / "own.trace.json.gz"))
        self.torch_profiler = None

    def _profile_batch_predicate(self, batch):
        if self.target and self.target <= self.forward_ct and self.torch_profiler:
            self.stop_profile()


@pytest.mark.parametrize(
    ("module", "name", "mark"),
    [
        ("sglang.srt.managers.scheduler_profiler_mixin", "SchedulerProfilerMixin", ""),
        ("sglang.srt.managers.scheduler_components.profiler_manager", "SchedulerProfilerManager", "_"),  # since 0.5.2x
    ],
)
def test_sglang_records_between_its_requests(monkeypatch, tmp_path, module, name, mark):
    monkeypatch.setenv(servers.VARIABLE, f"shapes,out={tmp_path / 'own'}")
    methods = {f"{mark}{method}": getattr(SchedulerProfilerMixin, method) for method in ("start_profile", "stop_profile")}
    mixin = type(name, (SchedulerProfilerMixin,), methods)
    module = mixin.module = put_module(monkeypatch, module, **{name: mixin, "torch": torch})
    sglang.load()
    start = f"{mark}start_profile"
    started = getattr(mixin, start)
    sglang.load()
    assert getattr(mixin, start) is started
    scheduler = mixin(tmp_path)
    scheduler.target = 3
    getattr(scheduler, start)()
    assert module.torch is torch
    for _ in range(5):
        scheduler.forward_ct += 1
        scheduler._profile_batch_predicate(None)
        batch()
    assert scheduler.torch_profiler is None
    capture = stepscope.open(tmp_path / "own")
    assert capture.steps.height == 2  # the third batch would have begun
    assert not list(Path(tmp_path).glob("*.json.gz"))


@pytest.mark.parametrize(
    ("load", "module", "content", "missing"),
    [
        (vllm.load, "vllm.profiler.wrapper", {}, "vllm.profiler.wrapper.WorkerProfiler"),
        (vllm.load, "vllm.profiler.wrapper", {"WorkerProfiler": object, "TorchProfilerWrapper": object}, "WorkerProfiler._start"),
        (vllm.load, "vllm", {}, "vllm.profiler.wrapper"),
        (sglang.load, "sglang.srt.managers.scheduler_profiler_mixin", {}, "SchedulerProfilerMixin"),
        (
            sglang.load,
            "sglang.srt.managers.scheduler_profiler_mixin",
            {"SchedulerProfilerMixin": object, "torch": torch},
            "SchedulerProfilerMixin.start_profile",
        ),
    ],
)
def test_an_unknown_version_keeps_its_own_profiler_and_is_named(monkeypatch, capsys, load, module, content, missing):
    monkeypatch.setenv(servers.VARIABLE, "shapes")
    put_module(monkeypatch, module, **content)
    load()
    said = capsys.readouterr().err
    assert f"is not known: it has no {missing}" in said or f"it has no {module}.{missing}" in said
    assert not script._prepared


def test_the_second_profiler_of_sglang_is_left_alone_and_named(monkeypatch, capsys):
    monkeypatch.setenv(servers.VARIABLE, "shapes")
    monkeypatch.setenv("SGLANG_PROFILE_V2", "1")
    sglang.load()
    assert "it has no place for another profiler with SGLANG_PROFILE_V2; it keeps its own profiler" in capsys.readouterr().err


def test_a_wrong_plan_keeps_the_servers_own_profiler(monkeypatch, capsys):
    monkeypatch.setenv(servers.VARIABLE, "speed=11")
    worker = fake_vllm(monkeypatch)
    vllm.load()
    assert worker.TorchProfilerWrapper is TorchProfilerWrapper
    assert "is not understood, so vllm keeps its own profiler" in capsys.readouterr().err


def test_a_fault_of_ours_does_not_reach_the_server(monkeypatch, capsys, tmp_path):
    made = servers.RequestedCapture(servers.parse("shapes"), tmp_path)
    monkeypatch.setattr(made, "_start", lambda: 1 / 0)
    made.start()
    made.step()
    made.stop()
    assert capsys.readouterr().err.count("training continues") == 1
