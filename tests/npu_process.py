"""Tests on the simulated device run in a process of their own: the device changes torch for a whole process."""

from __future__ import annotations

import functools
import importlib
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

import pytest

_pool: ProcessPoolExecutor | None = None


@functools.cache
def reason_without_device() -> str | None:
    """Why there is no device here; the first time the library is built."""
    try:
        import torch  # noqa: F401
    except ImportError:
        return "torch is not installed"
    from stepscope.native import find_library
    from stepscope.simnpu.device import TRIAL

    found = find_library("simnpu", TRIAL)
    return found if isinstance(found, str) else None


def on_npu(test):
    """Run the test function in the process that has the device."""

    @functools.wraps(test)
    def run(**arguments):
        global _pool
        reason = reason_without_device()
        if reason:
            pytest.skip(f"no simulated NPU: {reason}")
        if _pool is None:
            _pool = ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn"))
        try:
            _pool.submit(_call, test.__module__, test.__name__, arguments).result()
        except BrokenProcessPool:
            _pool = None
            raise

    return run


def _call(module: str, name: str, arguments: dict) -> None:
    import torch

    from stepscope import simnpu

    simnpu.load()
    torch.set_num_threads(1)  # as a kernel of the device has
    getattr(importlib.import_module(module), name).__wrapped__(**arguments)
    torch.npu.synchronize()
