# SPDX-License-Identifier: Apache-2.0
"""Who records operators: the native observer, torch's profiler, torch_npu, or nobody (marks only)."""
