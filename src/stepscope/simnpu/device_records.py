# SPDX-License-Identifier: Apache-2.0
"""Tasks of one device as device records of a raw folder, with the counters of their cores, and marks (docs/formats/cann.md 4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stepscope.formats.cann.write import device as device_writer
from stepscope.formats.cann.write.folder import ProfWriter
from stepscope.formats.cann.write.other_chips import device_writer as device_writer_of
from stepscope.formats.cann.write.settings import A2, metric_events
from stepscope.simnpu import counters
from stepscope.simnpu.descriptions import AI_CORE, AI_CPU, AI_VECTOR_CORE, MIX_AIC, MIX_AIV

_CORES = {AI_CORE: ("AIC", True), AI_VECTOR_CORE: ("AIV", False), MIX_AIC: ("MIX_AIC", True), MIX_AIV: ("MIX_AIV", False)}
_NO_MODEL = 0xFFFF_FFFF
_RANGE_TAGS = np.array([11, 12, 12])  # a mark, the start and the end of a range


@dataclass(frozen=True)
class DeviceTasks:
    """Tasks of one device in queue order; times in nanoseconds since 1970."""

    stream: npt.NDArray[Any]
    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    sqe: npt.NDArray[Any]
    kernels: npt.NDArray[Any]  # rows of `Descriptions`
    is_kernel: npt.NDArray[np.bool_]
    mark: npt.NDArray[Any]  # number of a mark, else 0
    mark_side: npt.NDArray[Any]  # 0 mark, 1 start, 2 end of a range


class DeviceRecords:
    """Writes the tasks of one device; counters and cache events as the session's settings request them."""

    def __init__(self, writer: ProfWriter, device: int, *, l2_cache: bool, start_ns: int | None) -> None:
        self.writer = device_writer_of(writer, device)
        session = writer.session
        self._events = metric_events(session.chip.platform)
        self._chip, self._level, self._l2_cache = session.chip, session.level, l2_cache
        self._metrics = session.metrics if session.metrics in self._events and session.level else ""
        is_a2 = session.chip.platform == A2
        self._l2_cache &= is_a2  # other chips count other events for their caches
        if start_ns is not None and is_a2:
            self.writer.frequency(at_ns=np.array([start_ns]), value=session.chip.core_mhz)

    def write(self, tasks: DeviceTasks, task: npt.NDArray[Any], batch: npt.NDArray[Any]) -> None:
        core = tasks.kernels["core"]
        mix = np.where(core == MIX_AIC, device_writer.MIX_AIC, np.where(core == MIX_AIV, device_writer.MIX_AIV, 0))
        self.writer.tasks(
            stream=tasks.stream, task=task, batch=batch, start_ns=tasks.start, end_ns=tasks.end, sqe=tasks.sqe,
            mix=np.where(tasks.is_kernel, mix, 0),
        )  # fmt: skip
        if self._metrics:
            for number in _CORES:
                self._counters(tasks, task, np.flatnonzero(tasks.is_kernel & (core == number)), number)
        if self._l2_cache:
            rows = np.flatnonzero(tasks.is_kernel & (core != AI_CPU))
            if len(rows):
                events = counters.cache_events(tasks.kernels[rows])
                self.writer.cache_of_tasks(stream=tasks.stream[rows], task=task[rows], events=events)
        if self._level >= 2:
            rows = np.flatnonzero(tasks.is_kernel & (core == AI_CPU))
            if len(rows):
                self.writer.ai_cpu(stream=tasks.stream[rows], task=task[rows], start_ns=tasks.start[rows], end_ns=tasks.end[rows])
        rows = np.flatnonzero(tasks.mark)
        if len(rows):
            self.writer.steps(
                index=tasks.mark[rows], model=_NO_MODEL, stream=tasks.stream[rows], task=task[rows],
                tag=_RANGE_TAGS[tasks.mark_side[rows]], at_ns=tasks.start[rows],
            )  # fmt: skip

    def _counters(self, tasks: DeviceTasks, task: npt.NDArray[Any], rows: npt.NDArray[np.int64], core: int) -> None:
        if not len(rows):
            return
        name, cube = _CORES[core]
        kernels, events = tasks.kernels[rows], self._events[self._metrics]
        # The reader's total time is cycles / frequency / blocks, with at most as many blocks as cores.
        one_core = (tasks.end - tasks.start)[rows] / 1000 * self._chip.core_mhz * counters.BUSY
        cycles = np.floor(one_core * kernels["blocks"])
        work = counters.work_of(kernels, cycles, cube=cube)
        times = {"start_ns": tasks.start[rows], "end_ns": tasks.end[rows]}
        self.writer.counters(
            stream=tasks.stream[rows], task=task[rows], core=name, cycles=cycles.astype(np.uint64),
            counters=counters.counts(work, self._metrics, events[0 if cube else 1]), **times,
        )  # fmt: skip
        if core == MIX_AIC:
            self._vector_blocks(tasks, task, rows, one_core)

    def _vector_blocks(
        self, tasks: DeviceTasks, task: npt.NDArray[Any], rows: npt.NDArray[np.int64], one_core: npt.NDArray[Any]
    ) -> None:
        """The vector half of MIX_AIC kernels: a record for each of its blocks."""
        kernels = tasks.kernels[rows]
        blocks = (kernels["blocks"] * np.maximum(kernels["mix_ratio"], 1)).astype(np.int64)
        of = np.repeat(np.arange(len(rows)), blocks)
        number = np.arange(len(of)) - (np.cumsum(blocks) - blocks)[of]
        cycles = np.floor(one_core)[of]
        half = counters.work_of(kernels, np.floor(one_core) * blocks, cube=False, other_half=True)
        of_block = counters.counts(half, self._metrics, self._events[self._metrics][1]) // blocks[:, None].astype(np.uint64)
        at = rows[of]
        self.writer.block_counters(
            stream=tasks.stream[at], task=task[at], core="MIX_AIC", vector=1, core_id=self._chip.ai_cores + number,
            block=number // 2, sub_block=number % 2, cycles=cycles.astype(np.uint64), counters=of_block[of],
            start_ns=tasks.start[at], end_ns=tasks.end[at],
        )  # fmt: skip
