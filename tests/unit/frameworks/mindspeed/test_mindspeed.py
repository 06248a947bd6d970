"""Configurations of MindSpeed trainers (docs/formats/mindspeed-profiler.md 1-3, 7, 8)."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from stepscope.collect import messages
from stepscope.errors import CaptureError
from stepscope.frameworks.mindspeed import Profiler, add_arguments, from_fsdp2_config, from_megatron_args, from_mm_config
from stepscope.frameworks.mindspeed.request import fsdp2_request, megatron_request, mm_request
from stepscope.profiler import ProfilerAction


def mm(**static):
    return {"profile": {"enable": True, "static_param": static}, "memory_profile": {"enable": False}, "sorafeature": {}}


def llm(*arguments, **others):
    args = add_arguments(argparse.ArgumentParser()).parse_args(["--profile", *arguments])
    return argparse.Namespace(**vars(args), **others)


def fsdp2(start, end):
    return {"training": {"lr": 1, "profile": True, "profile_step_start": start, "profile_step_end": end}}


@pytest.mark.parametrize(
    ("request_", "recorded", "warmed_up"),
    [
        pytest.param(lambda: mm_request(mm(start_step=10, end_step=11)), [10], [], id="mm"),
        pytest.param(lambda: mm_request(mm()), [10], [], id="mm-default"),
        pytest.param(lambda: mm_request(mm(start_step=0, end_step=2)), [0, 1], [], id="mm-from-the-first"),
        pytest.param(lambda: mm_request(mm(start_step=3, end_step=5, warmup=2)), [3, 4], [1, 2], id="mm-warmup-keeps-the-window"),
        pytest.param(lambda: megatron_request(llm("--profile-step-start", "5", "--profile-step-end", "6")), [4], [3], id="llm"),
        pytest.param(lambda: megatron_request(llm()), [9, 10], [8], id="llm-default"),
        pytest.param(
            lambda: megatron_request(llm("--profile-step-start", "38", "--profile-step-end", "-1")),
            [37, 38, 39],
            [36],
            id="llm-to-the-end",
        ),
        pytest.param(lambda: megatron_request(llm("--profile-step-start", "8"), 7), [0, 1, 2, 3], [], id="llm-first-after-loading"),
        pytest.param(
            lambda: megatron_request(llm("--profile-step-start", "9", iteration=7)), [1, 2, 3], [0], id="llm-iteration-in-args"
        ),
        pytest.param(lambda: fsdp2_request(fsdp2(0, 2)), [0, 1], [], id="fsdp2-from-the-first"),
        pytest.param(lambda: fsdp2_request(fsdp2(5, 6)), [5], [4], id="fsdp2"),
        pytest.param(lambda: fsdp2_request(fsdp2(37, -1)), [37, 38, 39], [36], id="fsdp2-to-the-end"),
    ],
)
def test_recorded_steps(request_, recorded, warmed_up):
    plan = request_().window.schedule()
    actions = [plan(step) for step in range(40)]
    assert [step for step, action in enumerate(actions) if action.name.startswith("RECORD")] == recorded
    assert [step for step, action in enumerate(actions) if action is ProfilerAction.WARMUP] == warmed_up


@pytest.mark.parametrize(
    ("ranks", "of_three"),
    [([-1], [0, 1, 2]), (-1, [0, 1, 2]), ([-1, 0], [0, 1, 2]), ([0], [0]), ([0, 2], [0, 2]), (1, [1]), ((2,), [2])],
)
def test_ranks(ranks, of_three, monkeypatch):
    prof = Profiler({"enable": True, "ranks": ranks})
    seen = []
    for rank in range(3):
        monkeypatch.setenv("RANK", str(rank))
        seen += [rank] if prof.enabled else []
    assert seen == of_three
    assert not Profiler({"enable": False, "ranks": ranks}).enabled


def test_all_that_is_wrong_is_told_at_once_with_what_is_allowed(tmp_path, capsys):
    config = tmp_path / "tools.json"
    config.write_text(
        json.dumps(
            {
                "profile": {
                    "enable": "yes",
                    "profile_type": "semi",
                    "ranks": "0",
                    "rank": [0],
                    "static_param": {
                        "level": "level9", "with_stack": 1, "with_memory": "no", "record_shapes": None, "with_cpu": 0,
                        "save_path": "", "start_step": -1, "end_step": True, "data_simplification": "x",
                        "aic_metrics_type": "Pipe", "analyse_flag": [], "export_type": ["csv"], "warmup": 1.5, "with_stak": True,
                    },
                    "dynamic_param": {"config_path": 3, "path": "."},
                }
            }
        )
    )  # fmt: skip
    with pytest.raises(CaptureError) as caught:
        Profiler(config)
    error = caught.value
    assert (error.what, error.where) == ("17 settings of the profiler are invalid", str(config))
    told = dict(line.strip().split(": ", 1) for line in error.cause.strip().split("\n"))
    assert told == {
        "enable = 'yes'": "allowed: true or false",
        "profile_type = 'semi'": 'allowed: "static", "dynamic"',
        "ranks = '0'": "allowed: a list of ranks from 0, or -1 for all",
        "static_param.level = 'level9'": 'allowed: "level_none", "level0", "level1", "level2"',
        **{
            f"static_param.{key}": "allowed: true or false"
            for key in ("with_stack = 1", "with_memory = 'no'", "record_shapes = None", "with_cpu = 0",
                        "data_simplification = 'x'", "analyse_flag = []")
        },
        "static_param.save_path = ''": "allowed: a non-empty string",
        "static_param.start_step = -1": "allowed: a whole number from 0",
        "static_param.end_step = True": "allowed: a whole number from 1",
        "static_param.aic_metrics_type = 'Pipe'": told["static_param.aic_metrics_type = 'Pipe'"],
        "static_param.export_type = ['csv']": 'allowed: "text", "db" or a list of them',
        "static_param.warmup = 1.5": "allowed: a whole number from 0",
        "dynamic_param.config_path = 3": "allowed: a non-empty string",
    }  # fmt: skip
    assert told["static_param.aic_metrics_type = 'Pipe'"].startswith('allowed: "PipeUtilization", "ArithmeticUtilization"')
    unknown = "rank (did you mean ranks?), static_param.with_stak (did you mean with_stack?)"
    assert (
        f"{config}: {unknown}, dynamic_param.path (known keys: config_path) are unknown and have no effect"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("make", "named"),
    [
        pytest.param(lambda: from_mm_config(mm(start_step=5, end_step=5)), "static_param.end_step = 5", id="mm-no-step"),
        pytest.param(lambda: from_mm_config(mm(start_step=1, warmup=2)), "static_param.warmup = 2", id="mm-no-room-to-warm-up"),
        pytest.param(
            lambda: from_mm_config({"enable": True, "profile_type": "dynamic"}),
            "dynamic_param.config_path: missing",
            id="mm-dynamic",
        ),
        pytest.param(lambda: from_mm_config({"enable": True, "static_param": []}), "static_param = []", id="mm-no-block"),
        pytest.param(lambda: from_mm_config(3), "where: 3", id="mm-no-config"),
        pytest.param(lambda: from_mm_config("nowhere.json"), "nowhere.json", id="mm-no-file"),
        pytest.param(lambda: from_megatron_args(llm("--profile-step-start", "0")), "profile_step_start = 0", id="llm-from-0"),
        pytest.param(lambda: from_megatron_args(llm("--profile-step-end", "9")), "profile_step_end = 9", id="llm-no-step"),
        pytest.param(lambda: from_fsdp2_config(fsdp2(-1, 3)), "profile_step_start = -1", id="fsdp2-negative"),
        pytest.param(lambda: from_fsdp2_config(fsdp2(3, 3)), "profile_step_end = 3", id="fsdp2-no-step"),
    ],
)
def test_what_cannot_be(make, named):
    with pytest.raises(CaptureError) as caught:
        make()
    assert named in str(caught.value)


WRONG = ("--profile-step-start", "0", "--profile-step-end", "0")


@pytest.mark.parametrize(
    ("make", "rank"),
    [
        pytest.param(
            lambda: from_megatron_args(argparse.Namespace(profile=False, profile_step_start=0, iteration=None)), 0, id="off"
        ),
        pytest.param(lambda: from_megatron_args(argparse.Namespace(), -3), 0, id="off-without-arguments"),
        pytest.param(lambda: from_megatron_args(llm(*WRONG, iteration="7")), 1, id="a-rank-that-is-not-profiled"),
        pytest.param(lambda: from_mm_config({"enable": False, "static_param": {"level": "level9"}}), 0, id="mm-off"),
        pytest.param(lambda: from_fsdp2_config({"profile": False, "profile_step_start": -1}), 0, id="fsdp2-off"),
    ],
)
def test_a_rank_that_does_not_record_is_never_stopped(make, rank, monkeypatch, noting_tier):
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", "2")
    loop(make(), 3)
    assert noting_tier == []


def test_a_resumed_job_whose_window_has_passed_trains_on_and_says_so(noting_tier, capsys):
    loop(from_megatron_args(llm(), 5000), 3)
    assert noting_tier == []
    said = capsys.readouterr().err
    assert "profile_step_start is 10, but iteration 5000 is loaded from the checkpoint; set it to 5001 or more" in said


YAML = """\
data: {dataset: x}
tools:
  profile:
    enable: true
    static_param: {start_step: 1, end_step: 3, levl: level1}
  memory_profile: {enable: false}
