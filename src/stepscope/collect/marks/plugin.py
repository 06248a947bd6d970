# SPDX-License-Identifier: Apache-2.0
"""What importing `mstx_torch_plugin` does."""

from __future__ import annotations

import sys

from stepscope.collect import messages
from stepscope.collect.guard import warn_on_failure
from stepscope.collect.marks import api as marks
from stepscope.collect.marks import stages
from stepscope.collect.tiers import ascend


def apply() -> None:
    """Mark the four stages in every capture with mstx from here on; without torch this is only an error message."""
    if "torch" not in sys.modules:
        messages.error("mstx_torch_plugin does nothing: import torch (and torch_npu) before it")
        return
    warn_on_failure("mstx_torch_plugin", _apply)


def remove() -> None:
    """Stop marking the forward pass and steps."""
    warn_on_failure("mstx_torch_plugin", stages.disable_forward_and_steps)


def _apply() -> None:
    stages.enable_forward_and_steps()
    vendor = ascend.vendor() if "torch_npu" in sys.modules else None
    if vendor is not None and marks.current() is None:
        # The vendor's profiler may record at any time, so it gets all marks and chooses.
        marks.forward_to(vendor)
