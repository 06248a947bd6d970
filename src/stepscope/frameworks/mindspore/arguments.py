# SPDX-License-Identifier: Apache-2.0
"""Arguments of the profiler, checked once: invalid values give a warning and the default (docs/formats/mindspore.md 2.1, 2.2)."""

from __future__ import annotations

import enum
import os
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from stepscope.collect import messages
from stepscope.frameworks.mindspore.constants import (
    AicoreMetrics,
    ExportType,
    HostSystem,
    ProfilerActivity,
    ProfilerLevel,
    member,
)
from stepscope.frameworks.mindspore.scheduling import schedule
from stepscope.profiler.handlers import TraceHandler

OUTPUT_PATH = "./data"
_LONGEST_PATH, _LONGEST_NAME = 4096, 255
_PLAIN_PATH = re.compile(r"[\w./~ \-\u4e00-\u9fa5]+", re.ASCII)
_CHINESE = re.compile(r"[\u4e00-\u9fa5]")
_REMOVED = ("profile_communication", "op_time", "profile_framework", "host_stack", "timeline_limit")
_DEPRECATED = ("pcie", "hbm_ddr")


@dataclass(frozen=True)
class _ExperimentalConfig:
    """Settings that later versions of MindSpore keep in a separate object; they override the same keywords."""

    profiler_level: Any = ProfilerLevel.Level0
    aic_metrics: Any = AicoreMetrics.AiCoreNone
    l2_cache: Any = False
    mstx: Any = False
    data_simplification: Any = True
    export_type: Any = None
    mstx_domain_include: Any = None
    mstx_domain_exclude: Any = None
    sys_io: Any = False
    sys_interconnection: Any = False
    host_sys: Any = None


@dataclass(frozen=True)
class Parameters:
    """What a profiler was asked to record, after validation; the defaults are those of MindSpore."""

    start_profile: bool = True
    output_path: str = OUTPUT_PATH
    profiler_level: ProfilerLevel = ProfilerLevel.Level0
    activities: tuple[ProfilerActivity, ...] = (ProfilerActivity.CPU, ProfilerActivity.NPU)
    aic_metrics: AicoreMetrics = AicoreMetrics.AiCoreNone
    schedule: schedule | None = None
    on_trace_ready: Callable[..., Any] | None = None
    profile_memory: bool = False
    with_stack: bool = False
    data_simplification: bool = True
    l2_cache: bool = False
    hbm_ddr: bool = False
    pcie: bool = False
    data_process: bool = False
    parallel_strategy: bool = False
    sync_enable: bool = True
    record_shapes: bool = False
    mstx: bool = False
    export_type: tuple[ExportType, ...] = (ExportType.Text,)
    mstx_domain_include: tuple[str, ...] = ()
    mstx_domain_exclude: tuple[str, ...] = ()
    sys_io: bool = False
    sys_interconnection: bool = False
    host_sys: tuple[HostSystem, ...] = ()

    def as_info(self) -> dict[str, Any]:
        """The parameters as profiler_info shows them: strings for enum members, numbers for the schedule, no callables."""
        plain = {name: _plain(getattr(self, name)) for name in asdict(replace(self, schedule=None, on_trace_ready=None))}
        del plain["on_trace_ready"]
        rule = self.schedule.to_dict() if self.schedule is not None else None
        return {**plain, "aicore_metrics": plain["aic_metrics"], "schedule": rule, "is_set_schedule": rule is not None}

    def has(self, activity: ProfilerActivity) -> bool:
        return activity in self.activities


def parameters(given: Mapping[str, Any]) -> Parameters:
    """The keywords of a profiler. Unknown ones are ignored, as MindSpore does.

    Raises:
        ValueError: `aicore_metrics` and `aic_metrics` are both given and contradict each other.
    """
    given = dict(given)
    if "aicore_metrics" in given:
        old = given.pop("aicore_metrics")
        if "aic_metrics" in given and given["aic_metrics"] is not old:
            raise ValueError(f"aicore_metrics={old!r} and aic_metrics={given['aic_metrics']!r} mean the same thing")
        given["aic_metrics"] = old
    config = given.pop("experimental_config", None)
    if isinstance(config, _ExperimentalConfig):
        given |= {name: value for name, value in vars(config).items() if value is not None}
    elif config is not None:
        _wrong("experimental_config", config, "_ExperimentalConfig", "the keywords")
    _warn_about_old_keywords(given)
    checked = {name: _CHECKS[name](name, value) for name, value in given.items() if name in _CHECKS}
    found = Parameters(**{name: value for name, value in checked.items() if value is not None})
    handler = found.on_trace_ready
    theirs = handler.dir_name if isinstance(handler, TraceHandler) else None
    if theirs and "output_path" in given and _same_folder(theirs) != _same_folder(found.output_path):
        messages.warning(f"output_path={found.output_path!r} is ignored: the handler keeps captures in {theirs!r}")
    return _resolve_conflicts(found)


def _same_folder(path: str) -> str:
    return os.path.realpath(os.path.expanduser(path))


def _warn_about_old_keywords(given: Mapping[str, Any]) -> None:
    for name in _REMOVED:
        if name in given:
            warnings.warn(f"{name} no longer has an effect", UserWarning, stacklevel=4)
    for name in _DEPRECATED:
        if given.get(name) is True:
            warnings.warn(f"{name} will be removed from MindSpore", UserWarning, stacklevel=4)


