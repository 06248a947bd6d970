# SPDX-License-Identifier: Apache-2.0
"""What ran on one device as device records of a raw folder: tasks, counters of their cores, marks (docs/formats/cann.md 4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stepscope.formats.cann.write import device as device_writer
from stepscope.formats.cann.write.device import DeviceWriter
from stepscope.formats.cann.write.folder import ProfWriter
from stepscope.formats.cann.write.settings import METRIC_EVENTS
from stepscope.simnpu import counters
from stepscope.simnpu.descriptions import AI_CORE, AI_CPU, AI_VECTOR_CORE, MIX_AIC, MIX_AIV

_CORES = {AI_CORE: ("AIC", True), AI_VECTOR_CORE: ("AIV", False), MIX_AIC: ("MIX_AIC", True), MIX_AIV: ("MIX_AIV", False)}
_NO_MODEL = 0xFFFF_FFFF
_RANGE_TAGS = np.array([11, 12, 12])  # a mark, the start and the end of a range


@dataclass(frozen=True)
class Ran:
    """Tasks of one device in the order in which they were queued; times in nanoseconds since 1970."""

    stream: npt.NDArray[Any]
    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    sqe: npt.NDArray[Any]
    kernels: npt.NDArray[Any]  # rows of `Descriptions`
    is_kernel: npt.NDArray[np.bool_]
    mark: npt.NDArray[Any]  # number of a mark, else 0
    mark_side: npt.NDArray[Any]  # 0 mark, 1 start, 2 end of a range


class DeviceRecords:
    """Writes the tasks of one device; counters and caches as the session's settings ask for them."""

    def __init__(self, writer: ProfWriter, device: int, *, l2_cache: bool, start_ns: int | None) -> None:
        self.writer = DeviceWriter(writer, device)
        session = writer.session
        self._chip, self._level, self._l2_cache = session.chip, session.level, l2_cache
        self._metrics = session.metrics if session.metrics in METRIC_EVENTS and session.level else ""
        if start_ns is not None:
            self.writer.frequency(at_ns=np.array([start_ns]), value=session.chip.core_mhz)

    def write(self, ran: Ran, task: npt.NDArray[Any], batch: npt.NDArray[Any]) -> None:
        core = ran.kernels["core"]
        mix = np.where(core == MIX_AIC, device_writer.MIX_AIC, np.where(core == MIX_AIV, device_writer.MIX_AIV, 0))
        self.writer.tasks(
            stream=ran.stream, task=task, batch=batch, start_ns=ran.start, end_ns=ran.end, sqe=ran.sqe,
            mix=np.where(ran.is_kernel, mix, 0),
        )  # fmt: skip
        if self._metrics:
            for number in _CORES:
                self._counters(ran, task, np.flatnonzero(ran.is_kernel & (core == number)), number)
        if self._l2_cache:
            rows = np.flatnonzero(ran.is_kernel & (core != AI_CPU))
            if len(rows):
                events = counters.cache_events(ran.kernels[rows])
                self.writer.cache_of_tasks(stream=ran.stream[rows], task=task[rows], events=events)
        if self._level >= 2:
            rows = np.flatnonzero(ran.is_kernel & (core == AI_CPU))
            if len(rows):
                self.writer.ai_cpu(stream=ran.stream[rows], task=task[rows], start_ns=ran.start[rows], end_ns=ran.end[rows])
        rows = np.flatnonzero(ran.mark)
        if len(rows):
            self.writer.steps(
                index=ran.mark[rows], model=_NO_MODEL, stream=ran.stream[rows], task=task[rows],
                tag=_RANGE_TAGS[ran.mark_side[rows]], at_ns=ran.start[rows],
            )  # fmt: skip

    def _counters(self, ran: Ran, task: npt.NDArray[Any], rows: npt.NDArray[np.int64], core: int) -> None:
        if not len(rows):
            return
        name, cube = _CORES[core]
        kernels, events = ran.kernels[rows], METRIC_EVENTS[self._metrics]
        # The reader's total time is cycles / frequency / blocks, for no more blocks than there are cores.
        one_core = (ran.end - ran.start)[rows] / 1000 * self._chip.core_mhz * counters.BUSY
        cycles = np.floor(one_core * kernels["blocks"])
        work = counters.work_of(kernels, cycles, cube=cube)
        times = {"start_ns": ran.start[rows], "end_ns": ran.end[rows]}
        self.writer.counters(
            stream=ran.stream[rows], task=task[rows], core=name, cycles=cycles.astype(np.uint64),
            counters=counters.counts(work, self._metrics, events[0 if cube else 1]), **times,
        )  # fmt: skip
        if core == MIX_AIC:
            self._vector_blocks(ran, task, rows, one_core)

    def _vector_blocks(self, ran: Ran, task: npt.NDArray[Any], rows: npt.NDArray[np.int64], one_core: npt.NDArray[Any]) -> None:
        """The vector half of MIX_AIC kernels: a record for each of its blocks."""
        kernels = ran.kernels[rows]
        blocks = (kernels["blocks"] * np.maximum(kernels["mix_ratio"], 1)).astype(np.int64)
        of = np.repeat(np.arange(len(rows)), blocks)
        number = np.arange(len(of)) - (np.cumsum(blocks) - blocks)[of]
        cycles = np.floor(one_core)[of]
        half = counters.work_of(kernels, np.floor(one_core) * blocks, cube=False, other_half=True)
        of_block = counters.counts(half, self._metrics, METRIC_EVENTS[self._metrics][1]) // blocks[:, None].astype(np.uint64)
        at = rows[of]
        self.writer.block_counters(
            stream=ran.stream[at], task=task[at], core="MIX_AIC", vector=1, core_id=self._chip.ai_cores + number, block=number // 2,
            sub_block=number % 2, cycles=cycles.astype(np.uint64), counters=of_block[of],
            start_ns=ran.start[at], end_ns=ran.end[at],
        )  # fmt: skip
