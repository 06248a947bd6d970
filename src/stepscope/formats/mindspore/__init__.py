# SPDX-License-Identifier: Apache-2.0
"""What MindSpore leaves in the FRAMEWORK folder of a capture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope.formats.mindspore.signs import is_mindspore, is_runtime_trace

if TYPE_CHECKING:
    from stepscope.tables import Tables

__all__ = ["is_mindspore", "is_runtime_trace", "read", "read_runtime_trace"]


def read(framework: Path, prof: Path | None, info: Mapping[str, Any], window: tuple[int | None, int | None]) -> Tables:
    """Everything in a FRAMEWORK folder; see `stepscope.formats.mindspore.tables.read`."""
    # Loaded when there is a capture of MindSpore; captures of other frameworks only ask whether they are one.
    from stepscope.formats.mindspore import tables

    return tables.read(framework, prof, info, window)


def read_runtime_trace(path: Path) -> Tables:
    """The trace of MindSpore's runtime; see `stepscope.formats.mindspore.runtime_trace.read`."""
    from stepscope.formats.mindspore import runtime_trace

    return runtime_trace.read(path)
