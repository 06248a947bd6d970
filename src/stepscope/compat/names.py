# SPDX-License-Identifier: Apache-2.0
"""What a script finds in `torch_npu`: the device's module, the profiler, marks and the fused operators."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

from stepscope import __version__, profiler
from stepscope.compat import after_torch
from stepscope.profiler import _profiler_path_creator

# Where each part of torch_npu really is.
_ELSEWHERE = {"npu.mstx": "stepscope.mstx", "profiler.dynamic_profile": "stepscope.dynamic_profile"}


def fill(name: str) -> None:
    """Give the stand-in, which is being imported under this name, its contents."""
    from stepscope.compat.fused import OPERATORS

    stand_in: Any = sys.modules[name]
    npu = after_torch.npu_module()
    parts: dict[str, ModuleType] = {
        "npu": npu,
        "profiler": profiler,
        "profiler.profiler": profiler.profiler,
        "profiler._profiler_path_creator": _profiler_path_creator,
    }
    parts |= {part: importlib.import_module(place) for part, place in _ELSEWHERE.items() if importlib.util.find_spec(place)}
    for part, module in parts.items():
        sys.modules[f"{name}.{part}"] = module
        holder, _, last = part.rpartition(".")
        setattr(parts[holder] if holder else stand_in, last, module)
    # The vendor's name is a class inside a module of the same name: scripts also write `mstx = torch_npu.npu.mstx()`.
    npu.mstx = parts["npu.mstx"].mstx
    stand_in.__version__ = __version__
    vars(stand_in).update(OPERATORS)
