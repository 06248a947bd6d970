# SPDX-License-Identifier: Apache-2.0
"""`torch.npu` without a device, real or simulated: a script chooses the CPU, or is kept on it."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

from stepscope.compat.redirect import Redirection


def is_available() -> bool:
    return False


def is_initialized() -> bool:
    return False


def device_count() -> int:
    return 0


def current_device() -> int:
    return 0


def set_device(device: Any) -> None:
    """Does nothing: there is no device."""


def _is_in_bad_fork() -> bool:
    return False


def get_device_name(device: Any = None) -> str:
    return "CPU (no NPU available)"


def current_stream(device: Any = None) -> None:
    """None: the CPU has no streams."""


def synchronize(device: Any = None) -> None:
    """Operators on the CPU are finished when they return."""


def empty_cache() -> None:
    """Does nothing: the CPU's allocator has no cache."""


def memory_allocated(device: Any = None) -> int:
    return 0


max_memory_allocated = memory_reserved = max_memory_reserved = memory_allocated


def reset_peak_memory_stats(device: Any = None) -> None:
    """Does nothing: memory is not counted."""


def manual_seed(seed: int) -> None:
    import torch

    torch.default_generator.manual_seed(seed)  # torch.manual_seed calls us


manual_seed_all = manual_seed


def activate() -> None:
    """Make this module torch.npu, and keep on the CPU whatever is sent to `npu`."""
    import torch

    here: Any = sys.modules[__name__]
    torch.utils.rename_privateuse1_backend("npu")  # so that torch.device("npu") is valid
    torch.npu = here
    sys.modules["torch.npu"] = here
    Redirection("npu", "cpu").activate()
    for holder in (torch.Tensor, torch.nn.Module):
        holder.npu = _npu
    here.amp = SimpleNamespace(autocast=_autocast, GradScaler=_scaler)
    if torch.distributed.is_available():
        _register_hccl(torch.distributed)


def _npu(self: Any, device: Any = None, **_options: Any) -> Any:
    return self


def _autocast(*arguments: Any, **options: Any) -> Any:
    import torch

    return torch.autocast("cpu", *arguments, **options)


def _scaler(*arguments: Any, **options: Any) -> Any:
    import torch

    return torch.amp.GradScaler("cpu", *arguments, **options)


def _register_hccl(distributed: Any) -> None:
    """Use gloo for collectives of CPU tensors, whatever backend a script names."""

    def make(store: Any, rank: int, size: int, timeout: Any) -> Any:
        return distributed.ProcessGroupGloo(store, rank, size, timeout=timeout)

    if distributed.is_gloo_available():
        distributed.Backend.register_backend("hccl", make, devices=["cpu"])