training: {lr: 1}
"""


@pytest.mark.parametrize("read", [from_mm_config, from_fsdp2_config, Profiler])
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "byte-order-mark"])
def test_a_trainers_yaml_with_the_profiler_under_tools(read, mark, tmp_path, capsys):
    pytest.importorskip("yaml")
    (tmp_path / "train.yaml").write_text(mark + YAML, encoding="utf-8")
    asked = read(tmp_path / "train.yaml")._request
    assert (asked.enable, asked.ranks, asked.window.first, asked.window.count) == (True, {0}, 1, 2)
    assert (asked.save_path, asked.with_cpu) == ("./profiling", False)
    assert "static_param.levl (did you mean level?) is unknown and has no effect" in capsys.readouterr().err


def test_yaml_without_its_package_names_an_extra_that_brings_it(tmp_path, monkeypatch):
    tomllib = pytest.importorskip("tomllib" if sys.version_info >= (3, 11) else "tomli")
    monkeypatch.setitem(sys.modules, "yaml", None)
    (tmp_path / "train.yaml").write_text(YAML)
    with pytest.raises(CaptureError, match=r"pip install 'stepscope\[mindspeed\]'"):
        from_mm_config(tmp_path / "train.yaml")
    project = tomllib.loads((Path(__file__).parents[4] / "pyproject.toml").read_text())["project"]
    assert any(need.startswith("pyyaml") for need in project["optional-dependencies"]["mindspeed"])


@pytest.mark.parametrize(
    "made", [lambda: from_mm_config({"data": {}, "training": {"lr": 1}}), lambda: from_fsdp2_config({"training": {"lr": 1}})]
)
def test_a_file_without_settings_is_said(made, capsys):
    assert not made().enabled
    assert "the given configuration has no settings of the profiler (expected: " in capsys.readouterr().err


def test_an_unknown_key_names_the_nearest_and_training_goes_on(capsys):
    assert from_fsdp2_config({"profile": True, "profile_rank": [0]}).enabled
    assert "profile_rank (did you mean profile_ranks?) is unknown and has no effect" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("listed", "size", "said"),
    [
        pytest.param(
            [9, 5], "4", "nothing was recorded: `ranks` of the configuration names 5, 9, but the job has ranks 0 to 3", id="none"
        ),
        pytest.param([0, 7], "4", " `ranks` of the configuration names 7, but the job has ranks 0 to 3", id="some"),
        pytest.param([1], "1", "names 1, but the job has only rank 0", id="one-process"),
        pytest.param([3], "4", None, id="another-rank"),
    ],
)
def test_ranks_that_do_not_exist_are_said_at_stop(listed, size, said, noting_tier, monkeypatch, capsys):
    monkeypatch.setattr(messages, "_printed", set())
    monkeypatch.setenv("WORLD_SIZE", size)
    loop(Profiler({"enable": True, "ranks": listed, "static_param": {"start_step": 0, "end_step": 1, "analyse_flag": False}}), 2)
    shown = capsys.readouterr().err
    assert said in shown if said else "configuration names" not in shown


def test_a_window_that_is_never_reached_is_said_at_stop(noting_tier, capsys):
    loop(Profiler(mm(start_step=10, end_step=11)), 4)
    said = capsys.readouterr().err
    assert (
        "nothing was recorded: the schedule records from step 10 (skip_first 10), counted from 0, but step() was called 4 times"
        in said
    )


def test_the_arguments_join_those_that_megatron_has():
    parser = argparse.ArgumentParser()
    parser.add_argument_group("logging").add_argument("--profile-ranks", nargs="+", type=int, default=[3])
    args = add_arguments(parser).parse_args(["--profile", "--profile-with-stack", "--profile-ranks", "-1"])
    asked = megatron_request(args)
    assert (asked.enable, asked.ranks, asked.options["with_stack"], asked.save_path) == (True, None, True, "./profile_dir")
    assert asked.experimental["profiler_level"] == "Level0"
    with pytest.raises(SystemExit):
        parser.parse_args(["--profile-level", "level7"])


def loop(prof, steps):
    prof.start()
    for _ in range(steps):
        prof.step()
    prof.stop()


@pytest.mark.slow  # half a second and more
@pytest.mark.parametrize("form", ["block", "file", "object", "class"])
def test_a_static_window_becomes_one_capture(form, noting_tier, tmp_path, capsys):
    static = {
        "level": "level1", "with_stack": True, "with_memory": True, "record_shapes": True, "with_cpu": True, "save_path": "saved",
        "start_step": 2, "end_step": 4, "data_simplification": False,
    }  # fmt: skip
    block = {"enable": True, "profile_type": "static", "ranks": [-1], "static_param": static}
    config = block
    if form != "block":
        static["analyse_flag"] = False
    if form == "file":
        config = tmp_path / "tools.json"
        config.write_text(json.dumps({"profile": block}))
    elif form == "object":
        config = SimpleNamespace(profile=SimpleNamespace(**{**block, "static_param": SimpleNamespace(**static)}))
    elif form == "class":
        config = type("Settings", (), {**block, "static_param": type("Static", (), static)()})()
    loop(Profiler(config), 6)
    assert "recording steps 2 to 3, counted from 0, into saved" in capsys.readouterr().err
    (capture,) = Path("saved").iterdir()
    assert [call for call in noting_tier if "ProfilerStep" in call] == ["push ProfilerStep#2", "push ProfilerStep#3"]
    told = json.loads(next(capture.glob("profiler_info*.json")).read_text())
    assert (capture / "ASCEND_PROFILER_OUTPUT").exists() == (form == "block")
    common, experimental = told["config"]["common_config"], told["config"]["experimental_config"]
    assert {name: common[name] for name in ("record_shapes", "profile_memory", "with_stack")} == dict.fromkeys(
        ("record_shapes", "profile_memory", "with_stack"), True
    )
    assert experimental["_profiler_level"] == "Level1"
    assert experimental["_aic_metrics"] == "ACL_AICORE_PIPE_UTILIZATION"
    assert experimental["_data_simplification"] is False


def test_parallel_sizes_become_metadata(noting_tier, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    args = llm("--profile-ranks", "1", "3", "--profile-step-start", "1", "--profile-step-end", "2", tensor_model_parallel_size=2)
    loop(Profiler(dataclasses.replace(megatron_request(args), analyse=False)), 3)
    (capture,) = Path("profile_dir").iterdir()
    kept = json.loads((capture / "profiler_metadata.json").read_text())
    assert kept["distributed_args"] == {"rank": 1, "world_size": 4, "tensor_model_parallel_size": 2}


@pytest.mark.parametrize(
    "config",
    [
        {"static_param": {"start_step": 0, "end_step": 1}},
        {"enable": True, "ranks": [1], "static_param": {"start_step": 0, "end_step": 1}},
    ],
    ids=["disabled", "another-rank"],
)
def test_off_means_nothing_at_all(config, noting_tier, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    prof = Profiler(config)
    loop(prof, 3)
    assert (noting_tier, list(tmp_path.iterdir()), capsys.readouterr().err, prof.prof) == ([], [], "", None)


def test_snapshots_of_memory_are_not_ours(monkeypatch, capsys):
    monkeypatch.setattr(messages, "_printed", set())
    Profiler({**mm(), "memory_profile": {"enable": True}})
    assert "memory_profile is not supported" in capsys.readouterr().err


def test_misuse_is_one_line_each(noting_tier, capsys):
    prof = Profiler(mm(start_step=0, end_step=1, analyse_flag=False))
    prof.step()
    prof.step()
    prof.stop()
    prof.start()
    prof.start()
    prof.step()
    prof.stop()
    prof.stop()
    prof.step()
    told = [line.split("profiler.py: ")[1] for line in capsys.readouterr().err.splitlines() if "[WARNING]" in line]
    assert told == [
        "the profiler was not started; step() has no effect",
        "the profiler was not started; stop() has no effect",
        "the profiler is already running; start() has no effect",
        "the profiler has stopped; stop() has no effect",
        "the profiler has stopped; step() has no effect",
    ]
    assert noting_tier.count("start") == 1


def test_dynamic_goes_through_dynamic_profile(monkeypatch, tmp_path):
    told = []
    double = ModuleType("stepscope.dynamic_profile")
    double.init = lambda path: told.append(path)
    double.step = lambda: told.append("step")
    monkeypatch.setitem(sys.modules, "stepscope.dynamic_profile", double)
    monkeypatch.setattr(sys.modules["stepscope"], "dynamic_profile", double, raising=False)
    for path in (tmp_path, tmp_path / "profiler_config.json"):
        loop(Profiler({"enable": True, "profile_type": "dynamic", "dynamic_param": {"config_path": str(path)}}), 2)
    assert told == [str(tmp_path), "step", "step"] * 2


def test_our_fault_does_not_stop_training(noting_tier, monkeypatch, capsys):
    def broken(path):
        raise RuntimeError("no monitor")

    double = ModuleType("stepscope.dynamic_profile")
    double.init = broken
    monkeypatch.setitem(sys.modules, "stepscope.dynamic_profile", double)
    monkeypatch.setattr(sys.modules["stepscope"], "dynamic_profile", double, raising=False)
    loop(Profiler({"enable": True, "profile_type": "dynamic", "dynamic_param": {"config_path": "x"}}), 2)
    monkeypatch.setenv("RANK", "zero")
    monkeypatch.setattr(messages, "warning", lambda text: print(f"[WARNING] {text}", file=sys.stderr))
    loop(Profiler({"enable": True, "ranks": [0]}), 2)
    assert capsys.readouterr().err.count("training continues") == 2
