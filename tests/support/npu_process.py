"""Tests on the simulated device run in a process of their own: the device changes torch for a whole process."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from types import ModuleType
from typing import Any

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


def on_npu(test: Callable[..., None]) -> Callable[..., None]:
    """Run the test function in the process that has the device."""

    @functools.wraps(test)
    def run(**arguments: Any) -> None:
        global _pool
        reason = reason_without_device()
        if reason:
            pytest.skip(f"no simulated NPU: {reason}")
        if _pool is None:
            _pool = ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn"))
        try:
            _pool.submit(_call, inspect.getfile(test), test.__name__, arguments).result()
        except BrokenProcessPool:
            _pool = None
            raise

    return run


@functools.cache
def module_of(file: str) -> ModuleType:
    """The test file as a module of a process that pytest did not start."""
    spec = importlib.util.spec_from_file_location(f"of_{abs(hash(file)):x}", file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _call(file: str, name: str, arguments: dict[str, Any]) -> None:
    import torch

    from stepscope import simnpu

    simnpu.load()
    torch.set_num_threads(1)  # as a kernel of the device has
    getattr(module_of(file), name).__wrapped__(**arguments)
    torch.npu.synchronize()
