# SPDX-License-Identifier: Apache-2.0
"""Where records come from on this machine, with this MindSpore and these settings (docs/formats/mindspore.md 12)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from stepscope.collect import messages
from stepscope.frameworks.mindspore import dispatch, host_recorder
from stepscope.frameworks.mindspore.arguments import Parameters
from stepscope.frameworks.mindspore.cells import CellCalls
from stepscope.frameworks.mindspore.constants import ProfilerActivity, ProfilerLevel
from stepscope.frameworks.mindspore.mstx import UserMarks
from stepscope.frameworks.mindspore.redirect import stock

_ASCEND_ONLY = (
    "aic_metrics", "l2_cache", "hbm_ddr", "pcie", "parallel_strategy", "sys_io", "sys_interconnection", "host_sys",
)  # fmt: skip


class Source(Protocol):
    """Records between `start` and `stop` into a FRAMEWORK folder."""

    @property
    def name(self) -> str: ...

    def start(self, framework: Path) -> None: ...

    def stop(self) -> None: ...


class CpuKernels:
    """Kernels on the processor with their times, inputs and the allocator's curve: MindSpore's own CPU profiler."""

    name = "cpu_kernels"

    def __init__(self, *, memory: bool):
        self._memory = memory
        self._profiler: Any = None

    def start(self, framework: Path) -> None:
        from mindspore import _c_expression

        profiler = _c_expression.Profiler.get_instance("CPU")
        profiler.init(str(framework))
        profiler.step_profiling_enable(True)
        profiler.enable_op_time()
        if self._memory:
            profiler.enable_profile_memory()
        self._profiler = profiler

    def stop(self) -> None:
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            profiler.stop()


class DataPipeline:
    """Queues and processor shares of the input pipeline."""

    name = "data_pipeline"

    def __init__(self) -> None:
        self._manager: Any = None
        self._folder: Path | None = None

    def start(self, framework: Path) -> None:
        from mindspore import _c_dataengine

        manager = _c_dataengine.GlobalContext.profiling_manager()
        manager.init()
        manager.start()
        self._manager, self._folder = manager, framework

    def stop(self) -> None:
        manager, self._manager = self._manager, None
        if manager is not None:
            manager.stop()
            manager.save(str(self._folder))


class StockProfiler:
    """MindSpore's own profiler on an accelerator, for its raw records only. Not tested on a device."""

    name = "mindspore"

    def __init__(self, parameters: Parameters):
        self._parameters = parameters
        self._capture: Path | None = None
        self._profiler: Any = None
        self.vendor_info: dict[str, Any] = {}  # its own profiler_info

    def start(self, framework: Path) -> None:
        self._capture = framework.parent
        wanted = self._parameters
        arguments = {
            "activities": [getattr(stock("ProfilerActivity"), item.name) for item in wanted.activities],
            "profiler_level": getattr(stock("ProfilerLevel"), wanted.profiler_level.name),
            "aic_metrics": getattr(stock("AicoreMetrics"), wanted.aic_metrics.name),
            **{
                name: getattr(wanted, name)
                for name in (
                    "profile_memory", "with_stack", "l2_cache", "hbm_ddr", "pcie", "data_process", "parallel_strategy",
                    "sync_enable", "mstx", "record_shapes",
                )
            },
        }  # fmt: skip
        arguments["aicore_metrics"] = arguments["aic_metrics"]  # the keyword of older versions; the other one is ignored
        self._profiler = stock("Profiler")(output_path=str(self._nest), data_simplification=False, **arguments)

    def stop(self) -> None:
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            profiler.stop()
            self._take_over()

    @property
    def _nest(self) -> Path:
        assert self._capture is not None
        return self._capture / ".mindspore"

    def _take_over(self) -> None:
        """Move the records into our capture; with versions and clocks that only the other profiler knows."""
        assert self._capture is not None
        for made in sorted(self._nest.glob("*_ascend_ms")):
            for entry in sorted(made.iterdir()):
                if entry.is_dir() and entry.name.startswith("PROF_"):
                    entry.rename(self._capture / entry.name)
                elif entry.name == "FRAMEWORK":
                    for file in entry.iterdir():
                        file.replace(self._capture / "FRAMEWORK" / file.name)
                elif entry.name.startswith("profiler_info"):
                    self.vendor_info = json.loads(entry.read_bytes())
        shutil.rmtree(self._nest, ignore_errors=True)


def device_target() -> str:
    import mindspore

    return str(mindspore.get_context("device_target"))


def in_graph_mode() -> bool:
    import mindspore

    return bool(mindspore.get_context("mode") == mindspore.GRAPH_MODE)


def recorded(parameters: Parameters, target: str) -> tuple[ProfilerActivity, ...]:
    """The activities that this machine has."""
    here = {"Ascend": ProfilerActivity.NPU, "GPU": ProfilerActivity.GPU}.get(target)
    kept = tuple(item for item in parameters.activities if item in (ProfilerActivity.CPU, here))
    return kept or (ProfilerActivity.CPU,)


def without_effect(parameters: Parameters, target: str) -> list[str]:
    """Settings that differ from their defaults and that only another device could follow."""
    if target == "Ascend":
        return []
    found = [name for name in _ASCEND_ONLY if getattr(parameters, name) != getattr(Parameters, name)]
    if not parameters.sync_enable and target != "GPU":
        found.append("sync_enable")
    if ProfilerActivity.GPU in parameters.activities and target != "GPU":
        found.append("ProfilerActivity.GPU")
    return found


def choose(parameters: Parameters, target: str) -> Sequence[Source]:
    """The sources that record on this machine, in starting order."""
    marks = [UserMarks(parameters.mstx_domain_include, parameters.mstx_domain_exclude, on_device=target == "Ascend")]
    return [*_records(parameters, target), *(marks if parameters.mstx else ())]


def _records(parameters: Parameters, target: str) -> list[Source]:
    if target == "Ascend":
        return [StockProfiler(parameters)]
    if parameters.profiler_level is ProfilerLevel.LevelNone:
        return []  # marks only
    if target == "GPU":
        messages.once(messages.warning, "GPU kernels of MindSpore are not recorded; host events and steps are")
    found: list[Source] = []
    recorder = host_recorder.available()
    # In a graph the recorder's launches are the kernels; the CPU profiler would more than double the cost.
    if not recorder or not in_graph_mode() or parameters.profile_memory or parameters.record_shapes:
        found.append(CpuKernels(memory=parameters.profile_memory))
    if parameters.record_shapes and recorder and not in_graph_mode() and dispatch.available():
        found.append(dispatch.DispatchShapes())
    if parameters.data_process:
        found.append(DataPipeline())
    if recorder:
        found.append(host_recorder.HostRecorder(with_stack=parameters.with_stack))
    elif parameters.with_stack:
        messages.once(messages.warning, "with_stack needs MindSpore's host recorder; only calls of cells are recorded")
        found.append(CellCalls())
    return found
