"""Keywords of the MindSpore profiler: defaults, rejected values, exclusive settings (docs/formats/mindspore.md 2.1, 2.2, 2.4)."""

from __future__ import annotations

import enum

import pytest

from stepscope.collect import messages
from stepscope.frameworks.mindspore.arguments import Parameters, _ExperimentalConfig, parameters
from stepscope.frameworks.mindspore.constants import AicoreMetrics, ExportType, HostSystem, ProfilerActivity, ProfilerLevel
from stepscope.frameworks.mindspore.scheduling import ProfilerAction, schedule
from stepscope.profiler.handlers import tensorboard_trace_handler


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    monkeypatch.setattr(messages, "_printed", set())
    monkeypatch.delenv("RANK", raising=False)


def test_defaults_are_those_of_mindspore():
    shown = parameters({}).as_info()
    assert {key: value for key, value in shown.items() if value not in (False, [])} == {
        "start_profile": True,
        "output_path": "./data",
        "profiler_level": "Level0",
        "activities": ["CPU", "NPU"],
        "aic_metrics": "None",
        "aicore_metrics": "None",
        "schedule": None,
        "data_simplification": True,
        "sync_enable": True,
        "export_type": ["text"],
    }


@pytest.mark.parametrize("name", [name for name, value in vars(Parameters()).items() if isinstance(value, bool)])
def test_a_flag_must_be_a_bool(name, capsys):
    found = parameters({name: 1})
    assert getattr(found, name) is getattr(Parameters(), name)
    assert f"{name}=1 is of type int, expected bool" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("profiler_level", "Level1"),
        ("aic_metrics", 3),
        ("aicore_metrics", 3),
        ("activities", [ProfilerActivity.CPU, "NPU"]),
        ("activities", ProfilerActivity.CPU),
        ("on_trace_ready", 7),
        ("output_path", 5),
        ("export_type", "html"),
        ("export_type", [ExportType.Db, 3]),
        ("mstx_domain_include", ["", "a"]),
        ("host_sys", [HostSystem.CPU, None]),
        ("experimental_config", {"profiler_level": 1}),
    ],
)
def test_a_wrong_value_is_a_warning_and_the_default(name, wrong, capsys):
    assert parameters({name: wrong}) == Parameters()
    assert "expected" in capsys.readouterr().err


def test_a_wrong_schedule_records_one_step(capsys):
    assert parameters({"schedule": 3}).schedule.to_dict() == {"wait": 0, "active": 1, "warmup": 0, "repeat": 0, "skip_first": 0}
    assert "expected schedule" in capsys.readouterr().err


def test_members_of_mindspores_own_enums_are_understood():
    stock = {
        kind.__name__: enum.Enum(kind.__name__, {item.name: item.value for item in kind}) for kind in (ProfilerLevel, AicoreMetrics)
    }
    found = parameters({"profiler_level": stock["ProfilerLevel"].Level2, "aic_metrics": stock["AicoreMetrics"].Memory})
    assert (found.profiler_level, found.aic_metrics) == (ProfilerLevel.Level2, AicoreMetrics.Memory)


def test_activities_are_kept_once_in_their_order():
    given = [ProfilerActivity.NPU, ProfilerActivity.CPU, ProfilerActivity.NPU]
    assert parameters({"activities": given}).activities == (ProfilerActivity.NPU, ProfilerActivity.CPU)


@pytest.mark.parametrize(
    ("given", "changed"),
    [
        ({"data_process": True, "schedule": schedule(wait=0, active=1, warmup=1)}, {"data_process": False}),
        ({"profiler_level": ProfilerLevel.LevelNone}, {"profiler_level": ProfilerLevel.Level0}),
        ({"aic_metrics": AicoreMetrics.Memory}, {"aic_metrics": AicoreMetrics.AiCoreNone}),
        ({"profiler_level": ProfilerLevel.Level1}, {"aic_metrics": AicoreMetrics.PipeUtilization}),
        ({"activities": [ProfilerActivity.NPU], "record_shapes": True}, {"record_shapes": False}),
        ({"mstx_domain_include": ["a"]}, {"mstx_domain_include": ()}),
        ({"mstx": True, "mstx_domain_include": ["a"], "mstx_domain_exclude": ["b"]}, {"mstx_domain_exclude": ()}),
    ],
)
def test_settings_that_exclude_each_other(given, changed):
    with pytest.warns(UserWarning, match="using"):
        found = parameters(given)
    assert {name: getattr(found, name) for name in changed} == changed


