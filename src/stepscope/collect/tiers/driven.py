# SPDX-License-Identifier: Apache-2.0
"""What tiers have in common that drive the profiler of another package: it is made, started, and taken once."""

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

        opened = record_function(name)
        opened.__enter__()
        self._open.append(opened)

    def pop(self) -> None:
        if self._open:
            self._open.pop().__exit__(None, None, None)

    def _take(self) -> tuple[Any, bool]:
        """The profiler, which is not ours from here on, and whether it runs; ranges that are open end."""
        taken = self._profiler, self._started
        self._profiler, self._started = None, False
        while self._open:
            self.pop()
        return taken
