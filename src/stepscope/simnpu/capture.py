# SPDX-License-Identifier: Apache-2.0
"""What the simulated device does while a capture runs, written as the hardware's collector writes it: a `PROF_*` folder, and the
task queue and device memory in FRAMEWORK.

`take` drains what was recorded since the last call and writes it, so memory stays bounded and a killed process leaves
everything written so far. One thread calls it at a time.
"""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stepscope.formats.cann.sampled.l2_cache import SIMULATED
from stepscope.formats.cann.write.folder import ProfWriter
from stepscope.formats.cann.write.host import HostWriter
from stepscope.formats.cann.write.settings import A2, Session
from stepscope.simnpu import framework_records
from stepscope.simnpu.communication_marks import CommunicationMarks
from stepscope.simnpu.descriptions import AI_CPU, Descriptions
from stepscope.simnpu.device_records import DeviceRecords, DeviceTasks
from stepscope.simnpu.host_records import HostRecords
from stepscope.simnpu.launches import Launches, LaunchTimes
from stepscope.simnpu.link_samples import LinkSamples
from stepscope.simnpu.memory_samples import MemorySamples
from stepscope.simnpu.pretended import CHIP, on_chip, pretended_chip
from stepscope.simnpu.records import AWAITED, MARK, Records
from stepscope.simnpu.transfers import NO_TRANSFERS, Transfers, with_calls

__all__ = ["CHIP", "MODELLED", "CaptureSwitches", "DeviceCapture"]

MODELLED = (
    "kernel names, cores and blocks",
    "counters of cores and caches",
    "core frequency",
    "link-level times of collectives",
    "traffic of HCCS and network ports",
)
# A kernel is described again right after its first run, and transfers follow their collective: recent tasks wait this long.
SETTLE_NS = 20_000_000
ORPHAN_NS = 10_000_000_000  # a collective called before the recording has transfers but no record of its own

_MARK_EVENTS = {"marker": 0, "push/pop": 1, "start/end": 2}
# Type in task_track and in the device's records, by kind of task and by core.
_RUNTIME_TYPES = np.array([0, 5, 5, 5, 2, 3, 0, 26])
_SQE_TYPES = np.array([0, 17, 17, 11, 4, 5, 0, 3])
_KERNEL_TYPES = np.array([0, 1, 66, 0, 108, 109, 0, 0, 0, 0])
_TRANSFER_TYPES, _TRANSFER_SQES = np.array([5, 92, 14, 15]), np.array([11, 11, 7, 6])


@dataclass(frozen=True)
class CaptureSwitches:
    """What to write; the levels are -1 (none), 0, 1 and 2."""

    level: int = 1
    metrics: str = ""  # name of a set of counters, empty for none
    l2_cache: bool = False
    memory: bool = False
    attributes: bool = False  # what operators are called with besides tensors
    links: bool = False  # PCIe and HCCS
    ports: bool = False  # NIC and RoCE
    framework: bool = True  # the host's operators are recorded too
    marks_only: bool = False
    communication: bool = False  # mark its operators
    rank: int | None = None
    switches: Mapping[str, Any] = field(default_factory=dict)  # additional keys of sample.json


