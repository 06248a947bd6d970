# SPDX-License-Identifier: Apache-2.0
"""The settings in MindSpore's profiler_info, in the words of the other framework's (docs/formats/mindspore.md 6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]

_LEVELS = {"LevelNone": "Level_none"}
_METRICS = {
    "PipeUtilization": "ACL_AICORE_PIPE_UTILIZATION",
    "ArithmeticUtilization": "ACL_AICORE_ARITHMETIC_UTILIZATION",
    "Memory": "ACL_AICORE_MEMORY_BANDWIDTH",
    "MemoryL0": "ACL_AICORE_L0B_AND_WIDTH",
    "MemoryUB": "ACL_AICORE_MEMORY_UB",
    "ResourceConflictRatio": "ACL_AICORE_RESOURCE_CONFLICT_RATIO",
    "L2Cache": "ACL_AICORE_L2_CACHE",
    "MemoryAccess": "ACL_AICORE_MEMORY_ACCESS",
    "None": "ACL_AICORE_NONE",
}
_SAME = ("data_simplification", "l2_cache", "mstx", "sys_io", "sys_interconnection", "host_sys", "export_type")


def sections(info: Json) -> tuple[Json, Json] | None:
    """The common and the further settings; None when the file is not MindSpore's."""
    given = info.get("profiler_parameters")
    if not isinstance(given, Mapping):
        return None
    common = {name: given.get(name) for name in ("activities", "record_shapes", "profile_memory", "with_stack")}
    collector = info.get("collector")
    if isinstance(collector, Mapping) and isinstance(collector.get("activities"), list):
        common["activities"] = collector["activities"]  # what the machine had of what was asked for
    common["schedule"] = given.get("schedule") if given.get("is_set_schedule", True) else None
    level, metrics = (str(given.get(name) or "") for name in ("profiler_level", "aic_metrics"))
    further = {f"_{name}": given.get(name) for name in _SAME}
    metrics = metrics or str(given.get("aicore_metrics") or "")
    return common, {**further, "_profiler_level": _LEVELS.get(level, level), "_aic_metrics": _METRICS.get(metrics, metrics)}


def rank(info: Json) -> object:
    """The rank, a number as text."""
    told = info.get("ms_profiler_info")
    return told.get("rank_id") if isinstance(told, Mapping) else None
