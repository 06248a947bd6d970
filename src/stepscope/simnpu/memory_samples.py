# SPDX-License-Identifier: Apache-2.0
"""Memory of a device as its driver samples it, 50 times a second, from the events of the allocator."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from stepscope.formats.cann.write.device import DeviceWriter

EVERY_NS = 20_000_000
_APP_MODULE = 33


class MemorySamples:
    """Samples of one device: the memory that its allocator holds, at regular intervals."""

    def __init__(self, writer: DeviceWriter, start_raw_ns: int, reserved: int, offset_ns: int) -> None:
        self._writer, self._next, self._reserved, self._offset = writer, start_raw_ns, reserved, offset_ns

    def write(self, events: npt.NDArray[Any], until_raw_ns: int) -> None:
        """Write the samples up to a moment; `events` are all since the last call, and no earlier ones will follow."""
        moments = np.arange(self._next, until_raw_ns, EVERY_NS)
        if len(events):
            events = events[np.argsort(events["time"], kind="stable")]
        if len(moments):
            last = np.searchsorted(events["time"], moments, "right") - 1
            reserved = np.where(last >= 0, events["reserved"][np.maximum(last, 0)] if len(events) else 0, self._reserved)
            at = moments + self._offset
            self._writer.memory(at_ns=at, hbm=reserved, app=True)
            self._writer.memory(at_ns=at, hbm=reserved)
            self._writer.module_memory(at_ns=at, module=_APP_MODULE, bytes=reserved)
            self._next = int(moments[-1]) + EVERY_NS
        if len(events):
            self._reserved = int(events["reserved"][-1])
