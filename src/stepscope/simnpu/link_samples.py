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
_PORT_MB_PER_S = 25_000  # 200 Gbit/s


class LinkSamples:
    """Samples of one device at regular intervals."""

    def __init__(self, writer: DeviceWriter, start_raw_ns: int, *, links: bool, ports: bool) -> None:
        self._writer, self._next, self._next_port = writer, start_raw_ns, start_raw_ns
        self._links, self._ports = links, ports
        self._moved = {way: np.empty((0, 2), np.int64) for way in ("to host", "from host", "to peers")}  # when, bytes
        self._sent = 0
        if links:
            # Rates are the growth of totals: the first sample needs one before it.
            writer.text("hccs.data", f"Time TxThroughput RxThroughput\n{start_raw_ns}: 0 0\n")

    def write(self, tasks: npt.NDArray[Any], transfers: npt.NDArray[Any], until_raw_ns: int, *, last: bool = False) -> None:
        """Write the samples that end before a moment, at the `last` moment also the one that is under way.

        Args:
            tasks: those that ended since the last call.
            transfers: likewise.
            until_raw_ns: the moment.
            last: the capture ends at this moment.
        """
        if self._ports:
            self._idle_ports(until_raw_ns, last)
        if not self._links:
            return
        self._add("to host", tasks[tasks["kind"] == COPY_D2H])
        self._add("from host", tasks[tasks["kind"] == COPY_H2D])
        self._add("to peers", transfers[transfers["link"] == _HCCS])
        count = max(0, (until_raw_ns - self._next) // EVERY_NS)
        if count:
            self._sample(count, EVERY_NS // _PARTS, _PARTS)
        left = until_raw_ns - self._next
        if last and (left > 0 or any(map(len, self._moved.values()))):
            # What is under way ends here, in parts that are not shorter than the others.
            parts = max(1, left * _PARTS // EVERY_NS)
            self._sample(1, max(left // parts, EVERY_NS // _PARTS), parts, whatever_is_left=True)

    def _sample(self, count: int, part_ns: int, parts: int, *, whatever_is_left: bool = False) -> None:
        """Write `count` samples of so many parts each."""
        length = part_ns * parts
        begin = self._next + length * np.arange(count)
        moved = {way: self._take(way, count, part_ns, parts, whatever_is_left) for way in self._moved}
        values = np.zeros((count, 7, 3), np.uint32)
        # The device writes to the host; data it reads from the host arrive as completions.
        values[:, 0] = _least_most_mean(moved["to host"], part_ns)
        values[:, 6] = _least_most_mean(moved["from host"], part_ns)
        self._writer.pcie(raw_ns=begin, values=values.reshape(count, 21))
        totals = self._sent + np.cumsum(moved["to peers"].sum(axis=1))
        ends = (begin + length).tolist()
        self._writer.text("hccs.data", "".join(f"{at}: {sent} {sent}\n" for at, sent in zip(ends, totals, strict=True)))
        self._sent, self._next = int(totals[-1]), self._next + length * count

    def _add(self, way: str, rows: npt.NDArray[Any]) -> None:
        moved = np.stack([rows["end"], rows["bytes"].astype(np.int64)], axis=1)
        self._moved[way] = np.concatenate([self._moved[way], moved])

    def _take(self, way: str, count: int, part_ns: int, parts: int, whatever_is_left: bool) -> npt.NDArray[np.int64]:
        """Take the bytes per sample and part; those of later samples stay, unless there are none."""
        moved = self._moved[way]
        part = (moved[:, 0] - self._next) // part_ns
        if whatever_is_left:
            part = np.minimum(part, count * parts - 1)
        now = part < count * parts
        self._moved[way] = moved[~now]
        sums = np.bincount(np.maximum(part[now], 0), weights=moved[now, 1], minlength=count * parts)
        return np.asarray(sums.reshape(count, parts).astype(np.int64))

    def _idle_ports(self, until_raw_ns: int, last: bool) -> None:
        count = max(1 if last else 0, (until_raw_ns - self._next_port) // PORT_EVERY_NS)
        lines = "".join(f"{self._next_port + PORT_EVERY_NS * at} {_PORT_MB_PER_S}{' 0' * 12} 0\n" for at in range(count))
        for file in ("nic.data", "roce.data"):
            self._writer.text(file, lines)
        self._next_port += PORT_EVERY_NS * count


def _least_most_mean(parts: npt.NDArray[np.int64], part_ns: int) -> npt.NDArray[np.uint32]:
    """Bytes per microsecond."""
    rates = parts / (part_ns / 1000)
    summary = np.stack([rates.min(axis=1), rates.max(axis=1), rates.mean(axis=1)], axis=1)
    return np.asarray(np.rint(summary), np.uint32)
