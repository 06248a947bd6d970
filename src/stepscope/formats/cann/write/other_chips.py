# SPDX-License-Identifier: Apache-2.0
"""Device records of chips other than A2 from plain columns: 910A and 310P, 310, 950 (docs/formats/cann.md 6.7 to 6.9)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from stepscope.formats.cann import layouts
from stepscope.formats.cann.chips import CHIPS, HWTS_TYPES, NEXT_STARS_TYPES, STARS_TYPES
from stepscope.formats.cann.layouts import Layout
from stepscope.formats.cann.write.device import DeviceWriter, padded
from stepscope.formats.cann.write.folder import ProfWriter, reorder, rows

_START, _END, _TASK_COUNTERS = 0, 1, 5
_STEP_TRACE, _TASK_STATE, _TIMELINE, _EVENT_COUNTER = 10, 12, 3, 4
_AI_CPU = 1  # number of its type, in A2's sqe types and in task states
_WAITING, _RUNNING, _COMPLETE = 1, 2, 3
_OF_TASK, _OF_BLOCK, _MAIN, _MIX = 42, 41, 1, 2
_FUSION_START, _FUSION_END, _BLOCK_START, _BLOCK_END = 22, 23, 36, 37
_HWTS_BLOCK_START, _HWTS_BLOCK_END, _HWTS_BLOCK_COUNTERS, _BLOCK_SIZE = 2, 3, 4, 15
_RENAMED = {
    "AI_CPU": "AICPU_D",
    "DSA_SQE": "SDMA_SQE",
    "EVENT_RECORD_SQE": "PLACE_HOLDER_SQE",
    "EVENT_WAIT_SQE": "PLACE_HOLDER_SQE",
}


def device_writer(writer: ProfWriter, device: int) -> DeviceWriter:
    """The writer of the records that the session's chip has."""
    chip = CHIPS.get(writer.session.chip.platform)
    kinds = {"hwts": HwtsWriter, "timeline": TimelineWriter, "stars_32": UniqueIdWriter}
    return kinds.get(chip.tasks if chip else "", DeviceWriter)(writer, device)


def _numbers(types: Mapping[int, str]) -> npt.NDArray[np.int64]:
    """Number of a type of task on this chip for each sqe type of A2; what the chip does not know is a place holder."""
    known = {name: number for number, name in types.items()}
    return np.array([known.get(name, known.get(_RENAMED.get(name, ""), 3)) for _, name in sorted(STARS_TYPES.items())])


class HwtsWriter(DeviceWriter):
    """Chips 1 to 4. They have one kind of core, and no tasks in parts."""

    _types = _numbers(HWTS_TYPES)

    def tasks(self, *, stream: Any, task: Any, start_ns: Any, end_ns: Any, batch: Any = 0, sqe: Any = 0, mix: Any = 0) -> None:
        del mix
        stream, task, start, end, batch, sqe = np.broadcast_arrays(
            stream, task, np.atleast_1d(self.ticks(start_ns)), self.ticks(end_ns), batch, sqe
        )
        end = np.maximum(end, start + np.uint64(1))
        chip = CHIPS[self.session.chip.platform]
        # The 910A's scheduler does not run AI CPU kernels; their times are states of tasks.
        elsewhere = (sqe == _AI_CPU) & (_AI_CPU in chip.states)
        here = np.flatnonzero(~elsewhere)
        types = self._types[np.minimum(sqe[here], len(self._types) - 1)] if chip.types else np.zeros(len(here))
        fields = {"stream": stream[here], "task": task[here], "type": types}
        parts = [rows(layouts.HWTS, head=kind, counter=at[here], **fields) for kind, at in ((_START, start), (_END, end))]
        self._append_in_order(layouts.HWTS, parts, "counter", shift=4)
        for state, at in ((1, start), (2, end)):
            self.states(stream=stream[elsewhere], task=task[elsewhere], task_type=_AI_CPU, state=state, ticks=at[elsewhere])
        self._flips(self._flip_finder.flips(stream, batch, start))

    def states(self, *, stream: Any, task: Any, task_type: Any, state: Any, ticks: Any) -> None:
        """States of tasks in `ts_track`; the state shares bytes with nothing else."""
        found = rows(
            layouts.TS_TRACK, mode=1, kind=_TASK_STATE, size=40, counter=np.atleast_1d(ticks), stream=stream, task=task,
            task_type=task_type,
        )  # fmt: skip
        found["status"] = state
        self.append(layouts.TS_TRACK, found)

    def counters(
        self, *, stream: Any, task: Any, core: str, cycles: Any, counters: Any, start_ns: Any, end_ns: Any, context: Any = 0
    ) -> None:
        del core, start_ns, end_ns, context  # records have no time
        found = rows(
            layouts.AICORE, head=_TASK_COUNTERS, stream=np.atleast_1d(stream), task=task, cycles=cycles,
            counters=padded(counters, 8), overflow_cycles=np.uint64((1 << 64) - 1),
        )  # fmt: skip
        self._append_in_order(layouts.AICORE, [found], "", shift=4)

    def block_counters(self, **columns: Any) -> None:
        """Nothing: a kernel has no second half."""

    def blocks(self, *, stream: Any, task: Any, core_id: Any, block: Any, start_ns: Any, end_ns: Any, cycles: Any = None) -> None:
        """Blocks of tasks on single cores, with the cycles of each where they are known."""
        fields = {"stream": np.atleast_1d(stream), "task": task, "block": block}
        times = ((_HWTS_BLOCK_START, start_ns), (_HWTS_BLOCK_END, end_ns))
        parts = [rows(layouts.HWTS, head=kind, counter=self.ticks(at), type=core_id, **fields) for kind, at in times]
        self._append_in_order(layouts.HWTS, parts, "counter", shift=4)
        if cycles is not None:
            counted = rows(layouts.HWTS_BLOCK, head=_HWTS_BLOCK_COUNTERS, core_id=core_id, cycles=cycles, **fields)
            self._append_in_order(layouts.HWTS_BLOCK, [counted], "", shift=4)

    def block_sizes(self, *, stream: Any, task: Any, blocks: Any, at_ns: Any, mix_ratio: Any = 0) -> None:
        """Blocks of tasks whose size the device itself chose."""
        size = np.asarray(mix_ratio, np.int64) << 16 | np.asarray(blocks, np.int64)
        self.append(
            layouts.TS_TRACK,
            rows(layouts.TS_TRACK, mode=1, kind=_BLOCK_SIZE, size=40, counter=np.atleast_1d(self.ticks(at_ns)), stream=stream,
                 task=task, blocks=size),
        )  # fmt: skip

    def _append_in_order(self, layout: Layout, parts: list[npt.NDArray[Any]], time: str, *, shift: int) -> None:
        """In order of time, with the running 4-bit number by which readers notice losses."""
        records = np.concatenate([part.view(np.uint8) for part in parts]).view(layout.dtype)
        if time:
            records = reorder(records, np.argsort(records[time], kind="stable"))
        running = self._running.get(layout.file, 0)
        records["head"] |= ((np.arange(len(records)) + running) % 16 << shift).astype(records["head"].dtype)
        self._running[layout.file] = running + len(records)
        self.append(layout, records)


