# SPDX-License-Identifier: Apache-2.0
"""The profiler for MindSpore; see stepscope.frameworks.mindspore."""

from typing import Any

from stepscope.frameworks import mindspore as _framework
from stepscope.frameworks.mindspore import (
    AicoreMetrics,
    ExportType,
    HostSystem,
    Profiler,
    ProfilerAction,
    ProfilerActivity,
    ProfilerLevel,
    _ExperimentalConfig,
    profile,
    schedule,
    tensor_board_trace_handler,
    tensorboard_trace_handler,
)

__all__ = [
    "AicoreMetrics",
    "ExportType",
    "HostSystem",
    "Profiler",
    "ProfilerAction",
    "ProfilerActivity",
    "ProfilerLevel",
    "_ExperimentalConfig",
    "profile",
    "schedule",
    "tensor_board_trace_handler",
    "tensorboard_trace_handler",
]


def __getattr__(name: str) -> Any:
    return getattr(_framework, name)
