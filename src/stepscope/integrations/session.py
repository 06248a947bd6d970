# SPDX-License-Identifier: Apache-2.0
"""Steps of a loop that somebody else counts: begin, step, end. Nothing here raises into the loop.

Steps keep the numbers of the trainer, also after a resume: a plan of steps 10 to 12 that begins at step 11 records 11 and 12.
"""

from __future__ import annotations

import os
from types import TracebackType

from stepscope.collect import messages
from stepscope.collect.guard import Fuse, warn_on_failure
from stepscope.integrations.plan import Plan, parse
from stepscope.profiler.profiler import profile
from stepscope.profiler.scheduling import schedule


class Session:
    """Records the steps of a plan; usable as a context manager.

    Args:
        plan: a Plan, or its text such as "steps=10:12,memory,out=runs"; a wrong one is a warning, and nothing is recorded.
    """

    def __init__(self, plan: Plan | str):
        self._plan = _read(plan) if isinstance(plan, str) else plan
        self._profiler: profile | None = None
        self._fuse = Fuse(self._release)
        self._waits = False  # for steps of the plan
        self._first = self._steps = 0

    def begin(self, step: int = 0, rank: int | None = None) -> None:
        """The loop begins.

        Args:
            step: the number of its first step; not 0 after a resume.
            rank: the rank of this process; default: that of the environment.
        """
        self._fuse.run("beginning the session", self._begin, step, rank)

    def step(self) -> None:
        """A step ended."""
        if self._waits:
            self._fuse.run("ending a step", self._step)

    def end(self) -> None:
        """The loop ended, or failed; what was recorded is kept, and a plan that was never reached is said."""
        if self._waits:
            self._waits = False
            self._fuse.run("ending the session", self._end)

    def __enter__(self) -> Session:
        self.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.end()

    def _begin(self, step: int, rank: int | None) -> None:
        plan = self._plan
        if plan is None or self._waits:
            return
        rank = _rank() if rank is None else rank
        if not plan.records(rank):
            size = os.environ.get("WORLD_SIZE", "")
            if rank == 0 and size.isdigit() and (problem := plan.names_nobody(int(size))):
                messages.warning(problem)
            return
        if step > plan.last:
            messages.warning(f"nothing is recorded: the loop begins at step {step}, {_steps_of(plan)}")
            return
        skip = max(plan.first - step, 0)
        warmup = min(skip, 1)
        active = plan.last - max(plan.first, step) + 1
        steps = schedule(wait=0, warmup=warmup, active=active, repeat=1, skip_first=skip - warmup)
        self._profiler = plan.profiler(plan.handler(), None, steps)
        self._profiler.first_step = self._first = step
        self._steps, self._waits = 0, True
        self._profiler.start()

    def _step(self) -> None:
        assert self._profiler is not None
        assert self._plan is not None
        self._steps += 1
        self._profiler.step()
        if self._first + self._steps > self._plan.last:
            self._waits = False
            self._profiler.stop()

    def _end(self) -> None:
        assert self._profiler is not None
        assert self._plan is not None
        if self._first + self._steps > self._plan.first:
            self._profiler.stop()
        else:
            self._profiler.discard()
            first = f" from step {self._first} on" if self._first else ""
            messages.warning(f"nothing was recorded: {self._steps} steps ran{first}, {_steps_of(self._plan)}")

    def _release(self) -> None:
        self._waits = False
        if self._profiler is not None:
            warn_on_failure("discarding the capture", self._profiler.discard)


def _read(text: str) -> Plan | None:
    try:
        return parse(text)
    except ValueError as problem:
        messages.warning(f"the plan {text!r} is not understood, so nothing is recorded: {problem}")
        return None


def _steps_of(plan: Plan) -> str:
    return f"but the plan waits for steps {plan.first} to {plan.last}, counted from 0"


def _rank() -> int:
    rank = os.environ.get("RANK", "")
    return int(rank) if rank.isdigit() else 0
