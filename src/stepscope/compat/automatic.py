# SPDX-License-Identifier: Apache-2.0
"""Profiles a script without profiling code: `stepscope run --profile steps=3:5,level=1,memory,stack train.py`."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from stepscope.compat.launch import MAIN_PROCESS
from stepscope.dynamic_profile.recorded_script import RecordedScript
from stepscope.profiler.constants import AiCMetrics, ExportType, ProfilerActivity, ProfilerLevel
from stepscope.profiler.experimental import _ExperimentalConfig
from stepscope.profiler.handlers import TraceHandler
from stepscope.profiler.profiler import profile
from stepscope.profiler.scheduling import schedule

_SWITCHES = {
    "memory": "profile_memory", "stack": "with_stack", "shapes": "record_shapes", "modules": "with_modules",
    "flops": "with_flops", "threads": "all_threads",
}  # fmt: skip
_EXPERIMENTAL = {"l2": "l2_cache", "mstx": "mstx", "io": "sys_io", "interconnection": "sys_interconnection"}
_LEVELS = {
    "none": ProfilerLevel.Level_none, "0": ProfilerLevel.Level0, "1": ProfilerLevel.Level1, "2": ProfilerLevel.Level2,
}  # fmt: skip
_METRICS = {name: value for name, value in vars(AiCMetrics).items() if not name.startswith("_")}
_EXPORTS = (ExportType.Text, ExportType.Db)
DEFAULT_FOLDER = "stepscope-profile"


@dataclass(frozen=True)
class Plan:
    """What to record of a training script, and where to put it."""

    first: int = 3
    last: int = 5
    folder: str = DEFAULT_FOLDER
    ranks: frozenset[int] | None = None  # None: all
    switches: frozenset[str] = frozenset()
    experimental: dict[str, Any] = field(default_factory=dict)

    def profiler(self, handler: TraceHandler, activities: list[ProfilerActivity], warmup: int) -> profile:
        """For the steps after the next `warmup` ones."""
        return profile(
            activities=activities,
            schedule=schedule(wait=0, warmup=warmup, active=self.last - self.first + 1, repeat=1),
            on_trace_ready=handler,
            experimental_config=_ExperimentalConfig(**self.experimental),
            **dict.fromkeys(self.switches, True),
        )


def parse(text: str) -> Plan:
    """The plan that a text such as `steps=3:5,level=1,memory,stack,out=runs` describes.

    Raises:
        ValueError: the text is invalid; the message is meant for the user.
    """
    values: dict[str, Any] = {}
    switches: set[str] = set()
    experimental: dict[str, Any] = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        key, given, value = word.partition("=")
        if not given and key in _SWITCHES:
            switches.add(_SWITCHES[key])
        elif not given and key in _EXPERIMENTAL:
            experimental[_EXPERIMENTAL[key]] = True
        elif key == "steps":
            values["first"], values["last"] = _range(key, value)
        elif key == "out" and value:
            values["folder"] = value
        elif key == "ranks":
            values["ranks"] = frozenset(_numbers(key, value))
        elif key == "level":
            experimental["profiler_level"] = _choice(key, value, _LEVELS)
        elif key == "metrics":
            experimental["aic_metrics"] = _choice(key, value, _METRICS)
        elif key == "export":
            experimental["export_type"] = [_choice(key, name, {name: name for name in _EXPORTS}) for name in value.split("+")]
        else:
            raise ValueError(f"unknown word {word!r}; known words are {_known()}")
    return Plan(**values, switches=frozenset(switches), experimental=experimental)


def prepare(text: str) -> None:
    """Wait for steps of this process and profile them; at its end say why, if there were none."""
    plan = parse(text)
    rank = os.environ.get("RANK", "0")
    if plan.ranks is None or (rank.isdigit() and int(rank) in plan.ranks):
        script = RecordedScript(plan, os.environ.get(MAIN_PROCESS))
        script.watch()
        atexit.register(script.end)


def _range(key: str, text: str) -> tuple[int, int]:
    first, between, last = text.partition(":")
    if not first.isdigit() or (between and not last.isdigit()) or (between and int(last) < int(first)):
        raise ValueError(f"{key}={text} is not first:last, such as {key}=3:5, counted from 0")
    return int(first), int(last if between else first)


def _numbers(key: str, text: str) -> Iterable[int]:
    for part in text.split("+"):
        first, last = _range(key, part)
        yield from range(first, last + 1)


def _choice(key: str, text: str, known: dict[str, str]) -> str:
    if text not in known:
        raise ValueError(f"{key}={text} is not one of {', '.join(known)}")
    return known[text]


def _known() -> str:
    return ", ".join(["steps=FIRST:LAST", "level=0|1|2|none", "out=DIR", "ranks=0+2:3", "metrics=NAME", "export=text+db",
                      *_SWITCHES, *_EXPERIMENTAL])  # fmt: skip
