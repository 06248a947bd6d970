# SPDX-License-Identifier: Apache-2.0
"""Registers the simulated device with torch: the library, the name `npu`, the module `torch.npu`."""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import sys
import time
from pathlib import Path

from stepscope.errors import CaptureError
from stepscope.native import find_library

TRIAL = "import sys; from stepscope.simnpu.device import try_library; try_library(sys.argv[1])"
_EXIT_SECONDS = 10.0
_loaded: Path | None = None


def loaded() -> bool:
    """Whether this process has the device."""
    return _loaded is not None


def load() -> None:
    """Make `npu` a device of this process. On first use the library is built, which takes about a minute.

    Raises:
        CaptureError: torch or a C++ compiler is missing, or a real `torch_npu` owns the name already.
    """
    if loaded():
        return
    vendor = sys.modules.get("torch_npu")
    if vendor is not None and not hasattr(vendor, "STEPSCOPE_STAND_IN"):
        raise CaptureError(
            "the simulated NPU cannot be used",
            where="this process",
            cause="torch_npu is imported and uses the name `npu` for real devices",
            fix="use the real devices, or start the script without torch_npu",
        )
    found = find_library("simnpu", TRIAL, before_build=_announce_build)
    if isinstance(found, str):
        raise CaptureError(
            "the simulated NPU is not available",
            where="its native library",
            cause=found,
            fix="install torch and a C++ compiler (for example `apt install g++`), or run on the CPU",
        )
    load_library(found.path)


def _announce_build() -> None:
    os.write(2, b"stepscope: building the simulated NPU, once for this torch; this takes one to three minutes\n")


def load_library(path: Path) -> None:
    """Load the library at `path` and register the device with torch."""
    global _loaded
    import torch

    torch.utils.rename_privateuse1_backend("npu")
    torch.ops.load_library(str(path))
    from stepscope.simnpu import npu

    torch._register_device_module("npu", npu)
    sys.modules["torch.npu.amp"] = npu.amp
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    torch.ops.stepscope_npu.register_operators()
    if torch.distributed.is_available():
        from stepscope.simnpu import hccl

        hccl.register()
    _loaded = path
    # The library does so by itself, but with the interpreter's lock held, for which a kernel written in Python would wait.
    workers = ctypes.CDLL(str(path))
    os.register_at_fork(before=workers.simnpu_hold_workers, after_in_parent=workers.simnpu_release_workers)
    # Or a child that leaves by `sys.exit` looks through all of torch for garbage, and copies most of its memory by that.
    os.register_at_fork(after_in_child=gc.freeze)
    atexit.register(_finish)


def library_path() -> Path:
    """The library that was loaded."""
    if _loaded is None:
        raise RuntimeError("the simulated NPU is not loaded")
    return _loaded


def try_library(path: str) -> None:
    """Fail unless the library at `path` computes correctly, and asynchronously."""
    import torch

    load_library(Path(path))
    a = torch.arange(12.0).reshape(3, 4)
    for _ in range(2):  # the first call of a kernel is analysed, the second is queued
        b = a.to("npu").requires_grad_()
        (b @ b.t()).square().sum().backward()
    c = a.clone().requires_grad_()
    (c @ c.t()).square().sum().backward()
    if not torch.equal(b.grad.cpu(), c.grad):
        raise AssertionError("the device computes wrong gradients")


def _finish() -> None:
    """Finish queued work before the interpreter exits, and print a fault that nobody waited for."""
    import torch

    ops = torch.ops.stepscope_npu
    if ops.in_forked_child():
        return
    # Not if other ranks do not take part: a failing rank must end, or nobody would notice.
    give_up = time.monotonic() + _EXIT_SECONDS
    while ops.communicating():
        if time.monotonic() > give_up:
            os.write(2, b"stepscope: this process ends while collectives wait for other ranks\n")
            return
        time.sleep(0.01)
    for number in range(ops.device_count()):
        try:
            ops.synchronize(number)
        except RuntimeError as fault:
            os.write(2, f"stepscope: {fault}\n".encode())
