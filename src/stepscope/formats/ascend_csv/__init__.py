# SPDX-License-Identifier: Apache-2.0
"""Csv files of Ascend captures: those of torch_npu (ASCEND_PROFILER_OUTPUT) and of msprof (mindstudio_profiler_output)."""
