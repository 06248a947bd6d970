# SPDX-License-Identifier: Apache-2.0
"""Lines on a job's standard error."""

from __future__ import annotations

import io
import sys

import pytest

from stepscope.collect import messages


def test_a_line_is_written_in_one_piece(monkeypatch: pytest.MonkeyPatch):
    written: list[str] = []

    class Unbuffered(io.StringIO):
        def write(self, text: str) -> int:
            written.append(text)
            return len(text)

    monkeypatch.setattr(sys, "stderr", Unbuffered())
    messages.info("a capture was made")
    (line,) = filter(None, written)
    assert line.endswith("] profiler.py: a capture was made\n")
