# SPDX-License-Identifier: Apache-2.0
"""One plan and thin hooks: record steps of a job from a trainer's callback, a variable, or a line in the loop.

Nothing here is imported before it is used; a module of a framework imports that framework.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepscope.integrations.plan import Plan, parse
    from stepscope.integrations.session import Session

__all__ = ["Plan", "Session", "parse"]

_MODULES = {"Plan": "plan", "Session": "session", "parse": "plan"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
