# SPDX-License-Identifier: Apache-2.0
"""Records steps of a script without profiling code: steps of its optimizer, or calls of its outermost module if it has none."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import sys
import time
from pathlib import Path
from typing import Any

from stepscope.collect import active, messages, metadata
from stepscope.dynamic_profile import module_calls, optimizer_steps
from stepscope.integrations.plan import Plan, parse
from stepscope.profiler.constants import ProfilerActivity, supported_activities
from stepscope.profiler.profiler import profile
from stepscope.profiler.scheduling import schedule

# The process that speaks for the job: the script, the launcher of its ranks, or what `stepscope run` became.
MAIN_PROCESS = "STEPSCOPE_PROFILE_PID"
_CLOCK_SECONDS = 1.0  # file systems stamp with a coarser clock


_prepared = False
_script: RecordedScript | None = None


def prepare(text: str, *, analyse: bool = False) -> None:
    """Wait for steps of this process and profile them; at its end say why, if there were none. Once in a process.

    Args:
        text: the plan; one that is not understood is a warning, and nothing is recorded.
        analyse: analyse captures unless the plan says otherwise.
    """
    global _prepared, _script
    if _prepared:
        return
    _prepared = True
    main_pid = os.environ.setdefault(MAIN_PROCESS, str(os.getpid()))
    try:
        plan = parse(text, analyse=analyse)
    except ValueError as problem:
        if str(os.getpid()) == main_pid:
            messages.warning(f"STEPSCOPE_PROFILE={text} is not understood, so nothing is recorded: {problem}")
        return
    rank = os.environ.get("RANK", "")
    if rank.isdigit() and not plan.records(int(rank)):
        _warn_if_nobody_records(plan, main_pid)
        return
    _script = RecordedScript(plan, main_pid)
    _script.watch()
    atexit.register(_script.end)


def stand_down() -> None:
    """Record nothing by counting calls: an inference server says itself what to record."""
    global _prepared
    _prepared = True
    if _script is not None:
        _script.stand_down()


class RecordedScript:
    """One process of a script; begins with the first outermost call of a module, and anew with the first optimizer.

    Args:
        plan: what to record.
        main_pid: the process that speaks for the job, as text; or rank 0 below it does.
    """

    def __init__(self, plan: Plan, main_pid: str):
        self._plan, self._main_pid = plan, main_pid
        self._handler = plan.handler()
        self._profiler: profile | None = None
        self._steps = 0
        self._optimizer_seen = False
        self._recorded = self._stood_down = self._left_out = False
        self._module = ""  # the class of the outermost module
        self._began = time.time()

    def watch(self) -> None:
        calls = optimizer_steps.Iterations(self._step)

        def after(module: Any) -> None:
            self._module = type(module).__name__
            calls.after_step(module)

        self._unwatch_modules = module_calls.watch(self._before_call, after)
        optimizer_steps.watch(self._optimizer_created, self._step)

    def stand_down(self) -> None:
        """Count no more steps, and say nothing at the end."""
        self._unwatch_modules()
        atexit.unregister(self.end)
        self._stood_down = True

    def end(self) -> None:
        """The process ends."""
        self._handler.background = False  # too late to start a thread
        self._stop()
        failed = self._steps > self._plan.first  # and has said why
        if not (self._recorded or failed or self._left_out) and self._speaks_for_the_script():
            messages.warning(f"nothing was recorded: {self._why_nothing()}")

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
        if self._stood_down:
            return
        warmup = min(self._plan.first, 1)
        if self._profiler is None and self._steps == self._plan.first - warmup:
            # Ray, and processes that the script starts itself, say the rank after they have imported torch.
            self._left_out = not self._plan.records(metadata.global_rank())
            if self._left_out:
                _warn_if_nobody_records(self._plan, self._main_pid)
                return
            steps = schedule(wait=0, warmup=warmup, active=self._plan.last - self._plan.first + 1, repeat=1)
            self._profiler = self._plan.profiler(self._handler, _devices_in_use(), steps)
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
        """Whether silence would leave the user without an answer."""
        return _speaks_for_the_job(self._main_pid) and not self._children_recorded()

    def _children_recorded(self) -> bool:
        captures = Path(self._plan.folder).glob("*_ascend_pt")
        return any(capture.stat().st_mtime > self._began - _CLOCK_SECONDS for capture in captures)


def _speaks_for_the_job(main_pid: str) -> bool:
    """Whether this process says what concerns the job: not launchers, children, and other ranks."""
    if multiprocessing.parent_process() is not None or _is_launcher():
        return False
    here = {os.getpid(), os.getppid()} if os.environ.get("RANK") else {os.getpid()}
    return main_pid in map(str, here) and os.environ.get("RANK", "0") == "0"


def _warn_if_nobody_records(plan: Plan, main_pid: str) -> None:
    size = os.environ.get("WORLD_SIZE", "" if "RANK" in os.environ else "1")
    if size.isdigit() and _speaks_for_the_job(main_pid) and (problem := plan.names_nobody(int(size))):
        messages.warning(problem)


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
