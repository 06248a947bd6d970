# SPDX-License-Identifier: Apache-2.0
"""Marks alone: no operator is recorded, only marks, ranges and steps, cheap enough to leave on."""

from __future__ import annotations

from pathlib import Path

from stepscope.collect import messages, paths
from stepscope.collect.marks import api as marks
from stepscope.collect.marks.log import DEFAULT_DOMAIN, MarkLog
from stepscope.collect.settings import Switches
from stepscope.collect.tiers.choice import TierReport


class MarksOnlyTier:
    name = "marks"
    streams = True
    stops_anywhere = True

    def __init__(self, *, folder: bool = True) -> None:
        self._steps: list[int] = []
        self._folder = folder  # False: nothing is recorded here at all

    def prepare(self, capture: Path) -> None:
        if self._folder:
            paths.ensure_folder(capture / "FRAMEWORK")

    def start(self) -> None:
        self._steps.clear()

    def stop(self) -> TierReport:
        return TierReport()

    def silence(self) -> None:
        """`stop` may come from any thread, so this is never called."""

    def flush(self) -> None:
        """Marks have a file of their own."""

    def give_way(self) -> str | None:
        return ""  # torch's profiler is not used

    def take_back(self) -> None:
        """Nothing was given up."""

    def discard(self) -> None:
        self._steps.clear()

    def push(self, name: str) -> None:
        log = marks.current()
        if isinstance(log, MarkLog):
            self._steps.append(log.begin_step(name))

    def pop(self) -> None:
        log = marks.current()
        if isinstance(log, MarkLog) and self._steps:
            log.end(self._steps.pop(), DEFAULT_DOMAIN)

    def enable_child_thread(self, switches: Switches) -> None:
        messages.once(messages.info, "marks of all threads are recorded; operators are not, at Level_none")

    def disable_child_thread(self) -> None:
        """Nothing was enabled."""
