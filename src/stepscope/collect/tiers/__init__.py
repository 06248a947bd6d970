# SPDX-License-Identifier: Apache-2.0
"""Collectors of operators: the native observer, torch's profiler, torch_npu, or none (marks only)."""
