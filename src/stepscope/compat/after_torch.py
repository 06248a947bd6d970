# SPDX-License-Identifier: Apache-2.0
"""What happens once torch is there: the device `npu`, and the profiler for scripts that have none."""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import Any

from stepscope import simnpu
from stepscope.collect.guard import warn_on_failure
from stepscope.compat import STAND_IN_FOLDER, automatic, vendor_spec
from stepscope.errors import CaptureError

_TOLD = "STEPSCOPE_TOLD"  # for the children: it was said already
_npu: ModuleType | None = None
_called = False


def load() -> None:
    """Once per process. Nothing of this may stop `import torch`."""
    global _called
    if _called:
        return
    _called = True
    if STAND_IN_FOLDER in sys.path and vendor_spec() is None:
        warn_on_failure("loading the simulated NPU", npu_module)
    plan = os.environ.get("STEPSCOPE_PROFILE")
    if plan:
        warn_on_failure("preparing the profiler", automatic.prepare, plan)


def npu_module() -> Any:
    """`torch.npu`: of the simulated device, or where it cannot be had one that leaves everything on the CPU."""
    global _npu
    if _npu is None:
        _npu = _device() or _cpu()
    return _npu


def _device() -> Any:
    import torch

    try:
        simnpu.load()
    except CaptureError as problem:
        tell(
            f"{problem.what}: {problem.cause}. This run goes on without it: what is sent to `npu` stays on the CPU.\n"
            f"  do this: {problem.fix}"
        )
        return None
    return torch.npu


def _cpu() -> ModuleType:
    from stepscope.compat import without_device

    without_device.put_in_place()
    return without_device


def tell(text: str) -> None:
    """One line beside the script's own, by one process of a job."""
    if os.environ.get(_TOLD) is None and os.environ.get("RANK", "0") == "0":
        os.environ[_TOLD] = "1"
        print(f"stepscope: {text}", file=sys.stderr, flush=True)
