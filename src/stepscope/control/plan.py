# SPDX-License-Identifier: Apache-2.0
"""At which step all ranks can begin together, without talking to each other."""

from __future__ import annotations

import math
from collections.abc import Sequence

from stepscope.control.board import AgedAnswer

# Steps ahead while a rank's speed is unknown, and the minimum in any case.
UNKNOWN_SPEED_STEPS, LEAST_STEPS = 10, 2


def lead_seconds(answers: Sequence[AgedAnswer]) -> float:
    """How long until every rank has read a request: two polls of the slowest one, and a second for the folder."""
    return 1.0 + 2 * max((aged.answer.poll_seconds for aged in answers), default=2.0)


def fastest_step(answers: Sequence[AgedAnswer], *, ahead_seconds: float = 0.0) -> int:
    """The step that the fastest rank has reached, or will reach in `ahead_seconds`; not before the end of a capture."""
    return max((_reached(aged, aged.age_seconds + ahead_seconds) for aged in answers), default=0)


def common_start(answers: Sequence[AgedAnswer], lead: float, progress: tuple[int, float] | None = None) -> int:
    """A step that no rank will have passed when it reads the request.

    Args:
        answers: of the ranks.
        lead: seconds until every rank has read the request.
        progress: the step of this moment and the seconds that a step takes, where somebody knows them.
    """
    if progress is not None and progress[1] > 0:
        # Better than answers that are carried on: these may be ten seconds old, and name the fastest speed.
        now = max(progress[0], *(aged.answer.step for aged in answers))
        ahead = max(now + math.ceil(lead / progress[1]), *(aged.answer.busy_until or 0 for aged in answers))
        return ahead + LEAST_STEPS
    ahead = fastest_step(answers, ahead_seconds=lead)
    if any(aged.answer.step_seconds is None for aged in answers):
        ahead = max(ahead, fastest_step(answers) + UNKNOWN_SPEED_STEPS)
    return ahead + LEAST_STEPS


def _reached(aged: AgedAnswer, seconds: float) -> int:
    """The step of one rank after some seconds; not before the end of its running capture."""
    pace = aged.answer.step_seconds
    return max(aged.answer.step + (math.ceil(seconds / pace) if pace else 0), aged.answer.busy_until or 0)
