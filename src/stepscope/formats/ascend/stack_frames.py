# SPDX-License-Identifier: Apache-2.0
"""A call stack as the vendor's files hold it (docs/formats/outputs.md 3.1)."""

from __future__ import annotations

MODULE_PREFIX = "nn.Module: "


def file_frames(stack: str) -> list[str]:
    """The frames that are functions of files, innermost first; calls of modules have a layer of their own in the timeline."""
    frames = [frame.strip() for frame in stack.split(";")]
    return [frame for frame in frames if frame and not frame.startswith(MODULE_PREFIX)]


def frame_lines(stack: str) -> str:
    """A line for each frame."""
    return ";\r\n".join(file_frames(stack))
