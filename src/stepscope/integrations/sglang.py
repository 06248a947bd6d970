# SPDX-License-Identifier: Apache-2.0
"""SGLang: /start_profile and /stop_profile record with stepscope if STEPSCOPE_PROFILE is set.

SGLang calls `load` in each of its processes (entry point `sglang.srt.plugins`). While its scheduler starts a profile, ours stands
where it takes torch's profiler from, so that everything else (steps to begin at, stages, memory snapshots) stays as it is.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

from stepscope.integrations import servers
from stepscope.integrations.plan import Plan

# Where each version has it, the newest first: the module, the class, and its methods that start and stop.
_PLACES = (
    ("sglang.srt.managers.scheduler_components.profiler_manager", "SchedulerProfilerManager", "_start_profile", "_stop_profile"),
    ("sglang.srt.managers.scheduler_profiler_mixin", "SchedulerProfilerMixin", "start_profile", "stop_profile"),
)
_BATCH = "_profile_batch_predicate"
_MARK = "of_stepscope"
_SECOND = "SGLANG_PROFILE_V2"


def load() -> None:
    servers.install("sglang", _patch)


def _patch(plan: Plan) -> str | None:
    if os.environ.get(_SECOND, "").lower() in ("1", "true", "yes", "y"):
        return f"place for another profiler with {_SECOND}"
    for place in _PLACES:
        try:
            module = import_module(place[0])
        except ModuleNotFoundError:
            continue
        return _patch_module(module, *place, plan)
    return _PLACES[0][0]


def _patch_module(module: Any, path: str, name: str, start: str, stop: str, plan: Plan) -> str | None:
    owner = getattr(module, name, None)
    if owner is None or not hasattr(module, "torch"):
        return f"{path}.{name if owner is None else 'torch'}"
    missing = [method for method in (start, stop, _BATCH) if not hasattr(owner, method)]
    if missing:
        return f"{name}.{missing[0]}"
    if not hasattr(getattr(owner, start), _MARK):
        setattr(owner, start, _around_start(getattr(owner, start), module, plan))
        setattr(owner, _BATCH, _around_batch(getattr(owner, _BATCH)))
    return None


def _around_start(start: Callable[..., Any], module: Any, plan: Plan) -> Callable[..., Any]:
    @functools.wraps(start)
    def start_profile(self: Any, *rest: Any, **named: Any) -> Any:
        torch, folder = module.torch, getattr(self, "torch_profiler_output_dir", None)
        module.torch = _Torch(torch, lambda *_rest, **_named: servers.RequestedCapture(plan, folder))
        try:
            return start(self, *rest, **named)
        finally:
            module.torch = torch

    setattr(start_profile, _MARK, True)
    return start_profile


def _around_batch(batch: Callable[..., Any]) -> Callable[..., Any]:
    # SGLang calls it before each batch. The first call in a capture ends no step, since no batch has run in it.
    @functools.wraps(batch)
    def profile_batch(self: Any, *rest: Any, **named: Any) -> Any:
        result = batch(self, *rest, **named)
        capture = getattr(self, "torch_profiler", None)
        if isinstance(capture, servers.RequestedCapture):
            if capture.in_batch:
                capture.step()
            capture.in_batch = True
        return result

    return profile_batch


class _Torch:
    """torch with another profiler, for one module and one call: nobody else sees it."""

    def __init__(self, torch: Any, profile: Callable[..., Any]):
        self._torch = torch
        self.profiler = _Profiler(torch.profiler, profile)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torch, name)


class _Profiler:
    def __init__(self, profiler: Any, profile: Callable[..., Any]):
        self._profiler, self.profile = profiler, profile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._profiler, name)
