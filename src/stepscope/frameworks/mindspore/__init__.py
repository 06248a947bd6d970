# SPDX-License-Identifier: Apache-2.0
"""Profile a MindSpore training run: the names of mindspore.Profiler and mindspore.profiler.

from stepscope.mindspore import Profiler

profiler = Profiler()
model.train(1, data)
profiler.analyse()
"""

from typing import Any

from stepscope.collect.guard import warn_on_failure
from stepscope.frameworks.mindspore import environment, mstx
from stepscope.frameworks.mindspore.arguments import _ExperimentalConfig
from stepscope.frameworks.mindspore.constants import AicoreMetrics, ExportType, HostSystem, ProfilerActivity, ProfilerLevel
from stepscope.frameworks.mindspore.profiler import Profiler, profile, tensor_board_trace_handler
from stepscope.frameworks.mindspore.scheduling import ProfilerAction, schedule
from stepscope.profiler.handlers import tensorboard_trace_handler

__all__ = [
    "AicoreMetrics",
    "ExportType",
    "HostSystem",
    "Profiler",
    "ProfilerAction",
    "ProfilerActivity",
    "ProfilerLevel",
    "_ExperimentalConfig",
    "mstx",
    "profile",
    "schedule",
    "tensor_board_trace_handler",
    "tensorboard_trace_handler",
]


def __getattr__(name: str) -> Any:
    if name == "DynamicProfilerMonitor":  # a MindSpore callback, so MindSpore is imported only when this is used
        from stepscope.frameworks.mindspore.dynamic import DynamicProfilerMonitor

        return DynamicProfilerMonitor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


warn_on_failure(f"recording for {environment.VARIABLE}", environment.start)
