# SPDX-License-Identifier: Apache-2.0
"""Folders that Ascend's profilers leave: a capture folder with its parts, or a PROF_* folder by itself."""
