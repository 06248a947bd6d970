"""Unchanged scripts: MindSpore's names lead to our profiler, and a missing device becomes the CPU. MindSpore is a stand-in."""

from __future__ import annotations

import sys
import types

import pytest

from stepscope import mindspore as runner
from stepscope.collect import messages
from stepscope.frameworks import mindspore as ours
from stepscope.frameworks.mindspore import redirect, sources
from stepscope.frameworks.mindspore.arguments import Parameters
from stepscope.frameworks.mindspore.constants import AicoreMetrics, HostSystem, ProfilerActivity


@pytest.fixture
def stock(monkeypatch):
    """Modules of a MindSpore that supports only what is in `supported`; its calls are in `seen`."""
    seen, supported = [], {"CPU"}
    made = {
        name: types.ModuleType(name)
        for name in (
            "mindspore", "mindspore.profiler", "mindspore.profiler.profiler", "mindspore.profiler.schedule", "mindspore.context",
            "mindspore.device_manager", "mindspore._c_expression", "mindspore.train",
        )
    }  # fmt: skip
    root, profiler = made["mindspore"], made["mindspore.profiler"]
    for name, module in made.items():
        monkeypatch.setitem(sys.modules, name, module)
        if name.count(".") == 1:
            setattr(root, name.partition(".")[2], module)
    for module in (root, profiler, made["mindspore.profiler.profiler"]):
        module.Profiler = "their Profiler"
    profiler.schedule, made["mindspore.profiler.schedule"].Schedule = "their schedule", "their schedule"
    made["mindspore.profiler.profiler"].analyse = "their analyse"
    made["mindspore.train"].Callback = object

    def set_context(**options):
        seen.append(options)

    def set_device(device_target, device_id=None):
        seen.append((device_target, device_id))

    root.set_context = made["mindspore.context"].set_context = set_context
    root.set_device = made["mindspore.device_manager"].set_device = set_device
    instance = types.SimpleNamespace(is_pkg_support_device=lambda name: name in supported)
    made["mindspore._c_expression"].MSContext = types.SimpleNamespace(get_instance=lambda: instance)
    monkeypatch.setattr(redirect, "_stock", {})
    monkeypatch.setattr(messages, "_printed", set())
    monkeypatch.delitem(sys.modules, "stepscope.frameworks.mindspore.dynamic", raising=False)
    monkeypatch.delenv("RANK", raising=False)
    yield types.SimpleNamespace(root=root, made=made, seen=seen, supported=supported)
    sys.modules.pop("stepscope.frameworks.mindspore.dynamic", None)


def test_every_place_of_a_name_leads_to_ours(stock):
    redirect.install()
    assert stock.root.Profiler is stock.root.profiler.Profiler is ours.Profiler
    assert stock.made["mindspore.profiler.profiler"].Profiler is ours.Profiler
    assert stock.root.profiler.schedule is stock.made["mindspore.profiler.schedule"].Schedule is ours.schedule
    assert stock.root.profiler.tensor_board_trace_handler is ours.tensor_board_trace_handler  # a name of old documents
    assert not hasattr(stock.root.profiler, "DynamicProfilerMonitor")  # this version has none
    assert callable(stock.made["mindspore.profiler.profiler"].analyse)


def test_mindspores_own_profiler_is_still_found(stock):
    assert redirect.stock("Profiler") == "their Profiler"
    redirect.install()
    redirect.install()  # a second time finds nothing of theirs
    assert redirect.stock("Profiler") == "their Profiler"


def test_a_missing_device_becomes_the_cpu_with_one_line(stock, capsys):
    redirect.install()
    stock.root.set_context(mode=0, device_target="Ascend")
    stock.made["mindspore.context"].set_context(device_target="Davinci")
    stock.root.set_device("Ascend", 3)
    stock.root.set_device("CPU", 0)
    assert stock.seen == [{"mode": 0, "device_target": "CPU"}, {"device_target": "CPU"}, ("CPU", None), ("CPU", 0)]
    said = "".join(capsys.readouterr())
    assert said.count("no Ascend device can be used here: the script asks for Ascend and runs on the CPU") == 1


def test_a_device_that_is_there_is_used(stock, capsys):
    stock.supported.add("Ascend")
    redirect.install()
    stock.root.set_context(device_target="Ascend")
    stock.root.set_device("Ascend", 3)
    assert stock.seen == [{"device_target": "Ascend"}, ("Ascend", 3)]
    assert "".join(capsys.readouterr()) == ""


def test_settings_that_only_a_device_could_follow():
    given = Parameters(
        aic_metrics=AicoreMetrics.Memory, l2_cache=True, parallel_strategy=True, host_sys=(HostSystem.CPU,),
        activities=(ProfilerActivity.CPU, ProfilerActivity.GPU), with_stack=True, sync_enable=False,
    )  # fmt: skip
    named = ["aic_metrics", "l2_cache", "parallel_strategy", "host_sys", "sync_enable", "ProfilerActivity.GPU"]
    assert sources.without_effect(given, "CPU") == named
    assert sources.without_effect(given, "GPU") == named[:4]
    assert sources.without_effect(given, "Ascend") == sources.without_effect(Parameters(), "CPU") == []


@pytest.mark.parametrize(
    ("present", "said"),
    [(False, "error: mindspore is not installed in this Python\n"), (True, "error: no such file\n  where: absent.py\n")],
)
def test_what_is_missing_is_one_error(monkeypatch, capsys, present, said):
    monkeypatch.setattr(sys, "argv", ["mindspore", "absent.py"])
    monkeypatch.setattr(runner, "find_spec", lambda name: sys if present else None)
    assert runner._run() == 2
    assert capsys.readouterr().err.startswith(said)
