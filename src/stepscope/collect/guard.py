# SPDX-License-Identifier: Apache-2.0
"""The border to the training job: a fault of ours becomes one warning, never an exception in the loop."""

from __future__ import annotations

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

    def run(self, doing: str, work: Callable[..., Any], *arguments: Any) -> Any:
        """The result of `work`, or None when it failed or an earlier one did."""
        if self.blown:
            return None
        problem = _attempt(work, arguments)
        if not isinstance(problem, _Failed):
            return problem
        self.blown = True
        messages.warning(
            f"{doing} failed, the profiler is off from here on and training goes on: {type(problem.why).__name__}: {problem.why}"
        )
        _attempt(self._release, ())
        return None


def tolerated(doing: str, work: Callable[..., Any], *arguments: Any) -> Any:
    """The result of `work`; a fault is one warning and None, and the profiler stays on."""
    result = _attempt(work, arguments)
    if isinstance(result, _Failed):
        messages.warning(f"{doing} failed: {type(result.why).__name__}: {result.why}")
        return None
    return result


def quietly(work: Callable[..., Any], *arguments: Any) -> bool:
    """Whether `work` went well; for places where nobody can be told, such as interpreter shutdown."""
    return not isinstance(_attempt(work, arguments), _Failed)


class _Failed:
    def __init__(self, why: Exception):
        self.why = why


def _attempt(work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return work(*arguments)
    except Exception as why:  # noqa: BLE001 - the training loop border
        return _Failed(why)
