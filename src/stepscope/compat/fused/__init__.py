# SPDX-License-Identifier: Apache-2.0
"""The fused operators of torch_npu that models call (`torch_npu.npu_swiglu`, …), each one kernel on the device.

Imported once torch is there. They are operators of torch's dispatcher (`torch.ops.npu.…`) with a kernel for the CPU,
which is what the simulated device runs; their gradients are operators of their own, as on hardware.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stepscope.compat.fused import activations, attention, layouts, normalisation, rotary

OPERATORS: dict[str, Callable[..., Any]] = {
    **activations.OPERATORS,
    **attention.OPERATORS,
    **layouts.OPERATORS,
    **normalisation.OPERATORS,
    **rotary.OPERATORS,
}
