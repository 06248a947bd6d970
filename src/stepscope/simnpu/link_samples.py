# SPDX-License-Identifier: Apache-2.0
"""Traffic of a device as its driver samples it: copies go over PCIe, collectives over HCCS, its network ports are idle.

Bytes count at the moment when their copy or transfer ended. For HCCS only the bytes that this device sends are known; a
collective within one server brings as much back, so the same number is used for received bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from stepscope.formats.cann.write.device import DeviceWriter
from stepscope.simnpu.records import COPY_D2H, COPY_H2D

EVERY_NS, PORT_EVERY_NS = 20_000_000, 10_000_000  # 50 and 100 times a second (docs/formats/profiler-api.md 3)
_PARTS = 4  # of a sample: minimum, maximum and mean of their rates are written
_HCCS = 1  # number of the link
_PORT_MBIT = 200_000


class LinkSamples:
    """Samples of one device at regular intervals."""

    def __init__(self, writer: DeviceWriter, start_raw_ns: int, *, links: bool, ports: bool) -> None:
        self._writer, self._next, self._next_port = writer, start_raw_ns, start_raw_ns
        self._links, self._ports = links, ports
        self._moved = {way: np.empty((0, 2), np.int64) for way in ("to host", "from host", "to peers")}  # when, bytes
        self._sent = 0
        if links:
            writer.text("hccs.data", "Time TxThroughput RxThroughput\n")

    def write(self, tasks: npt.NDArray[Any], transfers: npt.NDArray[Any], until_raw_ns: int) -> None:
        """Write the samples that end before a moment; `tasks` and `transfers` are those that ended since the last call."""
        if self._ports:
            self._idle_ports(until_raw_ns)
        if not self._links:
            return
        self._add("to host", tasks[tasks["kind"] == COPY_D2H])
        self._add("from host", tasks[tasks["kind"] == COPY_H2D])
        self._add("to peers", transfers[transfers["link"] == _HCCS])
        count = max(0, (until_raw_ns - self._next) // EVERY_NS)
        if not count:
            return
        begin = self._next + EVERY_NS * np.arange(count)
        rates = {way: self._take(way, count) for way in self._moved}
        values = np.zeros((count, 7, 3), np.uint32)
        # The device writes to the host; data it reads from the host arrive as completions.
        values[:, 0], values[:, 6] = _least_most_mean(rates["to host"]), _least_most_mean(rates["from host"])
        self._writer.pcie(raw_ns=begin, values=values.reshape(count, 21))
        totals = self._sent + np.cumsum(rates["to peers"].sum(axis=1))
        self._writer.text("hccs.data", "".join(f"{at}: {sent} {sent}\n" for at, sent in zip(begin.tolist(), totals, strict=True)))
        self._sent, self._next = int(totals[-1]), self._next + EVERY_NS * count

    def _add(self, way: str, rows: npt.NDArray[Any]) -> None:
        moved = np.stack([rows["end"], rows["bytes"].astype(np.int64)], axis=1)
        self._moved[way] = np.concatenate([self._moved[way], moved])

    def _take(self, way: str, count: int) -> npt.NDArray[np.int64]:
        """Take the bytes per sample and part; those of later samples stay."""
        moved = self._moved[way]
        part = (moved[:, 0] - self._next) // (EVERY_NS // _PARTS)
        now = part < count * _PARTS
        self._moved[way] = moved[~now]
        sums = np.bincount(np.maximum(part[now], 0), weights=moved[now, 1], minlength=count * _PARTS)
        return np.asarray(sums.reshape(count, _PARTS).astype(np.int64))

    def _idle_ports(self, until_raw_ns: int) -> None:
        count = max(0, (until_raw_ns - self._next_port) // PORT_EVERY_NS)
        lines = "".join(f"{self._next_port + PORT_EVERY_NS * at} {_PORT_MBIT}{' 0' * 12} 0\n" for at in range(count))
        for file in ("nic.data", "roce.data"):
            self._writer.text(file, lines)
        self._next_port += PORT_EVERY_NS * count


def _least_most_mean(parts: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    """Bytes per microsecond."""
    rates = parts / (EVERY_NS / _PARTS / 1000)
    summary = np.stack([rates.min(axis=1), rates.max(axis=1), rates.mean(axis=1)], axis=1)
    return np.asarray(np.rint(summary), np.uint32)
