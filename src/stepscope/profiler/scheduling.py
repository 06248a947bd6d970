# SPDX-License-Identifier: Apache-2.0
"""Which steps are recorded (docs/formats/profiler-api.md 7)."""

from __future__ import annotations

from typing import Any

from stepscope.collect import messages
from stepscope.profiler.constants import ProfilerAction

TO_THE_END = 1_000_000  # active steps by which trainers say that recording ends with training


class schedule:
    """Callable that returns the action of each step: `skip_first` idle ones, then cycles of wait, warmup and active.

    Args:
        wait: idle steps at the start of each cycle.
        active: recorded steps; the last one ends a capture.
        warmup: steps in which the profiler runs but keeps nothing.
        repeat: number of cycles; 0 repeats until training ends.
        skip_first: idle steps before the first cycle.
        skip_first_wait: leave out `wait` in the first cycle.
    """

    def __init__(
        self, wait: int, active: int, warmup: int = 0, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
    ) -> None:
        self.wait = _number("wait", wait, least=0)
        self.active = _number("active", active, least=1)
        self.warmup = _number("warmup", warmup, least=0)
        self.repeat = _number("repeat", repeat, least=0)
        self.skip_first = _number("skip_first", skip_first, least=0)
        self.skip_first_wait = _number("skip_first_wait", skip_first_wait, least=None)

    def __call__(self, step: int) -> ProfilerAction:
        if step < 0:
            raise ValueError(f"steps are numbered from 0, not {step}")
        if step < self.skip_first:
            return ProfilerAction.NONE
        step = self._in_cycles(step)
        if self._over(step):
            return ProfilerAction.NONE
        step %= self._cycle
        if step < self.wait:
            return ProfilerAction.NONE
        if step < self.wait + self.warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if step < self._cycle - 1 else ProfilerAction.RECORD_AND_SAVE

    @property
    def first_recorded(self) -> int:
        """The first step that is recorded."""
        return self.skip_first + (0 if self.skip_first_wait else self.wait) + self.warmup

    def describe_first(self) -> str:
        """The first recorded step and how it comes about: `step 4 (skip_first 2 + wait 1 + warmup 1)`."""
        parts = {"skip_first": self.skip_first, "wait": 0 if self.skip_first_wait else self.wait, "warmup": self.warmup}
        terms = " + ".join(f"{name} {value}" for name, value in parts.items() if value)
        return f"step {self.first_recorded}" + (f" ({terms})" if terms else "")

    @property
    def to_the_end(self) -> bool:
        """Whether training is meant to end while its steps are recorded."""
        return self.active >= TO_THE_END

    def exhausted(self, step: int) -> bool:
        """Whether no step from this one on is recorded."""
        return step >= self.skip_first and self._over(self._in_cycles(step))

    @property
    def _cycle(self) -> int:
        return self.wait + self.warmup + self.active

    def _in_cycles(self, step: int) -> int:
        return step - self.skip_first + (self.wait if self.skip_first_wait else 0)

    def _over(self, step: int) -> bool:
        return self.repeat > 0 and step >= self.repeat * self._cycle


def always_record(step: int) -> ProfilerAction:
    """The schedule of a profiler without one."""
    del step
    return ProfilerAction.RECORD


def _number(name: str, value: Any, *, least: int | None) -> int:
    if isinstance(value, int) and (least is None or value >= least):
        return value
    default = least or 0
    messages.warning(
        f"schedule: {name}={value!r} is not a whole number{'' if least is None else f' from {least}'}; using {default}"
    )
    return default
