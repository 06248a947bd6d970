# SPDX-License-Identifier: Apache-2.0
"""What to record of a job, as one line of text: `steps=10:12,level=1,memory,stack,ranks=0+4:7,out=runs`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stepscope.profiler.constants import AiCMetrics, ExportType, ProfilerActivity, ProfilerLevel
from stepscope.profiler.experimental import _ExperimentalConfig
from stepscope.profiler.handlers import TraceHandler, tensorboard_trace_handler
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
_ANALYSES = {"after": True, "no": False}
_MOST_RANKS = 8  # of which all are recorded unless the plan names some
DEFAULT_FOLDER = "stepscope-profile"


@dataclass(frozen=True)
class Plan:
    """What to record of a training script, and where to put it.

    Args:
        first: number of the first recorded step, counted from 0.
        last: number of the last recorded step.
        folder: where captures are put.
        ranks: which ranks record; None for all of a small job, and one of each host of a larger one.
        analyse: analyse each capture in the background; otherwise raw data are kept, which every command reads.
    """

    first: int = 3
    last: int = 5
    folder: str = DEFAULT_FOLDER
    ranks: frozenset[int] | None = None
    switches: frozenset[str] = frozenset()
    experimental: dict[str, Any] = field(default_factory=dict)
    analyse: bool = False

    def records(self, rank: int, environment: Mapping[str, str] = os.environ) -> bool:
        """Whether a rank is one of those to record."""
        if self.ranks is not None:
            return rank in self.ranks
        return _number(environment, "WORLD_SIZE", 1) <= _MOST_RANKS or _number(environment, "LOCAL_RANK", 0) == 0

    def names_nobody(self, size: int) -> str:
        """Why no rank of a job of that many ranks records; empty where one does."""
        if self.ranks is None or min(self.ranks) < size:
            return ""
        here = f"ranks 0 to {size - 1}" if size > 1 else "rank 0 only"
        return f"nothing is recorded: the first rank of the plan is {min(self.ranks)}, but the job has {here}"

    def handler(self) -> TraceHandler:
        return tensorboard_trace_handler(self.folder, analyse_flag=self.analyse, async_mode=True)

    def profiler(self, handler: TraceHandler, activities: list[ProfilerActivity] | None, steps: schedule) -> profile:
        return profile(
            activities=activities,
            schedule=steps,
            on_trace_ready=handler,
            experimental_config=_ExperimentalConfig(**self.experimental),
            **dict.fromkeys(self.switches, True),
        )


def parse(text: str, *, analyse: bool = False) -> Plan:
    """The plan that a text such as `steps=3:5,level=1,memory,stack,out=runs` describes.

    Args:
        text: words with commas between them.
        analyse: what to do where the text does not say it.

    Raises:
        ValueError: the text is invalid; the message is meant for the user.
    """
    values: dict[str, Any] = {"analyse": analyse}
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
        elif key == "analyse":
            values["analyse"] = _choice(key, value, _ANALYSES)
        elif key == "metrics":
            experimental["aic_metrics"] = _choice(key, value, _METRICS)
        elif key == "export":
            experimental["export_type"] = [_choice(key, name, {name: name for name in _EXPORTS}) for name in value.split("+")]
        else:
            raise ValueError(f"unknown word {word!r}; known words are {_known()}")
    return Plan(**values, switches=frozenset(switches), experimental=experimental)


def _range(key: str, text: str) -> tuple[int, int]:
    first, between, last = text.partition(":")
    if not first.isdigit() or (between and not last.isdigit()) or (between and int(last) < int(first)):
        raise ValueError(f"{key}={text} is not first:last, such as {key}=3:5, counted from 0")
    return int(first), int(last if between else first)


def _numbers(key: str, text: str) -> Iterable[int]:
    for part in text.split("+"):
        first, last = _range(key, part)
        yield from range(first, last + 1)


def _choice(key: str, text: str, known: Mapping[str, Any]) -> Any:
    if text not in known:
        raise ValueError(f"{key}={text} is not one of {', '.join(known)}")
    return known[text]


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    value = environment.get(name, "")
    return int(value) if value.isdigit() else default


def _known() -> str:
    return ", ".join(["steps=FIRST:LAST", "level=0|1|2|none", "out=DIR", "ranks=0+2:3", "metrics=NAME", "export=text+db",
                      "analyse=after|no",
                      *_SWITCHES, *_EXPERIMENTAL])  # fmt: skip
