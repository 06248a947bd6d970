# SPDX-License-Identifier: Apache-2.0
"""Ascend NPUs: the vendor's torch_npu collects, raw only, and we analyse. Not yet tested on hardware.

Only public names of torch_npu.profiler are called. Tests use a stand-in that records the calls, and the Python sources of real
packages with their native part replaced (tests/vendor).
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import shutil
from pathlib import Path
from typing import Any

from stepscope.collect import messages, paths
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
_MARKS, _OLD_MARKS = "mstx", "msprof_tx"  # the second is the name before torch_npu 2.7.1
_OFF: tuple[object, ...] = (False, None, [], ())


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


def _version(module: Any) -> str:
    return str(getattr(module, "__version__", "of this version"))


class AscendTier(DrivenTier):
    """Drives torch_npu.profiler.profile and takes over the folder it creates."""

    name = "ascend"
    streams = True

    def give_way(self) -> str | None:
        return ""  # the vendor's profiler has a place of its own

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
            experimental_config=names._ExperimentalConfig(**self._experimental(names)),
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
        module = vendor()
        enable = getattr(module.profiler.profile, "enable_profiler_in_child_thread", None)
        if enable is None:
            messages.once(messages.warning, f"torch_npu {_version(module)} does not record operators of child threads")
        else:
            enable(**vars(switches))

    def disable_child_thread(self) -> None:
        disable = getattr(vendor().profiler.profile, "disable_profiler_in_child_thread", None)
        if disable is not None:
            disable()

    def _experimental(self, names: Any) -> dict[str, Any]:
        """Keywords for the vendor's `_ExperimentalConfig`: those that its version knows; others are named once if they are set."""
        given = self._settings.experimental
        wanted = {_FIELDS[name]: value for name, value in given.items() if name in _FIELDS}
        wanted[_MARKS] = bool(wanted.get(_MARKS) or given.get("_msprof_tx"))
        # Raw data are the same for all exports, but torch_npu refuses op_attr without a database.
        wanted["export_type"] = names.ExportType.Db if wanted.get("op_attr") else names.ExportType.Text
        known = inspect.signature(names._ExperimentalConfig).parameters
        if _MARKS not in known:
            wanted[_OLD_MARKS] = wanted.pop(_MARKS)
        missing = [name for name, value in wanted.items() if name not in known and value not in _OFF]
        if missing:
            text = f"torch_npu {_version(vendor())} does not know {', '.join(missing)}: not recorded; update torch_npu"
            messages.once(messages.warning, text)
        return {name: value for name, value in wanted.items() if name in known}

    @staticmethod
    def _nest(capture: Path) -> Path:
        return capture / ".torch_npu"

    def _take_over(self) -> dict[str, Any]:
        """Move the records of the vendor's capture into ours; its clocks and versions replace our own."""
        assert self._capture is not None
        nest, info = self._nest(self._capture), {}
        for made in sorted(nest.glob("*_ascend_pt")):
            for entry in made.iterdir():
                if entry.is_dir() and entry.name.startswith("PROF_"):
                    entry.rename(self._capture / entry.name)
                elif entry.is_dir() and entry.name == "FRAMEWORK":
                    # Ours holds files of our own by now, such as pauses of the garbage collector.
                    paths.ensure_folder(self._capture / entry.name)
                    for file in entry.iterdir():
                        file.rename(self._capture / entry.name / file.name)
                elif entry.name.startswith("profiler_info"):
                    said = json.loads(entry.read_bytes())
                    info = {
                        key: said[key] for key in ("start_info", "end_info", "torch_npu_version", "cann_version") if key in said
                    }
        shutil.rmtree(nest, ignore_errors=True)
        paths.ensure_folder(self._capture)
        return info
