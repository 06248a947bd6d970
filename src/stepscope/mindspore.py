# SPDX-License-Identifier: Apache-2.0
"""The profiler for MindSpore; see stepscope.frameworks.mindspore."""

from stepscope.frameworks.mindspore import *  # noqa: F403
from stepscope.frameworks.mindspore import __all__ as __all__
