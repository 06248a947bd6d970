# SPDX-License-Identifier: Apache-2.0
"""Arguments of a profiler, checked once: an invalid value gives a warning and the default (docs/formats/profiler-api.md 3)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from stepscope.collect import messages
from stepscope.collect.settings import Budget, Switches
from stepscope.profiler.constants import ProfilerActivity, ProfilerLevel, supported_activities
from stepscope.profiler.experimental import _ExperimentalConfig


def activities(given: Any, use_cuda: Any = None) -> tuple[str, ...]:
    """Names of the activities to record, in the order of the enum."""
    supported = supported_activities()
    chosen = _requested(given, supported)
    if use_cuda is not None:
        if use_cuda is True and ProfilerActivity.CUDA in supported:
            chosen = chosen | {ProfilerActivity.CUDA}
        else:
            why = "torch finds no CUDA device" if use_cuda is True else "it can only be True"
            messages.warning(f"use_cuda={use_cuda!r} is ignored: {why}")
    return tuple(activity.name for activity in ProfilerActivity if activity in chosen)


def _requested(given: Any, supported: set[ProfilerActivity]) -> set[ProfilerActivity]:
    if given is None:
        return supported
    if not isinstance(given, Iterable):
        messages.warning(f"activities={given!r} is not a list; recording everything this machine supports")
        return supported
    listed = list(given)
    # torch's own enum and the vendor's name the same things.
    named = {activity for item in listed for activity in ProfilerActivity if activity.name == getattr(item, "name", None)}
    if not listed:
        return supported
    if len(named) < len({getattr(item, "name", repr(item)) for item in listed}):
        messages.warning(f"activities={listed!r} has an unknown item; recording everything this machine supports")
        return supported
    absent = named - supported
    if absent:
        names = ", ".join(sorted(activity.name for activity in absent))
        messages.warning(f"{names} is not recorded: this machine has no such device")
    return named - absent or supported


def switches(given: dict[str, Any]) -> Switches:
    return Switches(**{name: flag(name, value) for name, value in given.items()})


def flag(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    messages.warning(f"{name}={value!r} is not a bool; using False")
    return False


def function(name: str, value: Any) -> Callable[..., Any] | None:
    if callable(value):
        return value  # type: ignore[no-any-return]
    if value is not None:
        messages.warning(f"{name}={value!r} is not callable and is ignored")
    return None


def experimental(given: Any) -> _ExperimentalConfig:
    if given is None:
        return _ExperimentalConfig()
    if isinstance(given, _ExperimentalConfig):
        return given
    messages.warning(f"experimental_config={given!r} is not an _ExperimentalConfig; using the defaults")
    return _ExperimentalConfig()


def budget(max_seconds: Any, max_bytes: Any) -> Budget:
    """From the arguments, else from STEPSCOPE_MAX_SECONDS and STEPSCOPE_MAX_BYTES."""
    seconds = _limit("max_seconds", max_seconds)
    size = _limit("max_bytes", max_bytes)
    return Budget(seconds, None if size is None else int(size))


def _limit(name: str, given: Any) -> float | None:
    value = given if given is not None else os.environ.get(f"STEPSCOPE_{name.upper()}")
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = 0.0
    if number > 0 and not isinstance(value, bool):
        return number
    messages.warning(f"{name}={value!r} is not a positive number; the limit is ignored")
    return None


def spool(given: Any) -> Path | None:
    """The local folder to write to first, from the argument or STEPSCOPE_SPOOL_DIR."""
    value = given or os.environ.get("STEPSCOPE_SPOOL_DIR")
    if value is None:
        return None
    if isinstance(value, (str, os.PathLike)):
        return Path(value)
    messages.warning(f"spool_dir={value!r} is not a path; captures are written directly to their folder")
    return None


def warn_about_unused_settings(chosen: tuple[str, ...], given: Any, config: _ExperimentalConfig, wanted: Any) -> None:
    """Warn about settings that have no effect with these activities; defaults give no warning."""
    left_out = (
        wanted and not any(getattr(item, "name", None) == "NPU" for item in wanted) if isinstance(wanted, Iterable) else False
    )
    unused = config.device_settings() if given is not None and left_out else []
    if unused:
        verb = "has" if len(unused) == 1 else "have"
        messages.warning(f"experimental_config: {', '.join(unused)} {verb} no effect without ProfilerActivity.NPU")
    if "CPU" not in chosen and config._gc_detect_threshold is not None:
        messages.warning("gc_detect_threshold has no effect without ProfilerActivity.CPU")


def warn_about_level_none(chosen: tuple[str, ...], config: _ExperimentalConfig, *, profile_memory: bool) -> None:
    """Name the files that Level_none leaves out although a switch asks for them."""
    if config._profiler_level != ProfilerLevel.Level_none or "NPU" not in chosen:
        return
    if config._l2_cache:
        messages.warning("l2_cache has no effect at Level_none: l2_cache.csv needs Level0 or higher")
    if profile_memory:
        messages.warning(
            "profile_memory at Level_none records the framework's memory only: npu_module_mem.csv needs Level0 or higher"
        )


def owned_by_outer_tool() -> bool:
    """Whether an outer msprof owns the device, so that this API must stay inactive."""
    return any(os.environ.get(name) for name in ("PROFILER_SAMPLECONFIG", "PROFILING_MODE"))
