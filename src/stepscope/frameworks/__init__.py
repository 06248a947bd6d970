# SPDX-License-Identifier: Apache-2.0
"""Profilers of frameworks other than PyTorch; each imports its framework only when it is used."""
