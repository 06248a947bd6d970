# SPDX-License-Identifier: Apache-2.0
"""`torch.npu` where there is no device, real or simulated: a script chooses the CPU, or is kept on it."""

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
    """There is none to set."""


def _is_in_bad_fork() -> bool:
    return False


def get_device_name(device: Any = None) -> str:
    return "CPU (there is no NPU)"


def current_stream(device: Any = None) -> None:
    """There are no streams."""


def synchronize(device: Any = None) -> None:
    """Operators on the CPU are finished when they return."""


def empty_cache() -> None:
    """The CPU's allocator keeps nothing to give back."""


def memory_allocated(device: Any = None) -> int:
    return 0


max_memory_allocated = memory_reserved = max_memory_reserved = memory_allocated


def reset_peak_memory_stats(device: Any = None) -> None:
    """Nothing is counted."""


def manual_seed(seed: int) -> None:
    import torch

    torch.default_generator.manual_seed(seed)  # torch.manual_seed calls us


manual_seed_all = manual_seed


def put_in_place() -> None:
    """Make this module torch.npu, and let whatever is sent to `npu` stay on the CPU."""
    import torch

    here: Any = sys.modules[__name__]
    torch.utils.rename_privateuse1_backend("npu")  # so that torch.device("npu") is a word
    torch.npu = here
    sys.modules["torch.npu"] = here
    Redirection("npu", "cpu").put_in_place()
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
    """Collectives of tensors on the CPU are gloo's, whatever a script calls them."""

    def make(store: Any, rank: int, size: int, timeout: Any) -> Any:
        return distributed.ProcessGroupGloo(store, rank, size, timeout=timeout)

    if distributed.is_gloo_available():
        distributed.Backend.register_backend("hccl", make, devices=["cpu"])
