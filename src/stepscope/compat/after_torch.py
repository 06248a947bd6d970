# SPDX-License-Identifier: Apache-2.0
"""What happens once torch is imported: the device `npu`, and the profiler for scripts without one."""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any

from stepscope import autoload, simnpu
from stepscope.collect.guard import warn_on_failure
from stepscope.compat import STAND_IN_FOLDER, vendor_spec
from stepscope.errors import CaptureError
from stepscope.simnpu import faults

_WARNED = "STEPSCOPE_NPU_WARNED"  # set for child processes: the warning was printed already
_npu: ModuleType | None = None
_loaded = False


def load() -> None:
    """Runs once per process. A failure must not break `import torch`."""
    global _loaded
    if _loaded:
        return
    _loaded = True
    if STAND_IN_FOLDER in sys.path and vendor_spec() is None:
        warn_on_failure("injecting a fault", faults.apply)
        warn_on_failure("loading the simulated NPU", npu_module)
    autoload.record_script()


def npu_module() -> Any:
    """`torch.npu` of the simulated device, or a replacement that keeps everything on the CPU."""
    global _npu
    if _npu is None:
        _npu = _device() or _cpu()
    return _npu


def _device() -> Any:
    import torch

    try:
        simnpu.load()
    except CaptureError as problem:
        print_once(
            f"{problem.what}: {problem.cause}. This run continues without it: tensors sent to `npu` stay on the CPU.\n"
            f"  do this: {problem.fix}"
        )
        return None
    return torch.npu


def _cpu() -> ModuleType:
    from stepscope.compat import without_device

    without_device.activate()
    return without_device


def print_once(text: str) -> None:
    """Print a message beside the script's own output, from one process of a job."""
    if os.environ.get(_WARNED) is None and os.environ.get("RANK", "0") == "0":
        os.environ[_WARNED] = "1"
        print(f"stepscope: {text}", file=sys.stderr, flush=True)
