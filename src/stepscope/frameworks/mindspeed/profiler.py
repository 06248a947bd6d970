# SPDX-License-Identifier: Apache-2.0
"""start, step and stop around a training loop, as the configuration says (docs/formats/mindspeed-profiler.md 2-4)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from stepscope.collect import messages, metadata
from stepscope.collect.guard import Fuse
from stepscope.frameworks.mindspeed.request import Request, fsdp2_request, megatron_request, mm_request
from stepscope.profiler import (
    ProfilerActivity,
    _ExperimentalConfig,
    profile,
    supported_activities,
    tensorboard_trace_handler,
)


class Profiler:
    """Records the steps that a configuration names, on the ranks it names.

    Args:
        prof_config: tools.json of MindSpeed-MM or its block `profile`: a dict, the path of a .json or .yaml file, or an
            object with attributes. Invalid settings raise one error here, on every rank.
    """

    def __init__(self, prof_config: Any) -> None:
        self._request = prof_config if isinstance(prof_config, Request) else mm_request(prof_config)
        self.prof: profile | None = None  # of a static profiler, from `start` to `stop`
        self._state = "before"
        self._fuse = Fuse(self._release)

    @property
    def enabled(self) -> bool:
        """Whether this rank records."""
        return not _optimizer_only() and self._request.wants(metadata.global_rank())

    def start(self) -> None:
        if self._state != "before":
            self._warn_ignored("start")
            return
        self._state = "on" if self._fuse.run("reading the rank", lambda: self.enabled) else "off"
        if self._state == "on":
            self._fuse.run("starting the profiler", self._begin)

    def step(self) -> None:
        """After each training step."""
        if self._state == "on":
            self._fuse.run("the profiler's step", self._after_step)
        elif self._state != "off":
            self._warn_ignored("step")

    def stop(self) -> None:
        if self._state == "on":
            self._state = "after"
            self._fuse.run("stopping the profiler", self._end)
        elif self._state != "off":
            self._warn_ignored("stop")
        if self._request.enable and self._state in ("off", "after") and not self._fuse.blown:
            self._fuse.run("checking the ranks", self._warn_of_missing_ranks)

    def _warn_of_missing_ranks(self) -> None:
        size = metadata.world_size()
        missing = self._request.missing_ranks(size)
        if missing:
            where = "the job has only rank 0" if size == 1 else f"the job has ranks 0 to {size - 1}"
            nothing = "nothing was recorded: " if frozenset(missing) == self._request.ranks else ""
            listed = ", ".join(map(str, missing))
            messages.once(messages.warning, f"{nothing}`ranks` of the configuration names {listed}, but {where}; correct it")

    def _begin(self) -> None:
        if self._request.config_folder is not None:
            _dynamic("init")(self._request.config_folder)
            return
        self.prof = _profile(self._request)
        messages.info(f"recording {self._request.window}, into {self._request.save_path}")
        self.prof.start()

    def _after_step(self) -> None:
        if self.prof is not None:
            self.prof.step()
        else:
            _dynamic("step")()

    def _end(self) -> None:
        if self.prof is not None:
            self.prof.stop()
            self.prof = None

    def _release(self) -> None:
        self._state = "off"
        self._end()

    def _warn_ignored(self, call: str) -> None:
        when = {"before": "was not started", "on": "is already running", "off": "was already started", "after": "has stopped"}[
            self._state
        ]
        if self._request.enable:
            messages.once(messages.warning, f"the profiler {when}; {call}() has no effect")


def from_mm_config(config: Any) -> Profiler:
    """The same as `Profiler(config)`: MindSpeed-MM, steps counted from 0, [start_step, end_step)."""
    return Profiler(mm_request(config))


def from_megatron_args(args: Any, iteration: int | None = None) -> Profiler:
    """MindSpeed-LLM: parsed arguments of `add_arguments`; iterations counted from 1, [profile_step_start, profile_step_end).

    Args:
        args: the parsed arguments.
        iteration: the last one of the loaded checkpoint; default: `args.iteration`, else 0.
    """
    return Profiler(megatron_request(args, iteration))


def from_fsdp2_config(config: Any) -> Profiler:
    """FSDP2: YAML or its block `training`; steps counted from 0, [profile_step_start, profile_step_end), -1 for the end."""
    return Profiler(fsdp2_request(config))


def _profile(request: Request) -> profile:
    made = profile(
        activities=_activities(request.with_cpu),
        schedule=request.window.schedule(),
        on_trace_ready=tensorboard_trace_handler(request.save_path, analyse_flag=request.analyse),
        experimental_config=_ExperimentalConfig(**request.experimental),
        **request.options,
    )
    for key, text in request.metadata.items():
        made.add_metadata_json(key, json.dumps({**_own_place(), **json.loads(text)}))
    return made


def _activities(with_cpu: bool) -> list[ProfilerActivity] | None:
    """Only the device if there is one and `with_cpu` is off; otherwise everything this machine can record."""
    devices = supported_activities() - {ProfilerActivity.CPU}
    return None if with_cpu or not devices else list(devices)


def _own_place() -> dict[str, int]:
    return {"rank": metadata.global_rank(), "world_size": metadata.world_size()}


def _optimizer_only() -> bool:
    """The trainers' own switch for runs that only examine the optimizer."""
    return os.environ.get("OOTB_OPTIMIZER_PROFILING") == "TRUE"


def _dynamic(name: str) -> Callable[..., None]:
    from stepscope import dynamic_profile

    return getattr(dynamic_profile, name)  # type: ignore[no-any-return]
