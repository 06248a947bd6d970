# SPDX-License-Identifier: Apache-2.0
"""Recording that a config file switches on while training runs (docs/formats/mindspore.md 5).

Imported only once MindSpore is: the callback derives from its class.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from mindspore.train import Callback

from stepscope.collect import messages, paths
from stepscope.collect.guard import warn_on_failure
from stepscope.control import trust
from stepscope.frameworks.mindspore import training_steps
from stepscope.frameworks.mindspore.constants import AicoreMetrics, ExportType, HostSystem, ProfilerActivity, ProfilerLevel
from stepscope.frameworks.mindspore.profiler import Profiler
from stepscope.frameworks.mindspore.recording import rank

CONFIG = "profiler_config.json"
DEFAULTS: dict[str, Any] = {
    "start_step": -1, "stop_step": -1, "aic_metrics": "AiCoreNone", "profiler_level": "Level0", "analyse_mode": -1,
    "activities": ["CPU", "NPU"], "export_type": ["text"], "profile_memory": False, "mstx": False, "parallel_strategy": False,
    "with_stack": False, "l2_cache": False, "record_shapes": False, "sys_io": False, "sys_interconnection": False,
    "data_simplification": True, "analyse": True, "prof_path": "./", "mstx_domain_include": [], "mstx_domain_exclude": [],
    "host_sys": [],
}  # fmt: skip
_SWITCHES = (
    "profile_memory", "mstx", "parallel_strategy", "with_stack", "l2_cache", "record_shapes", "sys_io", "sys_interconnection",
    "data_simplification", "mstx_domain_include", "mstx_domain_exclude",
)  # fmt: skip
_LEVELS = (ProfilerLevel.Level0, ProfilerLevel.Level1, ProfilerLevel.Level2)
_METRICS = tuple(AicoreMetrics)
_ACTIVITIES = {
    0: (ProfilerActivity.CPU, ProfilerActivity.NPU), 1: (ProfilerActivity.CPU,), 2: (ProfilerActivity.NPU,),
}  # fmt: skip


class DynamicProfilerMonitor(Callback):  # type: ignore[misc]
    """Watches `profiler_config.json` and records the steps it names; a callback of Model.train, or used by `step()`.

    Args:
        cfg_path: folder of the file; rank 0 creates one that records nothing if it is missing.
        output_path: where captures go unless the file says so.
        poll_interval: seconds between two checks of the file.
    """

    def __init__(self, cfg_path: Any, output_path: Any = "./dyn_profile_data", poll_interval: Any = 2, **_others: Any):
        super().__init__()
        if not isinstance(poll_interval, int) or isinstance(poll_interval, bool) or poll_interval < 1:
            messages.warning(f"poll_interval={poll_interval!r} is not a whole number from 1; using 2")
            poll_interval = 2
        self._file = Path(str(cfg_path)) / CONFIG
        self._output, self._interval = str(output_path), poll_interval
        self._number = 0
        self._looked = float("-inf")
        self._changed: int | None = None
        self._config: dict[str, Any] = {}
        self._profiler: Profiler | None = None
        if rank() == 0:
            warn_on_failure("the file of the dynamic profiler", self._make_file)

    def step_begin(self, run_context: Any) -> None:
        del run_context
        self._begin()

    def step_end(self, run_context: Any) -> None:
        del run_context
        self._end()

    def step(self) -> None:
        """For custom training loops, called after each step: ends it and begins the next one."""
        if self._number:
            self._end()
        self._begin()

    def on_train_end(self, run_context: Any) -> None:
        del run_context
        self._finish()

    def _begin(self) -> None:
        self._number += 1
        warn_on_failure("the dynamic profiler", self._look)
        if self._profiler is None and self._number == self._config.get("start_step"):
            warn_on_failure("the dynamic profiler", self._start)
        if self._profiler is not None:
            self._profiler.training_step_begins(self._number)

    def _end(self) -> None:
        if self._profiler is not None:
            self._profiler.training_step_ends()
            if self._number >= self._config["stop_step"]:
                self._finish()

    def _look(self) -> None:
        """Read the file when it changed; at most every `poll_interval` seconds."""
        now = time.monotonic()
        if now - self._looked < self._interval or self._profiler is not None:
            return
        self._looked = now
        if not self._file.is_file():
            return
        changed = self._file.stat().st_mtime_ns
        if changed != self._changed and (refusal := self._distrust()):
            messages.once(messages.warning, f"the dynamic profiler does not follow {self._file}: {refusal}")
            return
        if changed != self._changed:
            self._changed = changed
            self._config = {**DEFAULTS, **json.loads(self._file.read_bytes())}

    def _distrust(self) -> str | None:
        """Why the file is not followed: whoever can write there decides where this job writes."""
        return trust.distrust_of_folder(self._file.parent) or trust.distrust_of_file(str(self._file), self._file.lstat())

    def _start(self) -> None:
        config = self._config
        first, last = config["start_step"], config["stop_step"]
        if not isinstance(last, int) or last < first:
            messages.warning(f"{CONFIG}: stop_step={last!r} is not after start_step={first!r}; nothing is recorded")
            return
        of_file = None if config["prof_path"] in ("", "./") else str(config["prof_path"])
        refusal = None if of_file is None else trust.outside_roots(of_file)
        if refusal:
            messages.warning(f"{self._file}: {refusal}; nothing is recorded")
            return
        parent = self._output if of_file is None else of_file
        self._profiler = Profiler(
            output_path=os.path.join(parent, f"rank{rank()}_start{first}_stop{last}"),
            profiler_level=_member(ProfilerLevel, config["profiler_level"], _LEVELS),
            aic_metrics=_member(AicoreMetrics, config["aic_metrics"], _METRICS),
            activities=_activities(config["activities"]),
            export_type=config["export_type"] if isinstance(config["export_type"], list) else [ExportType.Text],
            host_sys=[item for item in HostSystem if item.value in config["host_sys"]],
            **{name: config[name] for name in _SWITCHES},
        )
        training_steps.leave(self._profiler)  # steps are marked here

    def _finish(self) -> None:
        profiler, self._profiler = self._profiler, None
        if profiler is None:
            return
        profiler.stop()
        if self._config["analyse"] is True or self._config["analyse_mode"] in (0, 1):
            profiler.analyse(mode="async" if self._config["analyse_mode"] == 1 else "sync")

    def _make_file(self) -> None:
        if not self._file.exists():
            paths.ensure_folder(self._file.parent)
            paths.write_file(self._file, json.dumps(DEFAULTS, indent=4).encode())


def _member(kind: Any, value: Any, by_number: tuple[Any, ...]) -> Any:
    """An enum member by its name, or by the number that the file may use instead."""
    if isinstance(value, int) and 0 <= value < len(by_number):
        return by_number[value]
    return kind.__members__.get(str(value), value)


def _activities(value: Any) -> list[Any]:
    if isinstance(value, list):
        return [ProfilerActivity.__members__.get(str(item), item) for item in value]
    return list(_ACTIVITIES.get(value, _ACTIVITIES[0]))
