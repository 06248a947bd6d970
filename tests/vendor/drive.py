# SPDX-License-Identifier: Apache-2.0
"""Run in a process of its own: our profiler drives the Python sources of a real torch_npu, whose native part is replaced.

`python drive.py SOURCES`, in the folder for captures; the last line of the output is JSON.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import json
import os
import sys
import types
from pathlib import Path
from typing import Any

CALLS: list[tuple[str, Any]] = []  # of the native part, in order


class ProfilerActivity(enum.Enum):
    CPU = 0
    NPU = 1


class _Noted:
    """A native class: keeps what it was made of."""

    def __init__(self, *arguments: Any, **options: Any):
        self.arguments, self.options = arguments, options


def native_profiler() -> types.ModuleType:
    """`torch_npu._C._profiler`: notes every call; starting leaves what the device's driver would leave."""
    module = types.ModuleType("torch_npu._C._profiler")
    module.ProfilerActivity = ProfilerActivity
    module.NpuProfilerConfig = type("NpuProfilerConfig", (_Noted,), {})
    module._ExperimentalConfig = type("_ExperimentalConfig", (_Noted,), {})
    answers = {
        "_supported_npu_activities": set(ProfilerActivity),
        "_get_freq": 100,
        "_get_syscnt_enable": True,
        "_get_syscnt": 5000,
    }
    folder: list[Path] = []

    def init(path: str, activities: Any) -> None:
        folder[:] = [Path(path)]
        (folder[0] / "FRAMEWORK").mkdir()

    def start(config: Any, activities: Any) -> None:
        settings = config.arguments[-1]
        names = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")
        CALLS.append(("config", {**dict(zip(names, config.arguments[1:6], strict=True)), **settings.options}))
        (folder[0] / "PROF_000001_20260101000000000_ABCDEFGH" / "host").mkdir(parents=True)

    return native(module, answers, {"_init_profiler": init, "_start_profiler": start})


def native(module: types.ModuleType | str, answers: dict[str, Any], effects: dict[str, Any] | None = None) -> types.ModuleType:
    """A module with every function that is asked of it; they note their calls."""
    module = types.ModuleType(module) if isinstance(module, str) else module

    def missing(name: str) -> Any:
        if not name.startswith("_") or name.startswith("__"):
            raise AttributeError(name)

        def call(*arguments: Any, **options: Any) -> Any:
            CALLS.append((name, [str(item) for item in arguments] + [str(item) for item in options.items()]))
            if effects and name in effects:
                effects[name](*arguments, **options)
            return answers.get(name, 0)

        return call

    module.__getattr__ = missing
    return module


class Stream:
    npu_stream, stream_id, device_index, device_type = 9, 1, 0, 20


class Event:
    record = wait = query = elapsed_time = synchronize = staticmethod(lambda *arguments: None)


def install(sources: Path) -> Any:
    """Make `torch_npu` these sources, without importing their native part."""
    import torch

    def package(name: str) -> Any:
        module = types.ModuleType(name)
        module.__path__ = [str(sources / name.replace(".", "/"))]
        module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        sys.modules[name] = module
        return module

    root, utils, npu = package("torch_npu"), package("torch_npu.utils"), package("torch_npu.npu")
    root.__version__ = sources.name
    root.utils, root.npu, root._C = utils, npu, types.ModuleType("torch_npu._C")
    root._C._profiler = native_profiler()
    sys.modules |= {"torch_npu._C": root._C, "torch_npu._C._profiler": root._C._profiler}
    utils.should_print_warning = utils._should_print_warning = lambda *arguments: True  # its name differs between versions
    utils.collect_env = types.ModuleType("torch_npu.utils.collect_env")
    utils.collect_env.get_cann_version = lambda: "8.5.0"
    utils.collect_env.get_torch_npu_version = lambda: sources.name
    sys.modules["torch_npu.utils.collect_env"] = utils.collect_env
    npu.is_available, npu._lazy_init, npu.Event = (lambda: True), (lambda: None), Event
    npu.synchronize, npu.current_stream = (lambda device=None: None), (lambda device=None: Stream())
    npu.streams = types.SimpleNamespace(Stream=Stream)
    root._C._mstx = native("torch_npu._C._mstx", {"_range_start_on_host": 7, "_range_start": 7})
    root._C._mark = root._C._mstx._mark_on_host  # its place before 2.6
    utils.utils = types.ModuleType("torch_npu.utils.utils")
    utils.utils._print_error_log, utils.utils._is_interactive_command_line = print, (lambda: False)
    sys.modules["torch_npu.utils.utils"] = utils.utils
    npu.mstx = importlib.import_module("torch_npu.npu.mstx").mstx  # the class takes the place of its module there too
    torch.npu = npu
    root.profiler = importlib.import_module("torch_npu.profiler")
    return root


