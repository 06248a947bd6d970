# SPDX-License-Identifier: Apache-2.0
"""Finds, builds and loads the C++ libraries. Nothing here raises into a training script: failures are returned as a reason."""

from stepscope.native.library import Library, find_library

__all__ = ["Library", "find_library"]
