# SPDX-License-Identifier: Apache-2.0
"""The profiler under the name by which MindSpeed-MM's scripts import it."""

from stepscope.frameworks.mindspeed import Profiler

__all__ = ["Profiler"]
