# SPDX-License-Identifier: Apache-2.0
"""The script's own torch.profiler while ours records: it must work, whatever ours has to give up for it.

torch has one place per thread for a profiler's state and raises when a second one comes. Its Python classes reach that place
through a few functions of their modules, so these are wrapped from start to stop.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from stepscope.collect.guard import warn_on_failure

_MODULES = ("torch.autograd.profiler", "torch.autograd.profiler_legacy")
_BEGIN = ("_prepare_profiler", "_enable_profiler", "_enable_profiler_legacy")
_END = ("_disable_profiler", "_disable_profiler_legacy")


class ForeignProfilers:
    """From `start` to `stop`, tells when the script starts a profiler of torch and when that ends.

    Args:
        before: called on the script's thread before its profiler starts.
        after: called there when it has ended.
    """

    def __init__(self, before: Callable[[], None], after: Callable[[], None]):
        self._before, self._after = before, after
        self._wrapped: list[tuple[Any, str, Any, Any]] = []

    def start(self) -> None:
        for module in filter(None, map(sys.modules.get, _MODULES)):
            for name in (*_BEGIN, *_END):
                original = getattr(module, name, None)
                if original is not None:
                    wrapper = self._begin(original) if name in _BEGIN else self._end(original)
                    setattr(module, name, wrapper)
                    self._wrapped.append((module, name, original, wrapper))

    def stop(self) -> None:
        wrapped, self._wrapped = self._wrapped, []
        for module, name, original, wrapper in wrapped:
            if getattr(module, name) is wrapper:  # else somebody has put a wrapper around ours, and keeps it
                setattr(module, name, original)

    def _begin(self, original: Any) -> Any:
        @functools.wraps(original)
        def begin(*arguments: Any, **named: Any) -> Any:
            if self._wrapped:
                warn_on_failure("making room for torch.profiler", self._before)
            return original(*arguments, **named)

        return begin

    def _end(self, original: Any) -> Any:
        @functools.wraps(original)
        def end(*arguments: Any, **named: Any) -> Any:
            result = original(*arguments, **named)
            if self._wrapped:
                warn_on_failure("recording on after torch.profiler", self._after)
            return result

        return end
