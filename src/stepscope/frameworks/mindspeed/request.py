# SPDX-License-Identifier: Apache-2.0
"""What a MindSpeed configuration asks for, for each of its three trainers (docs/formats/mindspeed-profiler.md 1, 3, 7)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stepscope.collect import messages, metadata
from stepscope.frameworks.mindspeed import sources
from stepscope.frameworks.mindspeed.checking import ConfigCheck, flag, number, ranks, text, whole, word, words
from stepscope.profiler import AiCMetrics, schedule
from stepscope.profiler.scheduling import TO_THE_END

LEVELS = {"level_none": "Level_none", "level0": "Level0", "level1": "Level1", "level2": "Level2"}
METRICS = {name: value for name, value in vars(AiCMetrics).items() if not name.startswith("_")}
CONFIG_FILE = "profiler_config.json"

_MAIN = (flag("enable", False), word("profile_type", "static", "static", "dynamic"), ranks("ranks", (-1,)))
_STATIC = (
    word("level", "level1", *LEVELS),
    flag("with_stack", False),
    flag("with_memory", False),
    flag("record_shapes", False),
    flag("with_cpu", True),
    text("save_path", "./npu_profiling"),
    number("start_step", 10, 0),
    number("end_step", 11, 1),
    flag("data_simplification", False),
    word("aic_metrics_type", "PipeUtilization", *METRICS),
    flag("analyse_flag", True),
    words("export_type", "text", "text", "db"),
    number("warmup", 0, 0),
)
_DYNAMIC = (text("config_path", None),)
# The trainer on FSDP2 has the same blocks under `tools` in its YAML, with other defaults.
_TOOLS_MAIN = (*_MAIN[:2], ranks("ranks", (0,)))
_TOOLS_DEFAULTS = {"with_cpu": flag("with_cpu", False), "save_path": text("save_path", "./profiling")}
_TOOLS_STATIC = tuple(_TOOLS_DEFAULTS.get(key.name, key) for key in _STATIC)
# The two trainers with `profile*` names differ in their first step and defaults.
_SHARED = (
    flag("profile", False),
    word("profile_level", "level0", *LEVELS),
    words("profile_export_type", "text", "text", "db"),
    flag("profile_data_simplification", False),
    flag("profile_with_stack", False),
    flag("profile_with_memory", False),
    flag("profile_record_shapes", False),
    flag("profile_with_cpu", False),
)
MEGATRON = (
    *_SHARED,
    number("profile_step_start", 10, 1),
    number("profile_step_end", 12, -1),
    ranks("profile_ranks", (0,)),
    text("profile_save_path", "./profile_dir"),
)
_FSDP2 = (
    *_SHARED,
    number("profile_step_start", 0, 0),
    number("profile_step_end", -1, -1),
    ranks("profile_ranks", (-1,)),
    text("profile_save_path", "./profile"),
)
_PARALLEL = (
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "data_parallel_size", "context_parallel_size",
    "expert_model_parallel_size", "sequence_parallel", "rank", "world_size",
)  # fmt: skip


@dataclass(frozen=True)
class Window:
    """Steps to record, counted from 0 at `start`: `count` of them from `first` on, to the end without a count."""

    first: int
    count: int | None
    warmup: int = 0

    def schedule(self) -> schedule:
        return schedule(wait=0, warmup=self.warmup, active=self.count or TO_THE_END, repeat=1, skip_first=self.first - self.warmup)

    def __str__(self) -> str:
        if self.count is None:
            return f"step {self.first} to the end, counted from 0"
        if self.count == 1:
            return f"step {self.first}, counted from 0"
        return f"steps {self.first} to {self.first + self.count - 1}, counted from 0"


@dataclass(frozen=True)
class Request:
    """One profiler as a configuration describes it; `ranks` is None for all."""

    enable: bool
    ranks: frozenset[int] | None
    window: Window
    options: Mapping[str, Any]  # record_shapes, profile_memory, with_stack
    experimental: Mapping[str, Any]
    with_cpu: bool
    save_path: str
    analyse: bool = True
    config_folder: str | None = None  # of a dynamic profiler
    metadata: Mapping[str, str] = field(default_factory=dict)  # JSON texts

    def wants(self, rank: int) -> bool:
        return self.enable and (self.ranks is None or rank in self.ranks)

    def missing_ranks(self, world_size: int) -> list[int]:
        """Selected ranks that a job of this size does not have."""
        return sorted(rank for rank in self.ranks or () if rank >= world_size)


def mm_request(config: Any) -> Request:
    """From tools.json of MindSpeed-MM, the YAML of its trainer on FSDP2, or from the block `profile` of either."""
    whole, source = sources.load(config)
    tools = sources.block(whole, "tools") if "tools" in whole and "profile" not in whole else None
    given = sources.block(whole if tools is None else tools, "profile")
    known_main, known_static = (_MAIN, _STATIC) if tools is None else (_TOOLS_MAIN, _TOOLS_STATIC)
    snapshots = (whole if tools is None else tools).get("memory_profile")
    if _is_enabled(snapshots):
        messages.once(messages.warning, "memory_profile is not supported; use static_param.with_memory to record allocations")
    if not sources.has_any(given, (*(key.name for key in known_main), "static_param", "dynamic_param")):
        _warn_without_settings(source, "a block `profile` or `tools.profile`")
        given = {}
    check = ConfigCheck(source)
    main = check.block(given, known_main, others=("static_param", "dynamic_param"))
    parts = {name: _part(given.get(name, {})) for name in ("static_param", "dynamic_param")}
    for name, part in parts.items():
        if not isinstance(part, Mapping):
            check.wrong(f"{name} = {part!r}", "allowed: a block of keys")
            parts[name] = {}
    static = check.block(parts["static_param"], known_static, prefix="static_param.")
    dynamic = check.block(parts["dynamic_param"], _DYNAMIC, prefix="dynamic_param.")
    _check_window(check, static)
    folder = None
    if main["profile_type"] == "dynamic":
        folder = dynamic["config_path"]
        if folder is None and "config_path" not in parts["dynamic_param"]:
            check.wrong("dynamic_param.config_path", f"missing; allowed: a folder for {CONFIG_FILE}")
    check.finish(used=given.get("enable", False) is not False)
    return Request(
        enable=main["enable"],
        ranks=_ranks(main["ranks"]),
        window=Window(static["start_step"], static["end_step"] - static["start_step"], static["warmup"]),
        options=_options(static),
        experimental=_experimental(
            static, METRICS[static["aic_metrics_type"]] if "aic_metrics_type" in parts["static_param"] else None
        ),
        with_cpu=static["with_cpu"],
        save_path=static["save_path"],
        analyse=static["analyse_flag"],
        config_folder=_folder(folder),
    )


def megatron_request(args: Any, iteration: int | None = None) -> Request:
    """From the arguments that `add_arguments` adds; `iteration` is the one loaded from a checkpoint.

    A rank that does not record gets no error for any value: it would end a training that does not need them.
    """
    given = sources.attributes(args)
    loaded = given.get("iteration", 0) if iteration is None else iteration
    names = {key.name for key in MEGATRON}
    check = ConfigCheck("the command line")
    values = check.block({name: value for name, value in given.items() if name in names}, MEGATRON)
    start, end = values["profile_step_start"], values["profile_step_end"]
    if not whole(loaded) or loaded < 0:
        check.wrong(f"iteration = {loaded!r}", "allowed: a whole number from 0")
        loaded = 0
    if end != -1 and end <= start:
        check.wrong(f"profile_step_end = {end}", f"allowed: -1 for the end, or more than profile_step_start, which is {start}")
    known = {name: given[name] for name in _PARALLEL if isinstance(given.get(name), (bool, int))}
    first = max(0, start - loaded - 1)
    request = _profile_request(values, Window(first, None if end == -1 else end - start, min(1, first)), known)
    if not request.wants(metadata.global_rank()):
        return request
    check.finish()
    if start < loaded + 1:  # a resumed job, whose arguments are still those of its first start
        messages.warning(
            f"nothing is recorded: profile_step_start is {start}, but iteration {loaded} is loaded from the checkpoint; "
            f"set it to {loaded + 1} or more"
        )
        return replace(request, enable=False)
    return request


def fsdp2_request(config: Any) -> Request:
    """From the YAML of the FSDP2 trainer, or from its block `training`; other keys of that block belong to the trainer."""
    everything, source = sources.load(config)
    given = sources.block(everything, "training")
    ours = {name: value for name, value in given.items() if name.startswith("profile")}
    if not ours:
        if "tools" in everything:
            return mm_request(config)
        _warn_without_settings(source, "keys `profile…` in its block `training`")
    check = ConfigCheck(source)
    values = check.block(ours, _FSDP2)
    start, end = values["profile_step_start"], values["profile_step_end"]
    if end != -1 and end <= start:
        check.wrong(f"profile_step_end = {end}", f"allowed: -1 for the end, or more than profile_step_start, which is {start}")
    check.finish(used=ours.get("profile", False) is not False)
    return _profile_request(values, Window(start, None if end == -1 else end - start, min(1, start)), {})


def _profile_request(values: Mapping[str, Any], window: Window, parallel: Mapping[str, Any]) -> Request:
    short = {name.removeprefix("profile_"): value for name, value in values.items()}
    return Request(
        enable=values["profile"],
        ranks=_ranks(short["ranks"]),
        window=window,
        options=_options(short),
        experimental=_experimental(short, None),
        with_cpu=short["with_cpu"],
        save_path=short["save_path"],
        metadata={"distributed_args": json.dumps(parallel)},
    )


def _warn_without_settings(source: str, expected: str) -> None:
    messages.warning(f"{source} has no settings of the profiler (expected: {expected}); nothing is recorded")


def _is_enabled(block: Any) -> bool:
    return isinstance(block, Mapping) and block.get("enable") is True


def _part(value: Any) -> Any:
    """A block inside a block, whose attributes have not been read yet."""
    return sources.attributes(value) if sources.is_block(value) else value


def _check_window(check: ConfigCheck, static: Mapping[str, Any]) -> None:
    start, end, warmup = static["start_step"], static["end_step"], static["warmup"]
    if end <= start:
        check.wrong(f"static_param.end_step = {end}", f"allowed: more than start_step, which is {start}")
    if warmup > start:
        check.wrong(f"static_param.warmup = {warmup}", f"allowed: at most start_step, which is {start}")


def _options(values: Mapping[str, Any]) -> dict[str, bool]:
    return {
        "record_shapes": values["record_shapes"], "profile_memory": values["with_memory"], "with_stack": values["with_stack"],
    }  # fmt: skip


def _experimental(values: Mapping[str, Any], metrics: str | None) -> dict[str, Any]:
    """Without metrics the level decides: PipeUtilization from level1 on."""
    export = values["export_type"]
    return {
        "profiler_level": LEVELS[values["level"]],
        "aic_metrics": metrics,
        "data_simplification": values["data_simplification"],
        "export_type": [export] if isinstance(export, str) else list(export),
        "mstx": values["level"] == "level_none",
    }


def _ranks(given: Any) -> frozenset[int] | None:
    listed = [given] if isinstance(given, int) else list(given)
    return None if -1 in listed else frozenset(listed)


def _folder(config_path: str | None) -> str | None:
    """The folder for dynamic_profile; the path of the file in it is accepted too."""
    if config_path is not None and Path(config_path).name == CONFIG_FILE:
        return str(Path(config_path).parent)
    return config_path
