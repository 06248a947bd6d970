# SPDX-License-Identifier: Apache-2.0
"""Independent work on tables at the same time: numpy, polars and file reads let other threads run."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

First = TypeVar("First")
Second = TypeVar("Second")


def side_by_side(first: Callable[[], First], second: Callable[[], Second], *, parallel: bool = True) -> tuple[First, Second]:
    """The results of both; without `parallel` one after the other, which needs less memory."""
    if not parallel:
        return first(), second()
    with ThreadPoolExecutor(1) as beside:
        coming = beside.submit(second)
        return first(), coming.result()