class TimelineWriter(HwtsWriter):
    """The 310: states of tasks, and counters with their blocks."""

    def tasks(self, *, stream: Any, task: Any, start_ns: Any, end_ns: Any, batch: Any = 0, sqe: Any = 0, mix: Any = 0) -> None:
        del batch, mix
        stream, task, start, end, sqe = np.broadcast_arrays(
            stream, task, np.atleast_1d(self.ticks(start_ns)), self.ticks(end_ns), sqe
        )
        kinds = np.where(sqe == _AI_CPU, 1, 0)
        parts = [
            rows(
                layouts.TIMELINE, mode=1, kind=_TIMELINE, size=layouts.TIMELINE.size, task_type=kinds, state=state, stream=stream,
                task=task, counter=at, device=self.device,
            )
            for state, at in ((_WAITING, start), (_RUNNING, start), (_COMPLETE, np.maximum(end, start + np.uint64(1))))
        ]  # fmt: skip
        records = np.concatenate([part.view(np.uint8) for part in parts]).view(layouts.TIMELINE.dtype)
        self.append(layouts.TIMELINE, reorder(records, np.argsort(records["counter"], kind="stable")))

    def counters(
        self, *, stream: Any, task: Any, core: str, cycles: Any, counters: Any, start_ns: Any, end_ns: Any, context: Any = 0,
        blocks: Any = 1,
    ) -> None:  # fmt: skip
        del core, start_ns, context
        found = rows(
            layouts.EVENT_COUNTER, mode=1, kind=_EVENT_COUNTER, size=layouts.EVENT_COUNTER.size, stream=np.atleast_1d(stream),
            task=task, cycles=cycles, counters=padded(counters, 8), counter=self.ticks(end_ns), block_num=blocks,
            overflow_cycles=np.uint64((1 << 64) - 1),
        )  # fmt: skip
        self.append(layouts.EVENT_COUNTER, found)


