# SPDX-License-Identifier: Apache-2.0
"""The profiler for MindSpore; see stepscope.frameworks.mindspore."""

from typing import Any

from stepscope.frameworks import mindspore as _framework
from stepscope.frameworks.mindspore import *  # noqa: F403
from stepscope.frameworks.mindspore import __all__  # noqa: F401


def __getattr__(name: str) -> Any:
    return getattr(_framework, name)
