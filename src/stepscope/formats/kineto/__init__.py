# SPDX-License-Identifier: Apache-2.0
"""Traces of the PyTorch profiler (Kineto): CPU, CUDA and ROCm, from 2021 on."""
