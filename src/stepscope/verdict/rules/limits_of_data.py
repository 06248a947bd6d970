# SPDX-License-Identifier: Apache-2.0
"""What this capture cannot tell, and settings of its environment: no time of their own, shown as one strip."""

from __future__ import annotations

from collections.abc import Iterator

from stepscope.analysis import quality
from stepscope.verdict.case import Case, Draft
from stepscope.verdict.finding import Lack

# Variables that slow training down when left as they are, with the value that does.
SLOW_SETTINGS = {
    "ASCEND_GLOBAL_LOG_LEVEL": {"0", "1"},
    "ASCEND_LAUNCH_BLOCKING": {"1"},
    "CUDA_LAUNCH_BLOCKING": {"1"},
    "ASCEND_SLOG_PRINT_TO_STDOUT": {"1"},
    "TASK_QUEUE_ENABLE": {"0"},
    "HCCL_ALGO": {"level0:NA;level1:NA"},
    "ASCEND_ENHANCE_ENABLE": {"0"},
    "ACLNN_CACHE_LIMIT": {"0"},
    "HOST_CACHE_CAPACITY": {"0"},
    "NCCL_DEBUG": {"INFO", "TRACE"},
    "TORCH_DISTRIBUTED_DEBUG": {"DETAIL"},
}


def lacks(case: Case) -> list[Lack]:
    """Limits of the data, in the order of their weight."""
    found: list[Lack] = []
    losses = [one for one in quality.occurrences(case.tables.quality) if one.issue.severity == "loss"]
    if losses:
        found.append(Lack("lost-records", "lost", {"what": losses[0].sentence()}, limits=True))
    if not case.has_device:
        found.append(Lack("no-device", "device", limits=True))
    elif case.schedule is None:
        found.append(Lack("no-launches", "launches", limits=True))
    elif case.schedule.error > case.limit("general", "replay_error"):
        found.append(Lack("replay-error", "replay", {"error": case.schedule.error}, limits=True))
    if not case.tables.steps.height:
        found.append(Lack("no-steps", "steps", limits=True))
    elif case.count < 3:
        found.append(Lack("few-steps", "unsteady", {"steps": case.count}, limits=True))
    if case.simulated:
        found.append(Lack("modelled", "modelled", limits=True))
    elif case.has_device:
        queued = case.parts.sum_ns("idle.queued") / max(case.parts.total_ns, 1)
        unknown = case.parts.sum_ns("idle.unknown") / max(case.parts.total_ns, 1)
        if queued > case.limit("severity", "low"):
            found.append(Lack("queued", "queued", {"share": queued}, limits=True))
        if unknown > case.limit("severity", "low"):
            found.append(Lack("unknown", "unknown", {"share": unknown}, limits=True))
    if case.facts.with_stack or case.facts.level == "Level2":
        found.append(Lack("inflated", "inflated", limits=True))
    return found


# Settings of the allocator that cost time, as they occur inside a longer value.
SLOW_ALLOCATOR = {"PYTORCH_NPU_ALLOC_CONF": "expandable_segments:False", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False"}


def recorded(case: Case, lack: str) -> bool:
    """Whether a capture was recorded with what a rule found nothing of: then no switch is to be advised."""
    facts, tables = case.facts, case.tables
    detailed = facts.level in ("Level1", "Level2") or bool(tables.transfers.height or tables.kernel_metrics.height)
    switches = {
        "level1": detailed,
        "packets": detailed,
        "transfers": detailed,
        "links": detailed,
        "l2": facts.l2_cache or bool(tables.cache_rates.height),
        "metrics": bool(tables.kernel_metrics.height),
        "pipes": "PIPE" in facts.aic_metrics.upper(),
        "shapes": facts.record_shapes,
        "stack": facts.with_stack,
        "modules": facts.with_modules and facts.record_shapes,
        "flops": facts.with_flops,
        "memory": facts.profile_memory,
        "host-cpu": "cpu" in facts.host_sys,
        "api": bool(tables.api_calls.height),
    }
    return bool(switches.get(lack, False))


def environment(case: Case) -> Iterator[Draft]:
    variables = case.facts.metadata.get("ENV_VARIABLES") or case.facts.metadata.get("environment") or {}
    if not isinstance(variables, dict):
        return
    slow = [f"{name}={variables[name]}" for name, values in SLOW_SETTINGS.items() if str(variables.get(name)) in values]
    slow += [f"{name}={variables[name]}" for name, part in SLOW_ALLOCATOR.items() if part in str(variables.get(name))]
    if slow:
        yield Draft("environment", 0, "medium", "parts", severity="info", params={"settings": ", ".join(slow)})
