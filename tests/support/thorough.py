# SPDX-License-Identifier: Apache-2.0
"""How many damages a run tries: all of them with STEPSCOPE_THOROUGH set (`make soak`), else every n-th."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")
THOROUGH = bool(os.environ.get("STEPSCOPE_THOROUGH"))


def some(items: Sequence[Item], every: int) -> Sequence[Item]:
    """All of them in a thorough run, else every n-th, the first and the last among them."""
    return items if THOROUGH or len(items) < 2 else [*items[:-1:every], items[-1]]


def examples(count: int) -> int:
    """How many examples of a property are tried; `make fuzz` looks for more of them than any test."""
    return count if THOROUGH else count // 3
