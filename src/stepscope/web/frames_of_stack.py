# SPDX-License-Identifier: Apache-2.0
"""A call stack as frames that a page can link to."""

from __future__ import annotations

import re
from typing import Any

_FRAME = re.compile(r"^(?P<file>.*)\((?P<line>\d+)\): (?P<function>.*)$")


def stack_frames(stack: str | None) -> list[dict[str, Any]]:
    """Frames of a stack text (`;` between frames), innermost first."""
    frames = []
    for text in (part.strip() for part in (stack or "").split(";")):
        if text:
            match = _FRAME.match(text)
            place = (match["file"], int(match["line"]), match["function"]) if match else (None, None, text)
            frames.append({"text": text, **dict(zip(("file", "line", "function"), place, strict=True))})
    return frames
