# SPDX-License-Identifier: Apache-2.0
"""vLLM: /start_profile and /stop_profile record with stepscope if STEPSCOPE_PROFILE is set.

vLLM calls `load` in each of its processes (entry point `vllm.general_plugins`). Our class takes the place of its wrapper around
torch's profiler, so that its delays and limits of iterations stay as they are.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

from stepscope.integrations import servers
from stepscope.integrations.plan import Plan

_MODULE, _WRAPPER, _BASE = "vllm.profiler.wrapper", "TorchProfilerWrapper", "WorkerProfiler"
_METHODS = ("_start", "_stop", "start", "stop", "step")


def load() -> None:
    servers.install("vllm", _patch)


def _patch(plan: Plan) -> str | None:
    try:
        module = import_module(_MODULE)
    except ModuleNotFoundError:
        return _MODULE
    base, known = getattr(module, _BASE, None), getattr(module, _WRAPPER, None)
    if base is None or known is None:
        return f"{_MODULE}.{_BASE if base is None else _WRAPPER}"
    missing = [name for name in _METHODS if not hasattr(base, name)]
    if missing:
        return f"{_BASE}.{missing[0]}"
    if not getattr(known, "of_stepscope", False):
        servers.replace_everywhere("vllm", _WRAPPER, known, _profiler_class(base, plan))
    return None


def _profiler_class(base: Any, plan: Plan) -> Any:
    class StepscopeProfiler(base):  # type: ignore[misc, unused-ignore]
        of_stepscope = True

        def __init__(self, profiler_config: Any, *rest: Any, **named: Any):
            super().__init__(profiler_config)
            self._capture = servers.RequestedCapture(plan, getattr(profiler_config, "torch_profiler_dir", None))

        def _start(self) -> None:
            self._capture.start()

        def _stop(self) -> None:
            self._capture.stop()

        def step(self) -> None:
            # The batch that ended belongs to the capture if that ran before it; a capture that ends here ends the step as well.
            recorded = self._capture.running
            super().step()
            if recorded:
                self._capture.step()

        def annotate_context_manager(self, name: str, *_metrics: Any, **_named: Any) -> AbstractContextManager[Any]:
            import torch

            marked: AbstractContextManager[Any] = torch.profiler.record_function(name)
            return marked

    return StepscopeProfiler
