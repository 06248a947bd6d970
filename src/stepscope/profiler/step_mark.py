# SPDX-License-Identifier: Apache-2.0
"""The mark around the step that runs."""

from __future__ import annotations

from typing import Protocol


class StepRecorder(Protocol):
    def push_step(self, name: str) -> None: ...

    def pop_step(self) -> None: ...


class StepMark:
    """At most one is open."""

    def __init__(self) -> None:
        self._open = False

    def begin(self, recording: StepRecorder, number: int) -> None:
        recording.push_step(f"ProfilerStep#{number}")
        self._open = True

    def end(self, recording: StepRecorder) -> None:
        if self._open:
            self._open = False
            recording.pop_step()
