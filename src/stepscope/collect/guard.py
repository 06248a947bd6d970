# SPDX-License-Identifier: Apache-2.0
"""The border to the training job: a failure of ours becomes one warning, never an exception in the training loop."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

from stepscope.collect import messages


class Fuse:
    """Runs work for the training loop; the first fault switches the profiler off for good.

    Args:
        release: gives back what the profiler holds when the fuse blows; its own faults are not reported.
    """

    def __init__(self, release: Callable[[], None]):
        self.blown = False
        self._release = release

    def run(self, action: str, work: Callable[..., Any], *arguments: Any) -> Any:
        """The result of `work`, or None when it failed or an earlier one did."""
        if self.blown:
            return None
        problem = _outcome(work, arguments)
        if not isinstance(problem, _Failure):
            return problem
        self.blow(action, problem.why)
        return None

    def blow(self, action: str, why: Exception) -> None:
        """Switch off because `action` failed; `run` does so by itself."""
        self.blown = True
        messages.warning(f"{action} failed; the profiler is now off and training continues: {type(why).__name__}: {why}")
        _outcome(self._release, ())


def warn_on_failure(action: str, work: Callable[..., Any], *arguments: Any) -> Any:
    """The result of `work`; a failure gives one warning and None, and the profiler stays on."""
    result = _outcome(work, arguments)
    if isinstance(result, _Failure):
        messages.warning(f"{action} failed: {type(result.why).__name__}: {result.why}")
        return None
    return result


def show_users_fault(what: str, work: Callable[..., Any], *arguments: Any) -> Any:
    """The result of the user's own function; an exception of it is shown with its traceback, and None returned."""
    result = _outcome(work, arguments)
    if isinstance(result, _Failure):
        # From the user's frame on: the first two are ours.
        frames = result.why.__traceback__ and result.why.__traceback__.tb_next
        lines = traceback.format_exception(type(result.why), result.why, frames)
        messages.error(f"{what}\n{''.join(lines).rstrip()}")
        return None
    return result


def quietly(work: Callable[..., Any], *arguments: Any) -> bool:
    """Whether `work` succeeded; for places where no message can be shown, such as interpreter shutdown."""
    return not isinstance(_outcome(work, arguments), _Failure)


class _Failure:
    def __init__(self, why: Exception):
        self.why = why


def _outcome(work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return work(*arguments)
    except Exception as why:  # noqa: BLE001 - the training loop border
        return _Failure(why)
