# SPDX-License-Identifier: Apache-2.0
"""Profile a PyTorch training or inference run: the names of torch_npu.profiler, on NPU, GPU or CPU.

with stepscope.profiler.profile(
    schedule=stepscope.profiler.schedule(wait=1, warmup=1, active=2, repeat=1),
    on_trace_ready=stepscope.profiler.tensorboard_trace_handler("./result"),
) as prof:
    for batch in batches:
        train(batch)
        prof.step()
"""

from stepscope.profiler import profiler
from stepscope.profiler.constants import (
    AiCMetrics,
    ExportType,
    HostSystem,
    ProfilerAction,
    ProfilerActivity,
    ProfilerLevel,
    supported_activities,
    supported_ai_core_metrics,
    supported_export_type,
    supported_profiler_level,
)
from stepscope.profiler.experimental import _ExperimentalConfig
from stepscope.profiler.handlers import tensorboard_trace_handler
from stepscope.profiler.profiler import _KinetoProfile, analyse, profile
from stepscope.profiler.scheduling import schedule

__all__ = [
    "AiCMetrics",
    "ExportType",
    "HostSystem",
    "ProfilerAction",
    "ProfilerActivity",
    "ProfilerLevel",
    "_ExperimentalConfig",
    "_KinetoProfile",
    "analyse",
    "profile",
    "profiler",
    "schedule",
    "supported_activities",
    "supported_ai_core_metrics",
    "supported_export_type",
    "supported_profiler_level",
    "tensorboard_trace_handler",
]
