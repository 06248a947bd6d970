# SPDX-License-Identifier: Apache-2.0
"""Traces of the PyTorch profiler (Kineto): CPU, CUDA and ROCm, from 2021 on."""

from stepscope.formats.kineto.read import read

__all__ = ["read"]
