# SPDX-License-Identifier: Apache-2.0
"""What tiers that drive another package's profiler have in common."""

from __future__ import annotations

from typing import Any

from stepscope.collect.settings import Settings


class DrivenTier:
    stops_anywhere = False

    def __init__(self, settings: Settings):
        self._settings = settings
        self._profiler: Any = None
        self._started = False
        self._open: list[Any] = []

    def push(self, name: str) -> None:
        from torch.autograd.profiler import record_function

        range_ = record_function(name)
        range_.__enter__()
        self._open.append(range_)

    def pop(self) -> None:
        if self._open:
            self._open.pop().__exit__(None, None, None)

    def flush(self) -> None:
        """The other profiler decides when its records reach the disk."""

    def give_way(self) -> str | None:
        """Not possible: it uses the same place."""
        return None

    def take_back(self) -> None:
        """Nothing was given up."""

    def _detach(self) -> tuple[Any, bool]:
        """End open ranges, let go of the profiler and return it, with whether it runs."""
        detached = self._profiler, self._started
        self._profiler, self._started = None, False
        while self._open:
            self.pop()
        return detached