def _resolve_conflicts(found: Parameters) -> Parameters:
    """Replace settings that exclude each other (docs/formats/mindspore.md 2.2)."""

    def override(why: str, **values: Any) -> None:
        nonlocal found
        as_info = ", ".join(f"{name}={_plain(value)}" for name, value in values.items())
        warnings.warn(f"{why}: using {as_info}", UserWarning, stacklevel=5)
        found = replace(found, **values)

    none = AicoreMetrics.AiCoreNone
    if found.schedule is not None and found.data_process:
        override("data_process cannot be combined with a schedule", data_process=False)
    if found.profiler_level is ProfilerLevel.LevelNone and not found.mstx:
        override("LevelNone records nothing without mstx", profiler_level=ProfilerLevel.Level0)
    low = found.profiler_level in (ProfilerLevel.LevelNone, ProfilerLevel.Level0)
    if low and found.aic_metrics is not none:
        override(f"{found.profiler_level.name} has no AI-core metrics", aic_metrics=none)
    elif not low and found.aic_metrics is none:
        override(f"{found.profiler_level.name} needs an AI-core metric", aic_metrics=AicoreMetrics.PipeUtilization)
    if found.record_shapes and not found.has(ProfilerActivity.CPU):
        override("record_shapes needs ProfilerActivity.CPU", record_shapes=False)
    if (found.mstx_domain_include or found.mstx_domain_exclude) and not found.mstx:
        override("mstx domains need mstx", mstx_domain_include=(), mstx_domain_exclude=())
    elif found.mstx_domain_include and found.mstx_domain_exclude:
        override("only one of the two lists of mstx domains may be given", mstx_domain_exclude=())
    return found


def _wrong(name: str, value: Any, expected: str, instead: Any) -> None:
    messages.warning(f"{name}={value!r} is of type {type(value).__name__}, expected {expected}; using {instead}")


def _flag(name: str, value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    _wrong(name, value, "bool", getattr(Parameters, name))
    return None


def _one_of(kind: type[enum.Enum]) -> Callable[[str, Any], enum.Enum | None]:
    def check(name: str, value: Any) -> enum.Enum | None:
        found = member(kind, value)
        if found is None:
            _wrong(name, value, kind.__name__, getattr(Parameters, name).name)
        return found

    return check


def _some_of(kind: type[enum.Enum], *, words: bool = False) -> Callable[[str, Any], tuple[enum.Enum, ...] | None]:
    def check(name: str, value: Any) -> tuple[enum.Enum, ...] | None:
        listed = value if isinstance(value, (list, tuple)) else [value] if words else None
        found = None if listed is None else [member(kind, item) or (words and _by_value(kind, item)) or None for item in listed]
        if not found or None in found:
            if listed == []:
                return ()
            _wrong(name, value, f"list of {kind.__name__}", [item.name for item in getattr(Parameters, name)])
            return None
        return tuple(dict.fromkeys(item for item in found if item is not None))

    return check


def _by_value(kind: type[enum.Enum], word: Any) -> enum.Enum | None:
    return next((item for item in kind if item.value == word), None)


def _activities(name: str, value: Any) -> tuple[enum.Enum, ...] | None:
    return _some_of(ProfilerActivity)(name, value) or None


def _texts(name: str, value: Any) -> tuple[str, ...] | None:
    if isinstance(value, (list, tuple)) and all(isinstance(item, str) and item for item in value):
        return tuple(value)
    _wrong(name, value, "list of str", [])
    return None


def _schedule(name: str, value: Any) -> schedule | None:
    if value is None or isinstance(value, schedule):
        return value
    _wrong(name, value, "schedule", "schedule(wait=0, active=1)")
    return schedule(wait=0, active=1)


def _callable(name: str, value: Any) -> Callable[..., Any] | None:
    if value is None or callable(value):
        return value  # type: ignore[no-any-return]
    _wrong(name, value, "callable", None)
    return None


def _path(name: str, value: Any) -> str | None:
    if not isinstance(value, str):
        _wrong(name, value, "str", OUTPUT_PATH)
        return None
    whole = os.path.abspath(os.path.expanduser(value))
    problems = {
        "it is empty": not value,
        "it is a symbolic link": os.path.islink(whole),
        "it is a file": os.path.isfile(whole),
        f"it is longer than {_LONGEST_PATH} characters": len(whole) > _LONGEST_PATH,
        f"a name in it is longer than {_LONGEST_NAME}": any(len(os.fsencode(part)) > _LONGEST_NAME for part in whole.split("/")),
        "it has characters that other tools reject": bool(value) and not _PLAIN_PATH.fullmatch(_CHINESE.sub("x", value)),
    }
    found = [why for why, holds in problems.items() if holds]
    if not found:
        return value
    messages.warning(f"output_path={value[:80]!r} is ignored: {found[0]}; using {OUTPUT_PATH}")
    return None


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    **{name: _flag for name, default in vars(Parameters()).items() if isinstance(default, bool)},
    "output_path": _path,
    "profiler_level": _one_of(ProfilerLevel),
    "aic_metrics": _one_of(AicoreMetrics),
    "activities": _activities,
    "schedule": _schedule,
    "on_trace_ready": _callable,
    "export_type": _some_of(ExportType, words=True),
    "mstx_domain_include": _texts,
    "mstx_domain_exclude": _texts,
    "host_sys": _some_of(HostSystem, words=True),
}
