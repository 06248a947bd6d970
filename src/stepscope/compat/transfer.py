# SPDX-License-Identifier: Apache-2.0
"""`torch_npu.contrib.transfer_to_npu`: runs a script written for `cuda` on `npu`."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from stepscope import profiler
from stepscope.compat import after_torch
from stepscope.compat.redirect import Redirection

# Not _KinetoProfile, which our own collector may use.
_FROM_PROFILER = ("schedule", "tensorboard_trace_handler")
_done = False


def activate() -> None:
    global _done
    if _done:
        return
    _done = True
    import torch

    npu = after_torch.npu_module()
    to_npu = Redirection("cuda", "npu")
    to_npu.activate()
    for theirs, ours in ((torch.cuda, npu), (torch.cuda.amp, npu.amp)):
        for name, thing in vars(ours).items():
            if not name.startswith("_") and hasattr(theirs, name) and not isinstance(thing, ModuleType):
                setattr(theirs, name, thing)
    for holder in (torch.Tensor, torch.nn.Module):
        holder.cuda = holder.npu
    torch.Tensor.is_cuda = property(lambda tensor: tensor.device.type == "npu")
    if torch.distributed.is_available():
        torch.distributed.init_process_group = _with_hccl(torch.distributed.init_process_group)
        torch.distributed.new_group = _with_hccl(torch.distributed.new_group)
        torch.distributed.is_nccl_available = lambda: True
    for name in _FROM_PROFILER:
        setattr(torch.profiler, name, getattr(profiler, name))
    torch.profiler.profile = _profile


class _profile(profiler.profile):
    """The profiler of a script that requests CUDA kernels and gets those of the NPU."""

    def __init__(self, *, activities: Any = None, use_cuda: Any = None, **others: Any) -> None:
        if activities is not None:
            named = [getattr(activity, "name", None) for activity in activities]
            activities = [profiler.ProfilerActivity["NPU" if name == "CUDA" else name] for name in named if name]
        super().__init__(activities=activities, **others)


def _with_hccl(function: Any) -> Any:
    @functools.wraps(function)
    def with_hccl(*arguments: Any, **options: Any) -> Any:
        return function(*map(_backend, arguments), **{name: _backend(given) for name, given in options.items()})

    return with_hccl


def _backend(given: Any) -> Any:
    return given.replace("nccl", "hccl").replace("cuda", "npu") if isinstance(given, str) else given
