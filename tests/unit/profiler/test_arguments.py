"""Settings of a profiler: invalid ones give a warning and the default, no exception (docs/formats/profiler-api.md 3, 14, 15)."""

from __future__ import annotations

import json

import pytest

from stepscope import profiler
from stepscope.profiler import (
    AiCMetrics,
    ExportType,
    HostSystem,
    ProfilerActivity,
    ProfilerLevel,
    _ExperimentalConfig,
    arguments,
    constants,
    profile,
)

NONE, PIPE = "ACL_AICORE_NONE", "ACL_AICORE_PIPE_UTILIZATION"


def info(tmp_path):
    (path,) = tmp_path.rglob("profiler_info.json")
    return json.loads(path.read_text())["config"]


@pytest.mark.parametrize(
    ("level", "chosen", "said"),
    [
        ("Level_none", ("CPU", "NPU"), ["l2_cache.csv", "npu_module_mem.csv"]),
        ("Level0", ("CPU", "NPU"), []),
        ("Level_none", ("CPU",), []),
    ],
)
def test_files_that_level_none_leaves_out_are_named(level, chosen, said, noting_tier, monkeypatch, capsys):
    activities = [ProfilerActivity[name] for name in chosen]
    monkeypatch.setattr(arguments, "supported_activities", lambda: set(activities))
    config = _ExperimentalConfig(profiler_level=level, mstx=True, l2_cache=True)
    profile(activities=activities, experimental_config=config, profile_memory=True)
    err = capsys.readouterr().err
    assert [name for name in ("l2_cache.csv", "npu_module_mem.csv") if name in err] == said


