# SPDX-License-Identifier: Apache-2.0
"""Outermost calls of modules: what is repeated in a script that has no optimizer."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from stepscope.dynamic_profile.optimizer_steps import compiling_check


def watch(before: Callable[[], None], after: Callable[[Any], None]) -> Callable[[], None]:
    """Call `before()` and `after(module)` around each outermost call of a module that is not a loss.

    Returns:
        A function that ends it.
    """
    from torch.nn import Module
    from torch.nn.modules.loss import _Loss

    is_compiling = compiling_check()
    call = Module.__call__
    inside = threading.local()

    @functools.wraps(call)
    def watched(self: Any, *arguments: Any, **options: Any) -> Any:
        if is_compiling() or getattr(inside, "call", False) or isinstance(self, _Loss):
            return call(self, *arguments, **options)
        inside.call = True
        try:
            before()
            result = call(self, *arguments, **options)
        finally:
            inside.call = False
        after(self)
        return result

    def end() -> None:
        if Module.__call__ is watched:  # else somebody has wrapped it again, and calls through
            Module.__call__ = call

    Module.__call__ = watched
    return end
