# SPDX-License-Identifier: Apache-2.0
"""The simulated NPU: a PyTorch device `npu` that runs any script without the hardware.

`load()` builds (once) and loads the device; nothing here imports torch before that.
"""

from __future__ import annotations

from stepscope.simnpu.device import load, loaded

__all__ = ["load", "loaded"]