def test_defaults_are_silent_and_in_the_documented_order(capsys):
    assert _ExperimentalConfig()() == {
        "_profiler_level": "Level0", "_aic_metrics": NONE, "_l2_cache": False, "_msprof_tx": False, "_mstx": False,
        "_data_simplification": True, "record_op_args": False, "_export_type": ["text"], "_host_sys": [], "_op_attr": False,
        "_gc_detect_threshold": None, "_mstx_domain_include": [], "_mstx_domain_exclude": [], "_sys_io": False,
        "_sys_interconnection": False,
    }  # fmt: skip
    assert list(_ExperimentalConfig()()) == [
        "_profiler_level", "_aic_metrics", "_l2_cache", "_msprof_tx", "_mstx", "_data_simplification", "record_op_args",
        "_export_type", "_host_sys", "_op_attr", "_gc_detect_threshold", "_mstx_domain_include", "_mstx_domain_exclude",
        "_sys_io", "_sys_interconnection",
    ]  # fmt: skip
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ({"profiler_level": "Level9"}, {"_profiler_level": "Level0", "_aic_metrics": NONE}),
        ({"profiler_level": 1, "aic_metrics": NONE}, {"_profiler_level": "Level0", "_aic_metrics": NONE}),
        ({"profiler_level": "Level1", "aic_metrics": 3}, {"_aic_metrics": PIPE}),
        ({"aic_metrics": "fast"}, {"_aic_metrics": NONE}),
        ({"aic_metrics": AiCMetrics.Memory}, {"_aic_metrics": NONE}),
        ({"l2_cache": 1}, {"_l2_cache": False}),
        ({"msprof_tx": "yes"}, {"_msprof_tx": False}),
        ({"mstx": None}, {"_mstx": False}),
        ({"data_simplification": 0}, {"_data_simplification": True}),
        ({"record_op_args": 1}, {"record_op_args": False}),
        ({"op_attr": 1, "export_type": "db"}, {"_op_attr": False}),
        ({"op_attr": True, "profiler_level": "Level_none", "mstx": True}, {"_op_attr": False}),
        ({"gc_detect_threshold": -1}, {"_gc_detect_threshold": None}),
        ({"gc_detect_threshold": "1"}, {"_gc_detect_threshold": None}),
        ({"gc_detect_threshold": True}, {"_gc_detect_threshold": None}),
        ({"export_type": "xml"}, {"_export_type": ["text"]}),
        ({"export_type": []}, {"_export_type": ["text"]}),
        ({"export_type": ["text", 1]}, {"_export_type": ["text"]}),
        ({"host_sys": "cpu"}, {"_host_sys": []}),
        ({"host_sys": ["cpu", "gpu", 3, "mem"]}, {"_host_sys": ["cpu", "mem"]}),
        ({"mstx_domain_include": ["a"]}, {"_mstx_domain_include": []}),
        ({"mstx": True, "mstx_domain_include": "a"}, {"_mstx_domain_include": []}),
        ({"mstx": True, "mstx_domain_exclude": [1]}, {"_mstx_domain_exclude": []}),
        (
            {"mstx": True, "mstx_domain_include": ["a"], "mstx_domain_exclude": ["b"]},
            {"_mstx_domain_include": ["a"], "_mstx_domain_exclude": []},
        ),
        ({"sys_io": 1}, {"_sys_io": False}),
        ({"sys_interconnection": "x"}, {"_sys_interconnection": False}),
        ({"profiler_level": "Level_none"}, {"_mstx": True, "_aic_metrics": NONE}),
        ({"msprof_tx": True}, {"_msprof_tx": True}),
    ],
)
def test_wrong_or_contradictory_fields_warn_once(given, stored, noting_tier, tmp_path, capsys):
    config = _ExperimentalConfig(**given)
    assert capsys.readouterr().err.count("WARNING") == 1
    with profile(experimental_config=config):
        pass
    assert capsys.readouterr().err.count("WARNING") == 0, "validated twice"
    assert {name: info(tmp_path)["experimental_config"][name] for name in stored} == stored


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ({"profiler_level": ProfilerLevel.Level1}, {"_aic_metrics": PIPE}),
        ({"profiler_level": ProfilerLevel.Level2, "aic_metrics": AiCMetrics.L2Cache}, {"_aic_metrics": "ACL_AICORE_L2_CACHE"}),
        ({"export_type": [ExportType.Db, ExportType.Text, ExportType.Db]}, {"_export_type": ["db", "text"]}),
        ({"export_type": "db", "op_attr": True}, {"_export_type": ["db"], "_op_attr": True}),
        ({"op_attr": True}, {"_export_type": ["text"], "_op_attr": True}),  # text writes the databases, too
        ({"data_simplification": None}, {"_data_simplification": None}),
        ({"gc_detect_threshold": 1.5}, {"_gc_detect_threshold": 1.5}),
        ({"host_sys": [HostSystem.CPU, HostSystem.NUMA]}, {"_host_sys": ["cpu", "numa"]}),
        ({"mstx": True, "mstx_domain_exclude": ["a"]}, {"_mstx_domain_exclude": ["a"]}),
    ],
)
def test_right_fields_are_silent(given, stored, capsys):
    config = _ExperimentalConfig(**given)()
    assert {name: config[name] for name in stored} == stored
    assert "WARNING" not in capsys.readouterr().err


def test_threshold_zero_is_mentioned(capsys):
    assert _ExperimentalConfig(gc_detect_threshold=0)()["_gc_detect_threshold"] == 0
    assert "[INFO]" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules"])
def test_switches_take_bools_only(flag, noting_tier, tmp_path, capsys):
    with profile(**{flag: 1}):
        pass
    assert capsys.readouterr().err.count("WARNING") == 1
    assert info(tmp_path)["common_config"][flag] is False


