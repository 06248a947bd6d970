# SPDX-License-Identifier: Apache-2.0
"""The settings in MindSpore's profiler_info, under the names that torch_npu uses (docs/formats/mindspore.md 6)."""

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
    parameters = info.get("profiler_parameters")
    if not isinstance(parameters, Mapping):
        return None
    common = {name: parameters.get(name) for name in ("activities", "record_shapes", "profile_memory", "with_stack")}
    collector = info.get("collector")
    if isinstance(collector, Mapping) and isinstance(collector.get("activities"), list):
        common["activities"] = collector["activities"]  # of those requested, the ones that the machine supports
    common["schedule"] = parameters.get("schedule") if parameters.get("is_set_schedule", True) else None
    ignored = _without_effect(collector)
    parameters = {name: value for name, value in parameters.items() if name not in ignored}
    level, metrics = (str(parameters.get(name) or "") for name in ("profiler_level", "aic_metrics"))
    further = {f"_{name}": parameters.get(name) for name in _SAME}
    metrics = metrics or str(parameters.get("aicore_metrics") or "")
    return common, {**further, "_profiler_level": _LEVELS.get(level, level), "_aic_metrics": _METRICS.get(metrics, metrics)}


def _without_effect(collector: object) -> set[object]:
    """Settings that the machine could not follow, as our own collector notes them."""
    named = collector.get("without_effect") if isinstance(collector, Mapping) else None
    found: set[object] = set(named) if isinstance(named, list) else set()
    return found | {"aicore_metrics"} if "aic_metrics" in found else found


def rank(info: Json) -> object:
    """The rank, a number as text."""
    section = info.get("ms_profiler_info")
    return section.get("rank_id") if isinstance(section, Mapping) else None