class UniqueIdWriter(DeviceWriter):
    """The 950: one number per task, no streams, counters of both halves of a MIX kernel."""

    _types = _numbers(NEXT_STARS_TYPES)

    def tasks(self, *, stream: Any, task: Any, start_ns: Any, end_ns: Any, batch: Any = 0, sqe: Any = 0, mix: Any = 0) -> None:
        del stream, batch, mix
        task, start, end, sqe = np.broadcast_arrays(task, np.atleast_1d(self.ticks(start_ns)), self.ticks(end_ns), sqe)
        head = self._types[np.minimum(sqe, len(self._types) - 1)] << 10
        end = np.maximum(end, start + np.uint64(1))
        parts = [rows(layouts.STARS_32, head=head | kind, counter=at, task=task) for kind, at in ((_START, start), (_END, end))]
        self._append_numbered(layouts.STARS_32, parts, "counter")

    def counters(
        self, *, stream: Any, task: Any, core: str, cycles: Any, counters: Any, start_ns: Any, end_ns: Any, context: Any = 0
    ) -> None:
        del stream, context
        flags = _MAIN | (_MIX if core.startswith("MIX") else 0)
        self._counters(task, core.endswith("AIV"), flags, cycles, counters, start_ns, end_ns)

    def block_counters(
        self, *, stream: Any, task: Any, core: str, vector: Any, core_id: Any, block: Any, cycles: Any, counters: Any,
        start_ns: Any, end_ns: Any, sub_block: Any = 0, context: Any = 0,
    ) -> None:  # fmt: skip
        """The other half of MIX kernels, as the sum of its blocks."""
        del stream, core, core_id, block, sub_block, context
        task, cycles, vector, first, last = np.broadcast_arrays(
            np.atleast_1d(task), cycles, vector, np.atleast_1d(start_ns), np.atleast_1d(end_ns)
        )
        values = np.broadcast_to(padded(counters, 10), (len(task), 10))
        numbers, place, of = np.unique(task, return_index=True, return_inverse=True)
        sums = np.zeros((len(numbers), 11), np.uint64)
        np.add.at(sums, of, np.concatenate([values, cycles.astype(np.uint64)[:, None]], axis=1))
        self._counters(numbers, vector[place] == 1, _MIX, sums[:, 10], sums[:, :10], first[place], last[place])

    def fusions(self, *, task: Any, type: Any, start_ns: Any, end_ns: Any, mission: Any = 0, accelerator: Any = 0) -> None:
        """Sub tasks of fusions; `type` is the bit of what each runs on: 0 CPU, 1 AICPU, 2 AICORE, 3 and 4 CCU."""
        fusion = np.asarray(mission, np.int64) << 5 | 1 << np.asarray(type, np.int64)
        fields = {"task": np.atleast_1d(task), "fusion": fusion, "accelerator": accelerator}
        times = ((_FUSION_START, start_ns), (_FUSION_END, end_ns))
        fused = next(number for number, name in NEXT_STARS_TYPES.items() if name == "FUSION") << 10
        parts = [rows(layouts.STARS_32, head=fused | kind, counter=self.ticks(at), **fields) for kind, at in times]
        self._append_numbered(layouts.STARS_32, parts, "counter")

    def blocks(self, *, task: Any, vector: Any, core_id: Any, block: Any, start_ns: Any, end_ns: Any) -> None:
        """The scheduler's log of blocks on single cores."""
        fields = {"task": np.atleast_1d(task), "core": np.asarray(vector, np.uint8), "core_id": core_id, "block": block}
        times = ((_BLOCK_START, start_ns), (_BLOCK_END, end_ns))
        parts = [rows(layouts.STARS_BLOCK, head=kind, counter=self.ticks(at), **fields) for kind, at in times]
        self._append_numbered(layouts.STARS_BLOCK, parts, "counter")

    def counted_blocks(
        self, *, task: Any, vector: Any, core_id: Any, block: Any, cycles: Any, counters: Any, start_ns: Any, end_ns: Any
    ) -> None:
        """Blocks on single cores with their counters."""
        start = np.atleast_1d(self.ticks(start_ns))
        found = rows(
            layouts.PMU_128, head=_OF_BLOCK, task=np.atleast_1d(task), cycles=cycles, core=np.asarray(vector, np.uint8),
            core_id=core_id, block=block, counters=padded(counters, 10), start=start,
            end=np.maximum(np.atleast_1d(self.ticks(end_ns)), start),
        )  # fmt: skip
        self._append_numbered(layouts.PMU_128, [found], "end")

    def block_sizes(self, *, task: Any, blocks: Any, at_ns: Any, mix_ratio: Any = 0) -> None:
        """Blocks of tasks whose size the device itself chose."""
        size = np.asarray(mix_ratio, np.int64) << 16 | np.asarray(blocks, np.int64)
        self.append(
            layouts.TS_TRACK_NEXT,
            rows(layouts.TS_TRACK_NEXT, mode=1, kind=_BLOCK_SIZE, size=40, counter=np.atleast_1d(self.ticks(at_ns)), task=task,
                 blocks=size),
        )  # fmt: skip

    def _counters(self, task: Any, vector: Any, flags: int, cycles: Any, counters: Any, start_ns: Any, end_ns: Any) -> None:
        start = np.atleast_1d(self.ticks(start_ns))
        found = rows(
            layouts.PMU_128, head=_OF_TASK, task=task, cycles=cycles, flags=flags, core=np.asarray(vector, np.uint8),
            counters=padded(counters, 10), start=start, end=np.maximum(np.atleast_1d(self.ticks(end_ns)), start),
        )  # fmt: skip
        self._append_numbered(layouts.PMU_128, [found], "end")

    def steps(self, *, index: Any, model: Any, stream: Any, task: Any, tag: Any, at_ns: Any) -> None:
        records = rows(
            layouts.TS_TRACK_NEXT, mode=1, kind=_STEP_TRACE, size=40, counter=np.atleast_1d(self.ticks(at_ns)), index=index,
            model=model, step_stream=stream, step_task=task, step_tag=tag,
        )  # fmt: skip
        self.append(layouts.TS_TRACK_NEXT, records)
