# SPDX-License-Identifier: Apache-2.0
"""Words that users pass to the profiler (docs/formats/profiler-api.md 15, 16); plain strings except the two enums."""

from __future__ import annotations

import enum
import os

from stepscope.collect import simulated
from stepscope.collect.tiers import ascend


class ProfilerActivity(enum.Enum):
    """Sides of the machine that can be recorded."""

    CPU = 0
    NPU = 1
    CUDA = 2


class ProfilerAction(enum.Enum):
    """What the profiler does during one step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


class ProfilerLevel:
    Level0 = "Level0"
    Level1 = "Level1"
    Level2 = "Level2"
    Level_none = "Level_none"


class AiCMetrics:
    PipeUtilization = "ACL_AICORE_PIPE_UTILIZATION"
    ArithmeticUtilization = "ACL_AICORE_ARITHMETIC_UTILIZATION"
    Memory = "ACL_AICORE_MEMORY_BANDWIDTH"
    MemoryL0 = "ACL_AICORE_L0B_AND_WIDTH"
    MemoryUB = "ACL_AICORE_MEMORY_UB"
    ResourceConflictRatio = "ACL_AICORE_RESOURCE_CONFLICT_RATIO"
    L2Cache = "ACL_AICORE_L2_CACHE"
    MemoryAccess = "ACL_AICORE_MEMORY_ACCESS"
    AiCoreNone = "ACL_AICORE_NONE"


class ExportType:
    Text = "text"
    Db = "db"


class HostSystem:
    CPU = "cpu"
    MEM = "mem"
    DISK = "disk"
    NETWORK = "network"
    OSRT = "osrt"
    NUMA = "numa"


def values(holder: type) -> set[str]:
    """The words of one of the classes above."""
    return {value for name, value in vars(holder).items() if not name.startswith("_")}


def supported_activities() -> set[ProfilerActivity]:
    """The activities that this machine can record."""
    from importlib.util import find_spec

    found = {ProfilerActivity.CPU}
    if find_spec("torch") is not None:
        import torch

        # Scripts may have made torch.cuda an alias of torch.npu.
        if torch.backends.cuda.is_built() and torch.cuda.is_available():
            found.add(ProfilerActivity.CUDA)
    if simulated.available() or ascend.available() or os.environ.get("STEPSCOPE_COLLECTOR") == "ascend":
        found.add(ProfilerActivity.NPU)
    return found


def supported_profiler_level() -> set[str]:
    return values(ProfilerLevel)


def supported_ai_core_metrics() -> set[str]:
    return values(AiCMetrics)


def supported_export_type() -> set[str]:
    return values(ExportType)
