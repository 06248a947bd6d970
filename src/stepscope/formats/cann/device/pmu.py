# SPDX-License-Identifier: Apache-2.0
"""Hardware counters of tasks and of the blocks of MIX kernels, each with the task it belongs to (docs/formats/cann.md 4.2)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.formats.cann.device.flips import Flips, batch_ids
from stepscope.formats.cann.device.stars import counter_gaps, task_ids, task_keys, unread_functions
from stepscope.formats.cann.folder import Part
from stepscope.formats.cann.layouts import PMU
from stepscope.formats.cann.records import read_records
from stepscope.tables import issues, lost

Column = npt.NDArray[Any]

OF_TASK, OF_BLOCK = 40, 41
FFTS_PLUS = 4
AIC, AIV, MIX_AIC, MIX_AIV = range(4)
CORES = ("AIC", "AIV", "MIX_AIC", "MIX_AIV")

PMU_ROWS = {
    "task": pl.Int64(), "stream": pl.Int64(), "task_id": pl.Int64(), "batch_id": pl.Int64(), "context_id": pl.Int64(),
    "core": pl.Enum(CORES), "start_ticks": pl.UInt64(), "end_ticks": pl.UInt64(), "cycles": pl.UInt64(), "overflow": pl.Boolean(),
    "block_num": pl.Int64(),
}  # fmt: skip


@dataclass(frozen=True)
class Counters:
    """Records of function 40 that belong to a task, one per task, and the blocks of the other half of MIX kernels.

    `rows` is frame PMU_ROWS in the order of the tasks; `values` has its counters row by row. A block belongs to row
    `block_row`; blocks lie in the order of these rows and of the file. On chips that record the other half of a MIX
    kernel as a whole, that is its only block.
    """

    rows: pl.DataFrame
    values: npt.NDArray[np.uint64]  # (rows, 8 or 10)
    block_row: npt.NDArray[np.int64]
    block_cycles: npt.NDArray[np.uint64]
    block_values: npt.NDArray[np.uint64]  # (blocks, 8 or 10)
    block_ticks: npt.NDArray[np.uint64] = field(
        default_factory=lambda: np.empty((0, 2), np.uint64)
    )  # start and end, where recorded

    @property
    def core(self) -> npt.NDArray[Any]:
        return self.rows["core"].to_physical().to_numpy()


def core_kind(sub_type: Column, ffts: Column) -> npt.NDArray[np.uint8]:
    """Index into CORES from the sub task type and the FFTS type of a record."""
    plus = ffts == FFTS_PLUS
    cube = (ffts == 0) | (plus & (sub_type == 0))
    rest = np.where(cube, AIC, AIV)
    return np.where(plus & (sub_type == 6), MIX_AIC, np.where(plus & (sub_type == 7), MIX_AIV, rest)).astype(np.uint8)


def read_pmu(part: Part, wide: bool, flips: Flips, tasks: pl.DataFrame) -> tuple[Counters, list[pl.DataFrame]]:
    """Counters of the tasks in frame TASKS; records without a task there are counted and left out."""
    records = read_records(part, PMU)
    rows = records.rows
    head = np.ascontiguousarray(rows["head"])
    function = head & 63
    losses = [*records.lost, counter_gaps(head, PMU.file), *unread_functions(function, (OF_TASK, OF_BLOCK), PMU.file, PMU.size)]
    if not np.all((function == OF_TASK) | (function == OF_BLOCK)):
        rows = _select_records(rows, (function == OF_TASK) | (function == OF_BLOCK))
        function = rows["head"] & 63
    of_task = function == OF_TASK
    stream, task = task_ids(rows["stream"], rows["task"], 0, wide)
    ffts = np.ascontiguousarray(rows["ffts"]) >> 13  # the same bits in both kinds of record
    core = core_kind(rows["sub_type"] & 0xFF, ffts)
    # Blocks always name their context, tasks only as part of FFTS+.
    context = np.where(of_task & (ffts != FFTS_PLUS), -1, rows["sub_task"].astype(np.int64))
    end = np.ascontiguousarray(rows["end"])
    batch = batch_ids(stream, end, task, flips)
    found = _tasks_of(tasks, stream, task, batch, context, end)
    losses.append(lost(issues.UNMATCHED_COUNTERS, PMU.file, int(np.count_nonzero(of_task & (found < 0))), "of tasks"))

    chosen, superseded = _one_per_task(np.flatnonzero(of_task & (found >= 0)), found, end)
    losses.append(lost(issues.SUPERSEDED_COUNTERS, PMU.file, superseded))
    block_row, blocks, strays = _blocks(rows, np.flatnonzero(~of_task), found, core, chosen, tasks.height)
    losses.append(lost(issues.UNMATCHED_COUNTERS, PMU.file, strays, "of blocks"))
    frame = pl.DataFrame(
        {
            "task": found[chosen],
            "stream": stream[chosen],
            "task_id": task[chosen],
            "batch_id": batch[chosen],
            "context_id": context[chosen],
            "core": pl.Series(CORES, dtype=pl.Enum(CORES)).gather(core[chosen]),
            "start_ticks": rows["start"][chosen],
            "end_ticks": end[chosen],
            "cycles": rows["cycles"][chosen],
            "overflow": rows["sub_type"][chosen] & 0x400 != 0,
            "block_num": pl.repeat(None, len(chosen), dtype=pl.Int64, eager=True),
        },
        schema=PMU_ROWS,
    ).with_columns(pl.when(pl.col("context_id") >= 0).then("context_id").alias("context_id"))
    counters = Counters(
        frame, rows["counters"][chosen], block_row, np.ascontiguousarray(rows["cycles"][blocks]), rows["counters"][blocks]
    )
    return counters, [row for row in losses if row.height]


def _select_records(rows: Column, mask: Column) -> Column:
    """Chosen records; as bytes, since numpy would move the fields of a struct."""
    return rows.view(f"V{rows.dtype.itemsize}")[mask].view(rows.dtype)


def _tasks_of(tasks: pl.DataFrame, stream: Column, task: Column, batch: Column, context: Column, end: Column) -> Column:
    """Row of the task that was running when a record was closed; -1 when none was running."""
    if not tasks.height:
        return np.full(len(stream), -1)
    ids = [tasks[name].to_numpy() for name in ("stream", "task_id", "batch_id")]
    task_key = _keys(ids[0], ids[1], ids[2], tasks["context_id"].fill_null(-1).to_numpy())
    key = _keys(stream, task, batch, context)
    begin, finish = tasks["start_ticks"].to_numpy(), tasks["end_ticks"].to_numpy()
    order = np.argsort(task_key, kind="stable")  # tasks lie in the order of start
    keys = task_key[order]
    place = np.searchsorted(keys, key, "right") - 1
    found = order[np.maximum(place, 0)]
    found = np.where((place >= 0) & (keys[np.maximum(place, 0)] == key), found, -1)
    # Where a task ran several times: the last run that had begun.
    repeated = np.zeros(len(keys), bool)
    repeated[1:] = keys[1:] == keys[:-1]
    late = np.flatnonzero((found >= 0) & repeated[np.maximum(place, 0)])
    if len(late):
        found[late] = _last_begun(task_key, begin, key[late], end[late], repeated, order)
    inside = (found >= 0) & (begin[found] <= end) & (end <= finish[found])
    return np.where(inside, found, -1)


def _last_begun(task_key: Column, begin: Column, key: Column, time: Column, repeated: Column, order: Column) -> Column:
    """Row of the last task of a key with a start not after the time; -1 when there is none."""
    several = np.isin(task_key, task_key[order[repeated]])
    rows = np.flatnonzero(several)
    both_keys = np.concatenate([task_key[rows], key])
    both_times = np.concatenate([begin[rows], time])
    sorted_places = np.lexsort((both_times, both_keys))  # stable: a start stays before an equal time
    is_task = sorted_places < len(rows)
    last = np.maximum.accumulate(np.where(is_task, np.arange(len(sorted_places)), -1))
    before = sorted_places[np.maximum(last, 0)]
    fits = (last >= 0) & (both_keys[before] == both_keys[sorted_places])
    answer = np.full(len(both_keys), -1)
    answer[sorted_places] = np.where(fits, rows[np.minimum(before, len(rows) - 1)], -1)
    return answer[len(rows) :]


def _keys(stream: Column, task: Column, batch: Column, context: Column) -> npt.NDArray[np.uint64]:
    """Keys of module stars with 16 bits of the batch above them."""
    key: npt.NDArray[np.uint64] = task_keys(stream, task, context) | (batch.astype(np.uint64) << np.uint64(48))
    return key


def _one_per_task(places: Column, found: Column, end: Column) -> tuple[Column, int]:
    """The latest record of each task, in the order of tasks, and how many others there were."""
    order = places[np.lexsort((end[places], found[places]))]
    last = np.ones(len(order), bool)
    last[:-1] = found[order[1:]] != found[order[:-1]]
    return order[last], len(order) - int(np.count_nonzero(last))


def _blocks(rows: Column, places: Column, found: Column, core: Column, chosen: Column, count: int) -> tuple[Column, Column, int]:
    """Blocks of the other half of MIX kernels, the row of counters each belongs to, and how many belong nowhere."""
    row_of_task = np.full(count + 1, -1)
    row_of_task[found[chosen]] = np.arange(len(chosen))
    row = row_of_task[found[places]]  # found -1 takes the last place, which is -1
    strays = int(np.count_nonzero(row < 0))
    main = core[chosen][row] if len(chosen) else np.zeros(len(places), np.uint8)
    vector = rows["core"][places] & 1
    other_half = (core[places] == main) & (((main == MIX_AIC) & (vector == 1)) | ((main == MIX_AIV) & (vector == 0)))
    row, kept = row[(row >= 0) & other_half], places[(row >= 0) & other_half]
    order = np.argsort(row, kind="stable")
    return row[order], kept[order], strays