def members(kind: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(kind).items() if not name.startswith("_")}


def parameters(function: Any) -> dict[str, str]:
    return {name: repr(item.default) for name, item in inspect.signature(function).parameters.items() if name != "self"}


def constructor(kind: type) -> dict[str, str]:
    """Keywords of a class and of those that it passes others on to."""
    inherited = [vars(base)["__init__"] for base in reversed(kind.__mro__) if "__init__" in vars(base) and base is not object]
    return {name: value for function in inherited for name, value in parameters(function).items()}


def describe(theirs: Any) -> dict[str, Any]:
    """The names that we call, as this version has them, and ours."""
    from stepscope import profiler as ours

    found = {}
    for side, names in (("theirs", theirs.profiler), ("ours", ours)):
        found[side] = {
            "profile": constructor(names.profile),
            "handler": parameters(names.tensorboard_trace_handler),
            "experimental": parameters(names._ExperimentalConfig),
            "schedule": parameters(names.schedule),
            **{kind: members(getattr(names, kind)) for kind in ("ProfilerLevel", "AiCMetrics", "ExportType", "HostSystem")
               if hasattr(names, kind)},
        }  # fmt: skip
    default = theirs.profiler._ExperimentalConfig
    found["theirs"]["set"] = dict(vars(default()))
    found["ours"]["set"] = dict(vars(ours._ExperimentalConfig()))
    return found


def record(theirs: Any) -> dict[str, Any]:
    """Everything switched on, two steps, one child thread."""
    from stepscope import mstx
    from stepscope import profiler as ours
    from stepscope.collect import messages

    said: list[str] = []
    # With a database, versions before 2.5 ask the toolkit's msprof, which is not here.
    has_lists = tuple(map(int, theirs.__version__.split(".")[:2])) >= (2, 5)
    everything = ours._ExperimentalConfig(
        profiler_level=ours.ProfilerLevel.Level2, aic_metrics=ours.AiCMetrics.Memory, l2_cache=True, mstx=True,
        op_attr=has_lists, gc_detect_threshold=1.0, export_type=[ours.ExportType.Text, ours.ExportType.Db],
        host_sys=[ours.HostSystem.CPU], mstx_domain_include=["mine"], sys_io=True, sys_interconnection=True,
    )  # fmt: skip
    with messages.copied_to(lambda level, text: said.append(f"{level} {text}")):
        with ours.profile(
            on_trace_ready=lambda prof: None, schedule=ours.schedule(wait=0, warmup=1, active=1, repeat=1),
            record_shapes=True, profile_memory=True, with_stack=True, with_modules=True, with_flops=True,
            experimental_config=everything,
        ) as prof:  # fmt: skip
            prof.step()
            ours.profile.enable_profiler_in_child_thread(with_modules=True)
            ours.profile.disable_profiler_in_child_thread()
            with mstx.mstx_range("mine", domain="mine"):
                mstx.mark("moment")
            mstx.range_push("nested")
            mstx.range_pop()
            prof.step()
        (capture,) = Path.cwd().glob("*_ascend_pt")
    info = json.loads(next(capture.glob("profiler_info*.json")).read_bytes())
    return {
        "said": said,
        "native": [name for name, _ in CALLS],
        "config": next(value for name, value in CALLS if name == "config"),
        "files": sorted(path.name for path in capture.iterdir()),
        "info": {key: info.get(key) for key in ("start_info", "end_info", "torch_npu_version", "cann_version")},
        "tier": info["collector"]["tier"],
    }


if __name__ == "__main__":
    os.environ.setdefault("STEPSCOPE_MIN_FREE_BYTES", "0")
    vendor = install(Path(sys.argv[1]))
    print(json.dumps({"names": describe(vendor), "capture": record(vendor)}, default=str))
