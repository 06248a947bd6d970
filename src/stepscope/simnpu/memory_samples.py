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
    """Samples of one device: what its allocator holds of the memory at moments that lie evenly."""

    def __init__(self, writer: DeviceWriter, start_raw_ns: int, held: int, offset_ns: int) -> None:
        self._writer, self._next, self._held, self._offset = writer, start_raw_ns, held, offset_ns

    def write(self, events: npt.NDArray[Any], until_raw_ns: int) -> None:
        """Samples up to a moment before which no more events will come; `events` are those since the last call."""
        moments = np.arange(self._next, until_raw_ns, EVERY_NS)
        if len(events):
            events = events[np.argsort(events["time"], kind="stable")]
        if len(moments):
            last = np.searchsorted(events["time"], moments, "right") - 1
            held = np.where(last >= 0, events["reserved"][np.maximum(last, 0)] if len(events) else 0, self._held)
            at = moments + self._offset
            self._writer.memory(at_ns=at, hbm=held, app=True)
            self._writer.memory(at_ns=at, hbm=held)
            self._writer.module_memory(at_ns=at, module=_APP_MODULE, bytes=held)
            self._next = int(moments[-1]) + EVERY_NS
        if len(events):
            self._held = int(events["reserved"][-1])
