# SPDX-License-Identifier: Apache-2.0
"""Stand-in for the vendor's torch_npu: its profiler is stepscope's; see stepscope.compat."""

import sys

from stepscope import __version__, profiler
from stepscope.compat.npu import install
from stepscope.profiler import _profiler_path_creator

STEPSCOPE_STAND_IN = True

npu = install()
for name, module in {
    "npu": npu,
    "profiler": profiler,
    "profiler.profiler": profiler.profiler,
    "profiler._profiler_path_creator": _profiler_path_creator,
}.items():
    sys.modules[f"{__name__}.{name}"] = module

__all__ = ["STEPSCOPE_STAND_IN", "__version__", "npu", "profiler"]
