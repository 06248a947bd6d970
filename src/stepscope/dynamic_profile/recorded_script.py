# SPDX-License-Identifier: Apache-2.0
"""Records steps of a script without profiling code: steps of its optimizer, or calls of its outermost module if it has none."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from pathlib import Path
from typing import Any, Protocol

from stepscope.collect import active, messages
from stepscope.dynamic_profile import module_calls, optimizer_steps
from stepscope.profiler.constants import ProfilerActivity, supported_activities
from stepscope.profiler.handlers import TraceHandler, tensorboard_trace_handler
from stepscope.profiler.profiler import profile

_CLOCK_SECONDS = 1.0  # file systems stamp with a coarser clock


class Window(Protocol):
    """What to record, and where to put it."""

    @property
    def first(self) -> int: ...
    @property
    def last(self) -> int: ...
    @property
    def folder(self) -> str: ...
    def profiler(self, handler: TraceHandler, activities: list[ProfilerActivity], warmup: int) -> profile: ...


class RecordedScript:
    """One process of a script; begins with the first outermost call of a module, and anew with the first optimizer.

    Args:
        plan: what to record.
        main_pid: the process that `stepscope run` became, as text; it, or rank 0 below it, speaks for the script.
    """

    def __init__(self, plan: Window, main_pid: str | None):
        self._plan, self._main_pid = plan, main_pid
        self._handler = tensorboard_trace_handler(plan.folder, async_mode=True)
        self._profiler: profile | None = None
        self._steps = 0
        self._optimizer_seen = False
        self._recorded = False
        self._module = ""  # the class of the outermost module
        self._began = time.time()

    def watch(self) -> None:
        calls = optimizer_steps.Iterations(self._step)

        def after(module: Any) -> None:
            self._module = type(module).__name__
            calls.after_step(module)

        self._unwatch_modules = module_calls.watch(self._before_call, after)
        optimizer_steps.watch(self._optimizer_created, self._step)

    def end(self) -> None:
        """The process ends."""
        self._handler.background = False  # too late to start a thread
        self._stop()
        if not self._recorded and self._speaks_for_the_script():
            messages.warning(f"--profile recorded nothing: {self._why_nothing()}")

    def _before_call(self) -> None:
        if self._steps == 0:
            self._begin_in_time()

    def _optimizer_created(self) -> None:
        """From here on steps are those of the optimizer; calls before it were a rehearsal, or another phase."""
        if not self._optimizer_seen:
            self._optimizer_seen = True
            self._unwatch_modules()
            self._stop()
            self._steps, self._profiler = 0, None
            self._begin_in_time()

    def _step(self) -> None:
        self._steps += 1
        if self._profiler is None:
            self._begin_in_time()
        elif self._steps <= self._plan.last + 1:
            self._profiler.step()
            if self._steps == self._plan.last + 1:
                self._stop()

    def _begin_in_time(self) -> None:
        warmup = min(self._plan.first, 1)
        if self._profiler is None and self._steps == self._plan.first - warmup:
            self._profiler = self._plan.profiler(self._handler, _devices_in_use(), warmup)
            self._profiler.first_step = self._steps
            self._profiler.start()

    def _stop(self) -> None:
        if self._profiler is not None and active.running() is self._profiler:
            if self._steps > self._plan.first:
                self._recorded = True
                self._profiler.stop()
            else:
                self._profiler.discard()  # no step has ended since recording began

    def _why_nothing(self) -> str:
        begins = f"steps={self._plan.first}:{self._plan.last} begins at step {self._plan.first}, counted from 0"
        if self._optimizer_seen:
            found = f"the script made {self._steps} optimizer steps"
        elif self._steps:
            found = f"the script created no optimizer, and called its outermost module ({self._module}) {self._steps} times"
        else:
            return (
                "the script created no torch.optim.Optimizer and called no torch.nn.Module, so it has no steps that could be "
                "counted; call stepscope.profiler.profile in it"
            )
        return f"{begins}, but {found}; choose earlier steps, or let it run longer"

    def _speaks_for_the_script(self) -> bool:
        """Whether silence would leave the user without an answer: not in launchers, children, and other ranks."""
        if multiprocessing.parent_process() is not None or _is_launcher():
            return False
        here = os.getppid() if os.environ.get("RANK") else os.getpid()
        return str(here) == self._main_pid and os.environ.get("RANK", "0") == "0" and not self._children_recorded()

    def _children_recorded(self) -> bool:
        captures = Path(self._plan.folder).glob("*_ascend_pt")
        return any(capture.stat().st_mtime > self._began - _CLOCK_SECONDS for capture in captures)


def _devices_in_use() -> list[ProfilerActivity]:
    """The CPU, and the devices that hold something by now: a script on the CPU does not need the simulated NPU's lanes."""
    import torch

    supported = supported_activities()
    chosen = [ProfilerActivity.CPU]
    if ProfilerActivity.CUDA in supported and torch.cuda.is_initialized():
        chosen.append(ProfilerActivity.CUDA)
    if ProfilerActivity.NPU in supported and ("torch_npu" in sys.modules or _npu_holds_memory()):
        chosen.append(ProfilerActivity.NPU)
    return chosen


def _npu_holds_memory() -> bool:
    import torch

    npu: Any = getattr(torch, "npu", None)
    return npu is not None and any(npu.max_memory_allocated(number) for number in range(npu.device_count()))


def _is_launcher() -> bool:
    name = getattr(getattr(sys.modules.get("__main__"), "__spec__", None), "name", "") or ""
    return name.startswith("torch.distributed.") or Path(sys.argv[0]).name == "torchrun"
