# SPDX-License-Identifier: Apache-2.0
"""`torch.npu.amp`: torch's own classes, for this device."""

from __future__ import annotations

from typing import Any

import torch


class autocast(torch.autocast):  # type: ignore[misc]
    """`torch.autocast("npu")` with the default that NPU scripts expect."""

    def __init__(self, enabled: bool = True, dtype: torch.dtype = torch.float16, cache_enabled: bool = True) -> None:
        super().__init__("npu", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):  # type: ignore[misc]
    """`torch.amp.GradScaler("npu")`."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__("npu", *arguments, **options)