@pytest.mark.parametrize(
    ("given", "warnings"),
    [
        (None, 0),
        ([], 0),
        ([ProfilerActivity.CPU], 0),
        ([ProfilerActivity.CPU, "NPU"], 1),
        (["GPU"], 1),
        (5, 1),
        ([ProfilerActivity.CPU, ProfilerActivity.NPU], 1),
        ([ProfilerActivity.NPU], 1),
    ],
)
def test_activities(given, warnings, noting_tier, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("stepscope.profiler.arguments.supported_activities", lambda: {ProfilerActivity.CPU})
    with profile(activities=given):
        pass
    assert info(tmp_path)["common_config"]["activities"] == ["ProfilerActivity.CPU"]
    assert capsys.readouterr().err.count("WARNING") == warnings


def test_use_cuda(noting_tier, monkeypatch, capsys):
    monkeypatch.setattr("stepscope.profiler.arguments.supported_activities", lambda: {ProfilerActivity.CPU})
    assert profile(use_cuda=True).prof_if.settings.activities == ("CPU",)
    assert profile(use_cuda=False).prof_if.settings.activities == ("CPU",)
    assert capsys.readouterr().err.count("WARNING") == 2
    monkeypatch.setattr("stepscope.profiler.arguments.supported_activities", lambda: {ProfilerActivity.CPU, ProfilerActivity.CUDA})
    assert profile(use_cuda=True, activities=[ProfilerActivity.CPU]).prof_if.settings.activities == ("CPU", "CUDA")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", ["schedule", "on_trace_ready", "experimental_config", "custom_trace_id_callback"])
def test_what_cannot_be_used_is_ignored(name, noting_tier, tmp_path, capsys):
    with profile(**{name: 7}):
        pass
    assert capsys.readouterr().err.count("WARNING") == 1
    assert info(tmp_path)["common_config"]["schedule"] == {}


def test_device_settings_without_device_are_mentioned_when_given(noting_tier, capsys):
    profile(activities=[ProfilerActivity.CPU])
    assert capsys.readouterr().err == ""
    for works_everywhere in ({}, {"mstx": True}, {"profiler_level": ProfilerLevel.Level_none, "mstx": True}, {"host_sys": ["cpu"]}):
        profile(activities=[ProfilerActivity.CPU], experimental_config=_ExperimentalConfig(**works_everywhere))
        assert capsys.readouterr().err == ""
    config = _ExperimentalConfig(profiler_level=ProfilerLevel.Level1, l2_cache=True, mstx=True)
    profile(activities=[ProfilerActivity.CPU], experimental_config=config)
    assert ": profiler_level, l2_cache have no effect without ProfilerActivity.NPU" in capsys.readouterr().err


@pytest.mark.parametrize(("given", "kept"), [(0, None), (-1, None), ("x", None), (True, None), (2.5, 2.5), (None, None)])
def test_limits(given, kept, noting_tier, capsys):
    assert profile(max_seconds=given).prof_if.settings.budget.max_seconds == kept
    assert capsys.readouterr().err.count("WARNING") == (given is not None and kept is None)


def test_settings_are_keyword_only():
    with pytest.raises(TypeError):
        profile([ProfilerActivity.CPU])


def test_words():
    assert str(ProfilerActivity.CPU) == "ProfilerActivity.CPU"
    assert profiler.supported_profiler_level() == {"Level0", "Level1", "Level2", "Level_none"}
    assert len(profiler.supported_ai_core_metrics()) == 9
    assert profiler.supported_export_type() == {"text", "db"}
    assert ProfilerActivity.CPU in profiler.supported_activities()
    assert constants.values(HostSystem) == {"cpu", "mem", "disk", "network", "osrt", "numa"}
    assert AiCMetrics.MemoryL0 == "ACL_AICORE_L0B_AND_WIDTH"


def test_torch_npu_schedule_attributes_are_kept(noting_tier, tmp_path):
    with profile(schedule=profiler.schedule(1, 2, skip_first=3), on_trace_ready=lambda prof: None) as prof:
        for _ in range(6):
            prof.step()
    assert info(tmp_path)["common_config"]["schedule"] == {
        "wait": 1, "active": 2, "warmup": 0, "repeat": 0, "skip_first": 3, "skip_first_wait": 0
    }  # fmt: skip
