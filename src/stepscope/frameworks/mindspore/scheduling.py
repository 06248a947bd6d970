# SPDX-License-Identifier: Apache-2.0
"""Which steps are recorded (docs/formats/mindspore.md 2.4)."""

from __future__ import annotations

import enum
from typing import Any

from stepscope.collect import messages
from stepscope.profiler import scheduling


class ProfilerAction(enum.Enum):
    NONE = 0
    WARM_UP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


class schedule:
    """Callable that returns the action of each step: `skip_first` idle ones, then cycles of wait, warmup and active.

    Args:
        wait: idle steps at the start of each cycle.
        active: recorded steps; the last one ends a capture.
        warmup: steps in which the profiler runs but keeps nothing; `warm_up` is the same.
        repeat: number of cycles; 0 repeats until training ends.
        skip_first: idle steps before the first cycle.
    """

    def __init__(
        self, *, wait: Any, active: Any, warmup: Any = None, repeat: Any = 0, skip_first: Any = 0, warm_up: Any = None
    ) -> None:
        if warmup is not None and warm_up is not None and warmup != warm_up:
            raise ValueError(f"warmup={warmup!r} and warm_up={warm_up!r} mean the same thing")
        given = warmup if warmup is not None else warm_up
        self.wait = _number("wait", wait, 0)
        self.active = _number("active", active, 1)
        self.warmup = _number("warmup", 0 if given is None else given, 0)
        self.repeat = _number("repeat", repeat, 0)
        self.skip_first = _number("skip_first", skip_first, 0)
        if not self.warmup:
            messages.warning("schedule: without a warmup step the first recorded step includes the cost of starting the profiler")
        self._cycles = scheduling.schedule(self.wait, self.active, self.warmup, self.repeat, self.skip_first)

    def __call__(self, step: int) -> ProfilerAction:
        """The action of a step.

        Raises:
            ValueError: the step is negative.
        """
        return ProfilerAction(self._cycles(step).value)

    def to_dict(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in ("wait", "active", "warmup", "repeat", "skip_first")}


def _number(name: str, value: Any, least: int) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return value
    messages.warning(f"schedule: {name}={value!r} is not a whole number from {least}; using {least}")
    return least
