# SPDX-License-Identifier: Apache-2.0
"""Kernels in groups, and which of them use tensor cores."""
