# SPDX-License-Identifier: Apache-2.0
"""SGLang: /start_profile and /stop_profile record with stepscope if STEPSCOPE_PROFILE is set.

SGLang calls `load` in each of its processes (entry point `sglang.srt.plugins`). While its scheduler starts a profile, ours stands
where it takes torch's profiler from, so that everything else (steps to begin at, stages, memory snapshots) stays as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from typing import Any

from stepscope.integrations import servers
from stepscope.integrations.plan import Plan

_MODULE, _MIXIN = "sglang.srt.managers.scheduler_profiler_mixin", "SchedulerProfilerMixin"
_BATCH = "_profile_batch_predicate"
_MARK = "of_stepscope"


def load() -> None:
    servers.install("sglang", _patch)


def _patch(plan: Plan) -> str | None:
    try:
        module = import_module(_MODULE)
    except ModuleNotFoundError:
        return _MODULE
    mixin = getattr(module, _MIXIN, None)
    if mixin is None or not hasattr(module, "torch"):
        return f"{_MODULE}.{_MIXIN if mixin is None else 'torch'}"
    missing = [name for name in ("start_profile", "stop_profile", _BATCH) if not hasattr(mixin, name)]
    if missing:
        return f"{_MIXIN}.{missing[0]}"
    if not hasattr(mixin.start_profile, _MARK):
        mixin.start_profile = _around_start(mixin.start_profile, module, plan)
        setattr(mixin, _BATCH, _around_batch(getattr(mixin, _BATCH)))
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
