# SPDX-License-Identifier: Apache-2.0
"""At which step ranks that do not talk to each other can all begin."""

from __future__ import annotations

import math
from collections.abc import Sequence

from stepscope.control.board import Seen

# Steps ahead when a rank's speed is not known yet, and the least in any case.
UNKNOWN_SPEED_STEPS, LEAST_STEPS = 10, 2


def lead_seconds(answers: Sequence[Seen]) -> float:
    """How long until every rank has read a request: two looks of the slowest one, and a second for the folder."""
    return 1.0 + 2 * max((seen.answer.poll_seconds for seen in answers), default=2.0)


def fastest_step(answers: Sequence[Seen], *, ahead_seconds: float = 0.0) -> int:
    """The step that the fastest rank has reached by now, or will have in some seconds; not before the end of a capture."""
    return max((_reached(seen, seen.age_seconds + ahead_seconds) for seen in answers), default=0)


def common_start(answers: Sequence[Seen], lead: float) -> int:
    """A step that no rank has passed when it reads of it."""
    ahead = fastest_step(answers, ahead_seconds=lead)
    if any(seen.answer.step_seconds is None for seen in answers):
        ahead = max(ahead, fastest_step(answers) + UNKNOWN_SPEED_STEPS)
    return ahead + LEAST_STEPS


def _reached(seen: Seen, seconds: float) -> int:
    """The step of one rank after some seconds; while a capture runs nothing can begin before its end."""
    pace = seen.answer.step_seconds
    return max(seen.answer.step + (math.ceil(seconds / pace) if pace else 0), seen.answer.busy_until or 0)
