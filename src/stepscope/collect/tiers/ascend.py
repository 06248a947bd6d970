# SPDX-License-Identifier: Apache-2.0
"""Ascend NPUs: the vendor's torch_npu collects, raw only, and we analyse. Not yet tested on hardware.

Only public names of torch_npu.profiler are called; tests use a stand-in that records the calls.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

from stepscope.collect import paths
from stepscope.collect.settings import Settings, Switches
from stepscope.collect.tiers.choice import TierReport
from stepscope.collect.tiers.driven import DrivenTier
from stepscope.errors import CaptureError

_FIELDS = {  # attribute in profiler_info.json -> parameter of torch_npu's _ExperimentalConfig
    "_profiler_level": "profiler_level", "_aic_metrics": "aic_metrics", "_l2_cache": "l2_cache", "_mstx": "mstx",
    "_data_simplification": "data_simplification", "record_op_args": "record_op_args", "_op_attr": "op_attr",
    "_gc_detect_threshold": "gc_detect_threshold", "_export_type": "export_type", "_host_sys": "host_sys",
    "_mstx_domain_include": "mstx_domain_include", "_mstx_domain_exclude": "mstx_domain_exclude",
    "_sys_io": "sys_io", "_sys_interconnection": "sys_interconnection",
}  # fmt: skip


def vendor() -> Any:
    """The real torch_npu, or None; our stand-in identifies itself by `STEPSCOPE_STAND_IN`."""
    if importlib.util.find_spec("torch_npu") is None:
        return None
    try:
        module = importlib.import_module("torch_npu")
    except ImportError:
        return None  # installed, but without its driver or toolkit
    return None if getattr(module, "STEPSCOPE_STAND_IN", False) else module


def available() -> bool:
    """Whether the real torch_npu is installed and sees a device."""
    module = vendor()
    return bool(module is not None and module.npu.is_available())


class AscendTier(DrivenTier):
    """Drives torch_npu.profiler.profile and takes over the folder it creates."""

    name = "ascend"
    streams = True

    def __init__(self, settings: Settings):
        super().__init__(settings)
        self._capture: Path | None = None

    def prepare(self, capture: Path) -> None:
        if self._profiler is not None:
            return
        module = vendor()
        if module is None:
            raise CaptureError("torch_npu is not installed", fix="install torch_npu, or record without ProfilerActivity.NPU")
        self._capture = capture
        names, switches = module.profiler, self._settings.switches
        self._profiler = names.profile(
            activities=[getattr(names.ProfilerActivity, name) for name in self._settings.activities],
            on_trace_ready=names.tensorboard_trace_handler(str(self._nest(capture)), analyse_flag=False),
            record_shapes=switches.record_shapes,
            profile_memory=switches.profile_memory,
            with_stack=switches.with_stack,
            with_modules=switches.with_modules,
            with_flops=switches.with_flops,
            experimental_config=names._ExperimentalConfig(**self._experimental()),
        )

    def start(self) -> None:
        self._profiler.start()
        self._started = True

    def stop(self) -> TierReport:
        profiler, started = self._detach()
        if not started:
            return TierReport()
        profiler.stop()
        return TierReport(info=self._take_over())

    def silence(self) -> None:
        """Not offered by the vendor's profiler: records go on until the next step."""

    def discard(self) -> None:
        profiler, started = self._detach()
        if started:
            profiler.stop()
        if self._capture is not None:
            shutil.rmtree(self._nest(self._capture), ignore_errors=True)

    def enable_child_thread(self, switches: Switches) -> None:
        vendor().profiler.profile.enable_profiler_in_child_thread(**vars(switches))

    def disable_child_thread(self) -> None:
        vendor().profiler.profile.disable_profiler_in_child_thread()

    def _experimental(self) -> dict[str, Any]:
        return {_FIELDS[name]: value for name, value in self._settings.experimental.items() if name in _FIELDS}

    @staticmethod
    def _nest(capture: Path) -> Path:
        return capture / ".torch_npu"

    def _take_over(self) -> dict[str, Any]:
        """Move the records of the vendor's capture into ours; its clocks and versions replace our own."""
        assert self._capture is not None
        nest, info = self._nest(self._capture), {}
        for made in sorted(nest.glob("*_ascend_pt")):
            for entry in made.iterdir():
                if entry.is_dir() and (entry.name == "FRAMEWORK" or entry.name.startswith("PROF_")):
                    entry.rename(self._capture / entry.name)
                elif entry.name.startswith("profiler_info"):
                    said = json.loads(entry.read_bytes())
                    info = {
                        key: said[key] for key in ("start_info", "end_info", "torch_npu_version", "cann_version") if key in said
                    }
        shutil.rmtree(nest, ignore_errors=True)
        paths.ensure_folder(self._capture)
        return info
