# SPDX-License-Identifier: Apache-2.0
"""Chrome traces of programs that are not profilers of PyTorch, MindSpore or Ascend: their spans, marks and counters."""