class DeviceCapture:
    """One capture of this process's devices, from `start` to `close`."""

    def __init__(self, capture: Path, switches: CaptureSwitches, records: Records) -> None:
        self._capture, self._switches, self._records = capture, switches, records
        self._devices: dict[int, DeviceRecords] = {}
        self._reserved: dict[int, int] = {}  # bytes by device at the start
        self._samples: dict[int, MemorySamples] = {}
        self._traffic: dict[int, LinkSamples] = {}
        self._late = np.empty(0)
        self._late_transfers = NO_TRANSFERS
        self.tasks = 0

    def start(self, raw_ns: int, unix_ns: int, devices: Mapping[int, int]) -> None:
        """Begin recording at a moment given on both clocks; `devices` are those in use, with the memory they hold."""
        switches, self._offset, self._start = self._switches, unix_ns - raw_ns, raw_ns
        self._chip = pretended_chip()
        session = Session(
            os.getpid(), unix_ns, raw_ns, rank=switches.rank, devices=(), level=max(switches.level, 0),
            metrics=switches.metrics, hostname=socket.gethostname(), system=platform.platform(), cpus=os.cpu_count() or 1,
            memory_kib=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 10, chip=self._chip,
            switches={SIMULATED: "on", **switches.switches},
        )  # fmt: skip
        self._writer = ProfWriter(self._capture, session)
        self._host = HostWriter(self._writer)
        self._descriptions = Descriptions(self._writer, self._records.description)
        self._host_records = HostRecords(self._writer, self._host, self._descriptions, self._offset, attributes=switches.attributes)
        self._times = LaunchTimes(self._offset)
        self._communication = CommunicationMarks(self._records.description, self._offset)
        self._writer.ids("default")  # a folder has a dictionary even if nothing with a name ran
        if self._chip.platform == A2:
            self._host.wide_streams(tid=os.getpid(), at_ns=unix_ns)
        # The vendor's parser reports an error for a device folder without tasks, so each device joins with its first task.
        self._reserved = dict(devices)
        if len(devices) == 1:
            self._device(*devices)
        self._records.start(attributes=switches.attributes)

    @property
    def path(self) -> Path:
        return self._writer.path

    def take(self, now_raw_ns: int, *, last: bool = False) -> None:
        """Write what was recorded up to now; with `last` including tasks that have just ended."""
        tasks, calls = self._complete(self._records.tasks(), now_raw_ns, last), self._records.calls()
        memory, moved = self._records.memory(), self._records.transfers()
        self._late_transfers = self._late_transfers[self._late_transfers["end"] > now_raw_ns - ORPHAN_NS]
        transfers = self._late_transfers = np.concatenate([self._late_transfers, moved])
        self._times.add_calls(calls)
        if (self._switches.links or self._switches.ports) and not self._switches.marks_only:
            self._write_traffic(tasks, moved, now_raw_ns if last else now_raw_ns - SETTLE_NS, last)
        if self._switches.communication:
            self._communication.take(tasks, transfers, lambda device: self._device(device).writer)
        if self._switches.level < 0 or self._switches.marks_only:
            tasks, calls = tasks[tasks["kind"] == MARK], calls[:0]
        elif len(calls):
            self._host_records.calls(calls)
        # What others refer to comes first: a killed process leaves no kernel without its memory, marks and launch.
        if self._switches.memory and not self._switches.marks_only:
            self._write_memory(memory, now_raw_ns)
        if len(tasks):
            self._write_tasks(tasks, transfers)

    def marks(self, rows: list[dict[str, Any]]) -> None:
        """Host parts of marks: pid, tid, start and end on the clock of the records, mark_id, message, domain, kind."""
        for row in (*rows, *self._communication.rows):
            self._host.marks(
                pid=row["pid"], tid=row["tid"], start_ns=row["start"] + self._offset, end_ns=row["end"] + self._offset,
                mark=row["mark_id"], message=row["message"], domain=row["domain"], event=_MARK_EVENTS.get(row["kind"], 2),
            )  # fmt: skip

    def close(self, unix_ns: int | None = None) -> None:
        if not self._devices and self._reserved:
            self._device(min(self._reserved))
        self._writer.close(unix_ns)

    def _complete(self, fresh: npt.NDArray[Any], now_raw_ns: int, last: bool) -> npt.NDArray[Any]:
        tasks = np.concatenate([self._late, fresh]) if len(self._late) else fresh
        complete = np.ones(len(tasks), bool) if last else tasks["end"] < now_raw_ns - SETTLE_NS
        self._late = tasks[~complete]
        return np.asarray(tasks[complete])

    def _write_tasks(self, tasks: npt.NDArray[Any], transfers: npt.NDArray[Any]) -> None:
        launches = self._times.of(tasks)
        tasks = launches.tasks
        kernels = self._descriptions.rows(tasks["description"], changed=(tasks["flags"] & AWAITED) != 0)
        kernels = on_chip(kernels, self._chip)
        if self._switches.framework:
            framework_records.write_marks(self._capture / "FRAMEWORK", tasks, self._descriptions.marks)
        self._host_records.launches(launches, kernels)
        collective = launches.collectives
        collectives = launches.where(collective)
        parts = with_calls(transfers, collectives)
        self._late_transfers = transfers[~np.isin(transfers["connection"], collectives.tasks["connection"])]
        if len(collectives):
            self._host_records.collectives(collectives, kernels[collective], parts)
        for device in np.unique(tasks["device"]).tolist():
            self._write_device(device, launches, kernels, collectives, parts)
        self.tasks += len(tasks)

    def _write_device(
        self, device: int, launches: Launches, kernels: npt.NDArray[Any], collectives: Launches, parts: Transfers
    ) -> None:
        """Tasks of one device, and the transfers of its collectives in their place, in the order of their stamps."""
        own = (launches.tasks["device"] == device) & ~launches.collectives  # hardware has no task for a whole collective
        mine, rows = launches.where(own), kernels[own]
        moved = parts.rows["device"] == device
        small, of = parts.rows[moved], parts.of[moved]
        stamp = np.concatenate([mine.stamp, parts.stamp[moved]])
        order = np.argsort(stamp, kind="stable")

        def merge(large: npt.NDArray[Any], tiny: Any) -> npt.NDArray[Any]:
            # One dtype: numpy would turn a mixture of signed and unsigned numbers into floats.
            return np.concatenate([large, np.broadcast_to(np.asarray(tiny).astype(large.dtype), len(small))])[order]

        kind = mine.tasks["kind"]
        types = np.where(mine.kernels, _KERNEL_TYPES[rows["core"]], _RUNTIME_TYPES[kind])
        sqes = np.where(mine.kernels & (rows["core"] == AI_CPU), 1, _SQE_TYPES[kind])
        stream = merge(mine.tasks["stream"], small["stream"])
        numbers = self._host.tasks(
            device=device, stream=stream, tid=merge(mine.tid, collectives.tid[of]), at_ns=stamp[order],
            task_type=merge(types, _TRANSFER_TYPES[small["kind"]]), kernel=merge(np.where(mine.kernels, rows["name"], 0), 0),
        )  # fmt: skip
        executed = DeviceTasks(
            stream=stream,
            start=merge(mine.tasks["start"], small["start"]) + self._offset,
            end=merge(mine.tasks["end"], small["end"]) + self._offset,
            sqe=merge(sqes, _TRANSFER_SQES[small["kind"]]),
            kernels=np.concatenate([rows, np.zeros(len(small), rows.dtype)])[order],
            is_kernel=merge(mine.kernels, False),
            mark=merge(np.where(mine.marks, mine.tasks["bytes"], 0), 0),
            mark_side=merge(np.where(mine.marks, np.minimum(mine.tasks["event"], 2), 0), 0),
        )
        self._device(device).write(executed, numbers.task, numbers.batch)

    def _write_memory(self, memory: npt.NDArray[Any], now_raw_ns: int) -> None:
        if self._switches.framework and len(memory):
            framework_records.write_memory(self._capture / "FRAMEWORK", memory)
        if self._switches.level < 0:
            return
        for device in np.unique(memory["device"]).tolist():
            self._device(device)
        for device, samples in self._samples.items():
            samples.write(memory[memory["device"] == device], now_raw_ns)

    def _write_traffic(self, tasks: npt.NDArray[Any], moved: npt.NDArray[Any], until_raw_ns: int, last: bool) -> None:
        for device in {*np.unique(tasks["device"]).tolist(), *self._devices}:
            self._device(device)
            own_tasks, own_transfers = tasks[tasks["device"] == device], moved[moved["device"] == device]
            self._traffic[device].write(own_tasks, own_transfers, until_raw_ns, last=last)

    def _device(self, device: int) -> DeviceRecords:
        known = self._devices.get(device)
        if known is None:
            self._writer.add_device(device)
            start = self._start + self._offset if self._switches.level >= 0 else None
            known = self._devices[device] = DeviceRecords(self._writer, device, l2_cache=self._switches.l2_cache, start_ns=start)
            self._samples[device] = MemorySamples(known.writer, self._start, self._reserved.get(device, 0), self._offset)
            switches = self._switches
            self._traffic[device] = LinkSamples(known.writer, self._start, links=switches.links, ports=switches.ports)
        return known
