# SPDX-License-Identifier: Apache-2.0
"""`torch.npu` on a machine without NPU: enough for a script to choose a device and run on the CPU instead."""

from __future__ import annotations

import functools
import re
import sys
from types import ModuleType
from typing import Any

from stepscope.collect import messages

_NPU = re.compile(r"npu(:\d+)?")


def is_available() -> bool:
    return False


def device_count() -> int:
    return 0


def current_device() -> int:
    return 0


def set_device(device: Any) -> None:
    _say_once()


def synchronize(device: Any = None) -> None:
    """Operators on the CPU are finished when they return."""


def empty_cache() -> None:
    """The CPU's allocator keeps nothing to give back."""


def manual_seed(seed: int) -> None:
    import torch

    torch.manual_seed(seed)


manual_seed_all = manual_seed


def install() -> ModuleType:
    """Put this module in place as torch.npu, and let tensors and modules that are sent to `npu` stay on the CPU."""
    import torch

    here = sys.modules[__name__]
    if not hasattr(torch, "npu"):
        torch.npu = here
        for holder in (torch.Tensor, torch.nn.Module):
            holder.to = _staying(holder.to)
            holder.npu = _npu
    return here


def _staying(to: Any) -> Any:
    @functools.wraps(to)
    def stay(self: Any, *arguments: Any, **options: Any) -> Any:
        return to(self, *map(_here, arguments), **{name: _here(value) for name, value in options.items()})

    return stay


def _npu(self: Any, device: Any = None, **_options: Any) -> Any:
    _say_once()
    return self


def _here(value: Any) -> Any:
    if isinstance(value, str) and _NPU.fullmatch(value):
        _say_once()
        return "cpu"
    return value


def _say_once() -> None:
    messages.once(messages.warning, "there is no NPU here: what is sent to it runs on the CPU")