def test_settings_that_agree_give_no_warning():
    found = parameters({"profiler_level": ProfilerLevel.Level1, "aicore_metrics": AicoreMetrics.MemoryUB, "mstx": True})
    assert found.aic_metrics is AicoreMetrics.MemoryUB


@pytest.mark.parametrize("name", ["profile_communication", "op_time", "profile_framework", "host_stack", "timeline_limit"])
def test_keywords_of_the_past_warn_and_do_nothing(name):
    with pytest.warns(UserWarning, match=name):
        assert parameters({name: True}) == Parameters()


@pytest.mark.parametrize("name", ["pcie", "hbm_ddr"])
def test_keywords_that_will_go_warn_and_work(name):
    with pytest.warns(UserWarning, match=name):
        assert getattr(parameters({name: True}), name) is True


def test_unknown_keywords_are_ignored():
    assert parameters({"nonsense": 1}) == Parameters()


def test_contradicting_names_of_one_setting():
    with pytest.raises(ValueError, match="mean the same"):
        parameters({"aic_metrics": AicoreMetrics.Memory, "aicore_metrics": AicoreMetrics.L2Cache})
    with pytest.raises(ValueError, match="mean the same"):
        schedule(wait=1, active=1, warmup=1, warm_up=2)


def test_the_later_config_wins():
    config = _ExperimentalConfig(profiler_level=ProfilerLevel.Level2, aic_metrics=AicoreMetrics.Memory, export_type="db")
    found = parameters({"profiler_level": ProfilerLevel.Level1, "experimental_config": config})
    assert (found.profiler_level, found.export_type) == (ProfilerLevel.Level2, (ExportType.Db,))


@pytest.mark.parametrize("path", ["", "a" * 5000, "b" * 256, "data;rm", "link", "file"])
def test_paths_that_are_not_used(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "file").touch()
    assert parameters({"output_path": path}).output_path == "./data"
    assert "is ignored" in capsys.readouterr().err


@pytest.mark.parametrize("path", ["./results", "~/结果 1", "/tmp/a-b_c.d"])
def test_paths_that_are_used(path):
    assert parameters({"output_path": path}).output_path == path


def test_a_handlers_folder_wins_with_a_word(capsys):
    parameters({"output_path": "./mine", "on_trace_ready": tensorboard_trace_handler("./its")})
    assert "./its" in capsys.readouterr().err


def test_the_same_folder_given_twice_is_no_conflict(tmp_path, capsys):
    parameters({"output_path": str(tmp_path), "on_trace_ready": tensorboard_trace_handler(f"{tmp_path}/.")})
    assert "is ignored" not in "".join(capsys.readouterr())


def test_actions_of_a_schedule():
    """wait=1 warmup=1 active=2 repeat=2 skip_first=1 over 12 steps, as MindSpore 2.10 gives them."""
    plan = schedule(wait=1, warmup=1, active=2, repeat=2, skip_first=1)
    names = [plan(step).name for step in range(12)]
    cycle = ["NONE", "WARM_UP", "RECORD", "RECORD_AND_SAVE"]
    assert names == ["NONE", *cycle, *cycle, "NONE", "NONE", "NONE"]
    assert [action.value for action in ProfilerAction] == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="-1"):
        plan(-1)


@pytest.mark.parametrize("value", [-1, 1.0, True, "1", None])
def test_numbers_of_a_schedule_are_reset(value, capsys):
    plan = schedule(wait=value, active=value, warm_up=value, repeat=value, skip_first=value)
    assert plan.to_dict() == {"wait": 0, "active": 1, "warmup": 0, "repeat": 0, "skip_first": 0}
    assert capsys.readouterr().err.count("is not a whole number") == (5 if value is not None else 4)


def test_a_schedule_without_warmup_is_worth_a_word(capsys):
    schedule(wait=0, active=1)
    assert "without a warmup step" in capsys.readouterr().err
    schedule(wait=0, active=1, warmup=1)
    assert capsys.readouterr().err == ""
