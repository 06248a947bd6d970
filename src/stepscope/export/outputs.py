# SPDX-License-Identifier: Apache-2.0
"""A file that a capture may get, and when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stepscope.tables import Facts, Tables

Writer = Callable[[Tables, Path], list[Path]]
Condition = Callable[[Facts], bool]


@dataclass(frozen=True)
class Output:
    """A writer, and whether the settings of a capture ask for its files. Without rows it writes none anyway."""

    write: Writer
    wanted: Condition = lambda facts: True
