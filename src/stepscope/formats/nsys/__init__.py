# SPDX-License-Identifier: Apache-2.0
"""SQLite exports of NVIDIA Nsight Systems: kernels, copies, runtime calls and NVTX ranges of several processes and GPUs."""
