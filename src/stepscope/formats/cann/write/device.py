# SPDX-License-Identifier: Apache-2.0
"""Device records from plain columns: tasks, counters of cores, frequency, memory and other samples (docs/formats/cann.md 4, 5)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from stepscope.formats.cann import layouts
from stepscope.formats.cann.layouts import Layout
from stepscope.formats.cann.write.folder import ProfWriter, reorder, rows
from stepscope.formats.cann.write.task_ids import FlipFinder, StreamFlips
from stepscope.formats.cann.write.type_names import AICPU, FLIP_TASK

MIX_AIC, MIX_AIV = 6, 7  # sub task types of MIX kernels (docs/formats/cann.md 4.1)
_FFTS_PLUS = 4
# Core kind -> FFTS type and sub task type of a PMU record (docs/formats/cann.md 4.2).
_CORES = {"AIC": (0, 0), "AIV": (1, 0), "MIX_AIC": (_FFTS_PLUS, MIX_AIC), "MIX_AIV": (_FFTS_PLUS, MIX_AIV)}
_START, _END, _SUB_START, _SUB_END, _TASK_PMU, _BLOCK_PMU = 0, 1, 34, 35, 40, 41
_STEP_TRACE, _FLIP = 10, 14


def encode_ids(stream: Any, task: Any, *, wide: bool = True, swapped: Any = False) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """The two 16-bit fields that hold a stream and a task; MIX kernels have them swapped (docs/formats/cann.md 4.3)."""
    stream, task, swapped = np.asarray(stream, np.int64), np.asarray(task, np.int64), np.asarray(swapped, bool)
    low, mark = (0x7FFF, 0x8000) if wide else (0x0FFF, 0x2000)
    first = np.where(swapped, mark | task & low, stream)
    second = np.where(swapped, stream | task & ~low & 0xFFFF, task)
    return first, second


class DeviceWriter:
    """One device's part of a folder; keeps the running counters and flips of its streams."""

    def __init__(self, writer: ProfWriter, device: int, *, wide: bool = True) -> None:
        self._writer, self.device, self._wide = writer, device, wide
        self.session = writer.session
        self._clock = writer.clock(device)
        self._host_clock = writer.clock()
        self._flip_finder = FlipFinder()
        self._running: dict[str, int] = {}

    def ticks(self, ns: Any) -> npt.NDArray[np.uint64]:
        return self._clock.ticks(np.asarray(ns))

    def append(self, layout: Layout, records: npt.NDArray[Any]) -> None:
        self._writer.append(layout, records, device=self.device)

    def tasks(self, *, stream: Any, task: Any, start_ns: Any, end_ns: Any, batch: Any = 0, sqe: Any = 0, mix: Any = 0) -> None:
        """Start and end of tasks, with flips where a stream's batch rises; `mix` is MIX_AIC or MIX_AIV for such kernels.

        Tasks of a stream must not overlap, or flips cannot be derived from their times.
        """
        stream, task, start, end, batch, sqe, mix = np.broadcast_arrays(
            stream, task, np.atleast_1d(self.ticks(start_ns)), self.ticks(end_ns), batch, sqe, mix
        )
        end = np.maximum(end, start + np.uint64(1))
        first, second = encode_ids(stream, task, wide=self._wide, swapped=mix != 0)
        whole = {"stream": first, "task": second}
        records = [
            rows(layouts.STARS, head=sqe << 10 | _START, counter=start, **whole),
            rows(layouts.STARS, head=sqe << 10 | _END, counter=end, **whole),
        ]
        inner = np.flatnonzero(mix)
        if len(inner):
            sub = {"stream": first[inner], "task": second[inner], "sub_type": mix[inner], "ffts": _FFTS_PLUS << 13}
            inner_end = np.maximum(end[inner] - np.uint64(1), start[inner] + np.uint64(1))
            records.append(rows(layouts.STARS, head=_SUB_START, counter=start[inner], **sub))
            records.append(rows(layouts.STARS, head=_SUB_END, counter=inner_end, **sub))
        # Of one moment, an end comes before the next start, a sub task inside its task: by time, then as built.
        self._append_numbered(layouts.STARS, records, "counter")
        self._flips(self._flip_finder.flips(stream, batch, start))

    def _flips(self, flips: StreamFlips) -> None:
        self.append(
            layouts.TS_TRACK,
            rows(
                layouts.TS_TRACK, mode=1, kind=_FLIP, size=40, counter=flips.stamp, stream=flips.stream, flip=flips.number,
                task_type=FLIP_TASK, flip_task=np.zeros(len(flips)),
            ) if len(flips) else np.empty(0, layouts.TS_TRACK.dtype),
        )  # fmt: skip

    def steps(self, *, index: Any, model: Any, stream: Any, task: Any, tag: Any, at_ns: Any) -> None:
        """Step-trace records; tag 11 is a mark, 12 a range (docs/formats/cann.md 4.5), then the index is the mark's number."""
        records = rows(
            layouts.TS_TRACK, mode=1, kind=_STEP_TRACE, size=40, counter=np.atleast_1d(self.ticks(at_ns)), index=index, model=model,
            step_stream=stream, step_task=task, step_tag=tag,
        )  # fmt: skip
        self.append(layouts.TS_TRACK, records)

    def counters(
        self, *, stream: Any, task: Any, core: str, cycles: Any, counters: Any, start_ns: Any, end_ns: Any, context: Any = 0
    ) -> None:
        """Counters of whole tasks on cores of one kind: AIC, AIV, MIX_AIC or MIX_AIV; times are the task's."""
        ffts, sub_type = _CORES[core]
        fields = self._pmu(stream, task, core, start_ns, end_ns)
        records = rows(
            layouts.PMU, head=_TASK_PMU, sub_type=sub_type, sub_task=context, ffts=ffts << 13, cycles=cycles,
            counters=padded(counters, 8), **fields,
        )  # fmt: skip
        self._append_numbered(layouts.PMU, [records], "end")

    def block_counters(
        self, *, stream: Any, task: Any, core: str, vector: Any, core_id: Any, block: Any, cycles: Any, counters: Any,
        start_ns: Any, end_ns: Any, sub_block: Any = 0, context: Any = 0,
    ) -> None:  # fmt: skip
        """Counters of single blocks of tasks of kind `core`; `vector` says on which core a block ran."""
        ffts, sub_type = _CORES[core]
        fields = self._pmu(stream, task, core, start_ns, end_ns)
        where = np.asarray(core_id, np.uint8) << 1 | np.asarray(vector, np.uint8)
        records = rows(
            layouts.PMU, head=_BLOCK_PMU, sub_type=sub_type, sub_task=context, core=where, block_ffts=ffts << 5, block=block,
            sub_block=sub_block, cycles=cycles, counters=padded(counters, 8), **fields,
        )  # fmt: skip
        self._append_numbered(layouts.PMU, [records], "end")

    def _pmu(self, stream: Any, task: Any, core: str, start_ns: Any, end_ns: Any) -> dict[str, Any]:
        first, second = encode_ids(stream, task, wide=self._wide, swapped=core.startswith("MIX"))
        start = np.atleast_1d(self.ticks(start_ns))
        # A tick before the task's end: batches are derived from it, and the next task may begin in the same tick.
        end = np.maximum(np.atleast_1d(self.ticks(end_ns)) - np.uint64(1), start)
        return {"stream": first, "task": second, "start": start, "end": end}

    def _append_numbered(self, layout: Layout, parts: list[npt.NDArray[Any]], time: str) -> None:
        """In order of time, with the running 4-bit number by which readers notice losses."""
        records = np.concatenate([part.view(np.uint8) for part in parts]).view(layout.dtype)
        records = reorder(records, np.argsort(records[time], kind="stable"))
        running = self._running.get(layout.file, 0)
        records["head"] |= ((np.arange(len(records)) + running) % 16 << 6).astype(np.uint16)
        self._running[layout.file] = running + len(records)
        self.append(layout, records)

    def frequency(self, *, at_ns: Any, value: Any, kind: int = 0) -> None:
        """Points of core frequency in MHz (kind 0), core (1) or bus (2) voltage in mV, 55 to a record."""
        counter, value = np.broadcast_arrays(np.atleast_1d(self.ticks(at_ns)), value)
        for at in range(0, len(counter), 55):
            points = np.zeros(55, layouts.LPM_POINT)
            count = len(counter[at : at + 55])
            points["counter"][:count], points["value"][:count] = counter[at : at + 55], value[at : at + 55]
            self.append(layouts.LPM_INFO, rows(layouts.LPM_INFO, count=count, kind=kind, points=points[np.newaxis]))

    def hbm(self, *, at_ns: Any, event: Any, instance: Any, count: Any) -> None:
        """Accesses of a memory since the last sample: event 0 reads, 1 writes, of 32 bytes each."""
        self._sampled(layouts.HBM, layouts.HBM_2, at_ns, event=event, instance=instance, count=count)

    def cache(self, *, at_ns: Any, event: Any, instance: Any, count: Any) -> None:
        """Events of the last-level cache since the last sample."""
        self._sampled(layouts.LLC, layouts.LLC_2, at_ns, event=event, instance=instance, count=count)

    def memory(self, *, at_ns: Any, hbm: Any, ddr: Any = 0, app: bool = False) -> None:
        """Bytes in use: of the whole device or of this process."""
        if app:
            self._sampled(layouts.NPU_MEM_APP, layouts.NPU_MEM_APP_2, at_ns, event=0, ddr=ddr, hbm=hbm)
        else:
            self._sampled(layouts.NPU_MEM, layouts.NPU_MEM_2, at_ns, event=1, ddr=ddr, hbm=hbm)

    def _sampled(self, old: Layout, new: Layout, at_ns: Any, **fields: Any) -> None:
        layout = new if self._writer.session.version == "2.0" else old
        microseconds = (np.atleast_1d(at_ns) - self._writer.session.sampled_zero_ns) // 1000
        self.append(layout, rows(layout, time_us=microseconds, **fields))

    def module_memory(self, *, at_ns: Any, module: Any, bytes: Any) -> None:
        """Bytes held by a module, such as 3 HCCL or 33 the application; stamped by the host's counter."""
        counter = np.atleast_1d(self._host_clock.ticks(np.asarray(at_ns)))
        self.append(layouts.NPU_MODULE_MEM, rows(layouts.NPU_MODULE_MEM, counter=counter, module=module, bytes=bytes))

    def pcie(self, *, raw_ns: Any, values: Any) -> None:
        """Samples of PCIe: least, most and mean of seven counters each, stamped by the device's monotonic clock."""
        records = rows(layouts.PCIE, counter=np.asarray(raw_ns, np.uint64), device=self.device, values=values)
        self.append(layouts.PCIE, records)

    def text(self, file: str, lines: str) -> None:
        """Lines of a file that holds text, such as hccs.data."""
        self._writer.append_text(f"{file}.{self.device}", lines, device=self.device)

    def cache_of_tasks(self, *, stream: Any, task: Any, events: Any, task_type: Any = 0) -> None:
        """L2 cache events of tasks, in the order of the session's `l2CacheTaskProfilingEvents`."""
        fields = {"stream": np.atleast_1d(stream), "task": task, "task_type": task_type}
        self.append(layouts.L2_CACHE, rows(layouts.L2_CACHE, events=padded(events, 8), **fields))

    def ai_cpu(self, *, stream: Any, task: Any, start_ns: Any, end_ns: Any, dispatch_us: Any = 0, thread: int = 0) -> None:
        """Operators that ran on the device's CPU; copies are not separated from computing."""
        start, end = np.atleast_1d(self.ticks(start_ns)), np.atleast_1d(self.ticks(end_ns))
        offset = self._clock.epoch_offset_ns
        begin_us, end_us = (np.atleast_1d(start_ns) - offset) // 1000, (np.atleast_1d(end_ns) - offset) // 1000
        records = rows(
            layouts.AICPU, level=AICPU, type=0, length=232, tid=thread, stamp=start, stream=stream, task=task, device=self.device,
            run_start=begin_us, run_start_tick=start, compute_start=begin_us, memcpy_start=end_us, memcpy_end=end_us,
            run_end=end_us, run_end_tick=end, thread=thread, submit_tick=start, schedule_tick=start, before_run_tick=start,
            after_run_tick=end, dispatch_us=dispatch_us, total_us=end_us - begin_us,
        )  # fmt: skip
        self.append(layouts.AICPU, records)


def padded(counters: Any, count: int) -> npt.NDArray[np.uint64]:
    """Up to `count` counters per row; the rest are 0."""
    values = np.atleast_2d(np.asarray(counters, np.uint64))
    return np.pad(values, ((0, 0), (0, count - values.shape[1])))
