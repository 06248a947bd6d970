# SPDX-License-Identifier: Apache-2.0
"""Mark moments and ranges of a training script: the API of `torch_npu.npu.mstx`, on any device.

with stepscope.mstx.mstx_range("evaluation", domain="mine"):
    evaluate()

They are recorded while a profiler with `_ExperimentalConfig(mstx=True)` runs and cost almost nothing otherwise.
"""

from stepscope.collect.marks.api import annotate, mark, mstx_range, range_end, range_pop, range_push, range_start

__all__ = ["annotate", "mark", "mstx", "mstx_range", "range_end", "range_pop", "range_push", "range_start"]


class mstx:
    """The same functions as one name, for `from torch_npu.npu.mstx import mstx`."""

    mark = staticmethod(mark)
    range_start, range_end = staticmethod(range_start), staticmethod(range_end)
    range_push, range_pop = staticmethod(range_push), staticmethod(range_pop)
    mstx_range, annotate = mstx_range, staticmethod(annotate)
