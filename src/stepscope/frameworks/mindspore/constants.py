# SPDX-License-Identifier: Apache-2.0
"""Words that users pass to the profiler (docs/formats/mindspore.md 4)."""

from __future__ import annotations

import enum
from typing import Any, TypeVar


class ProfilerLevel(enum.Enum):
    LevelNone = "LevelNone"
    Level0 = "Level0"
    Level1 = "Level1"
    Level2 = "Level2"


class ProfilerActivity(enum.Enum):
    NPU = "NPU"
    GPU = "GPU"
    CPU = "CPU"


class AicoreMetrics(enum.Enum):
    PipeUtilization = "PipeUtilization"
    ArithmeticUtilization = "ArithmeticUtilization"
    Memory = "Memory"
    MemoryL0 = "MemoryL0"
    MemoryUB = "MemoryUB"
    ResourceConflictRatio = "ResourceConflictRatio"
    L2Cache = "L2Cache"
    MemoryAccess = "MemoryAccess"
    AiCoreNone = "None"


class ExportType(enum.Enum):
    Db = "db"
    Text = "text"


class HostSystem(enum.Enum):
    CPU = "cpu"
    MEM = "mem"
    DISK = "disk"
    NETWORK = "network"
    OSRT = "osrt"


Member = TypeVar("Member", bound=enum.Enum)


def member(kind: type[Member], value: Any) -> Member | None:
    """Our member for a value, which may be the one of the same name in MindSpore's own enum."""
    if isinstance(value, kind):
        return value
    if isinstance(value, enum.Enum) and type(value).__name__ == kind.__name__:
        return kind.__members__.get(value.name)
    return None
