# SPDX-License-Identifier: Apache-2.0
"""When each task ran on the 950, whose records have one number per task and no stream (docs/formats/cann.md 6.9)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.formats.cann.chips import Chip
from stepscope.formats.cann.device.pmu import AIC, AIV, CORES, MIX_AIC, MIX_AIV, PMU_ROWS, Counters
from stepscope.formats.cann.device.stars import counter_gaps, unread_functions
from stepscope.formats.cann.device.task_frame import pair, task_frame, turns, type_texts
from stepscope.formats.cann.device.ts_track import Track
from stepscope.formats.cann.folder import Part
from stepscope.formats.cann.layouts import PMU_128, STARS_32
from stepscope.formats.cann.records import read_records
from stepscope.tables import issues, lost

Column = npt.NDArray[Any]

TASK_START, TASK_END = 0, 1
FUSION_START, FUSION_END, BLOCK_START, BLOCK_END = 22, 23, 36, 37  # parts of tasks: see `task_parts`
OF_TASK, OF_BLOCK = 42, 41
MAIN_CORE, MIX, OVERFLOW = 1, 2, 4  # bits of a counter record's flags
NO_STREAM = 0xFFFF  # of a task that the host did not queue


def read_tasks(part: Part, chip: Chip, track: Track, queued: pl.DataFrame | None) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
    """Frame TASKS in the order of start, and what was lost; the stream of a task is the one that the host queued it on."""
    del track
    records = read_records(part, STARS_32)
    rows = records.rows
    head = np.ascontiguousarray(rows["head"])
    function = head & 63
    losses = [*records.lost, counter_gaps(head, STARS_32.file)]
    losses += unread_functions(function, (TASK_START, TASK_END, FUSION_START, FUSION_END), STARS_32.file, STARS_32.size)
    task, counter = rows["task"].astype(np.int64), np.ascontiguousarray(rows["counter"])
    starts, ends = np.flatnonzero(function == TASK_START), np.flatnonzero(function == TASK_END)
    first, last = pair(task[starts], counter[starts], task[ends], counter[ends])
    losses.append(lost(issues.START_WITHOUT_END, STARS_32.file, len(starts) - len(first), "device tasks"))
    losses.append(lost(issues.END_WITHOUT_START, STARS_32.file, len(ends) - len(last), "device tasks"))
    first, last = starts[first], ends[last]
    frame = task_frame(
        part, stream=host_streams(task[first], queued), task=task[first], start=counter[first], end=counter[last],
        device_type=type_texts(head[first] >> 10, chip.types, 64),
    )  # fmt: skip
    return frame, [row for row in losses if row.height]


def host_streams(task: Column, queued: pl.DataFrame | None) -> Column:
    """The stream of each task by the host's word, the first where it has several."""
    if queued is None or not queued.height:
        return np.full(len(task), NO_STREAM)
    words = queued.select("task_id", "stream").unique("task_id", keep="first", maintain_order=True)
    found = pl.DataFrame({"task_id": task}).join(words, on="task_id", how="left", maintain_order="left")
    return found["stream"].fill_null(NO_STREAM).to_numpy()


def read_pmu(part: Part, chip: Chip, tasks: pl.DataFrame, queued: pl.DataFrame | None) -> tuple[Counters, list[pl.DataFrame]]:
    """Counters of tasks: one record of the main core, and one of the other core for a MIX kernel."""
    del chip, queued
    records = read_records(part, PMU_128)
    rows = records.rows
    function = rows["head"] & 63
    losses = [*records.lost, counter_gaps(np.ascontiguousarray(rows["head"]), PMU_128.file)]
    losses += unread_functions(function, (OF_TASK, OF_BLOCK), PMU_128.file, PMU_128.size)
    too_large = (function == OF_TASK) & (rows["flags"] & OVERFLOW != 0)
    losses.append(lost(issues.SUPERSEDED_COUNTERS, PMU_128.file, int(np.count_nonzero(too_large)), "overflowed"))
    rows = rows.view(f"V{PMU_128.size}")[(function == OF_TASK) & ~too_large].view(PMU_128.dtype)
    main = rows["flags"] & MAIN_CORE != 0
    row_of = _nth_runs(rows["task"], main, tasks)
    losses.append(lost(issues.UNMATCHED_COUNTERS, PMU_128.file, int(np.count_nonzero(row_of < 0)), "of tasks"))
    chosen = np.flatnonzero(main & (row_of >= 0))
    chosen = chosen[np.argsort(row_of[chosen], kind="stable")]
    vector, mixed = rows["core"][chosen] & 1, rows["flags"][chosen] & MIX != 0
    core = np.where(mixed, np.where(vector, MIX_AIV, MIX_AIC), np.where(vector, AIV, AIC))
    task = row_of[chosen]
    frame = tasks.select("stream", "task_id", "batch_id", "context_id")[task].with_columns(
        pl.Series("task", task),
        pl.Series(CORES, dtype=pl.Enum(CORES)).gather(core).alias("core"),
        pl.Series("start_ticks", rows["start"][chosen]),
        pl.Series("end_ticks", rows["end"][chosen]),
        pl.Series("cycles", rows["cycles"][chosen]),
        pl.lit(False).alias("overflow"),
        pl.lit(None, pl.Int64).alias("block_num"),
    )
    halves = np.flatnonzero(~main & (row_of >= 0))
    place = np.full(tasks.height + 1, -1)
    place[task[mixed]] = np.flatnonzero(mixed)
    of = place[row_of[halves]]
    halves, of = halves[of >= 0], of[of >= 0]
    order = np.argsort(of, kind="stable")
    halves, of = halves[order], of[order]
    return (
        Counters(
            frame.select(pl.col(name).cast(dtype) for name, dtype in PMU_ROWS.items()),
            rows["counters"][chosen],
            of,
            np.ascontiguousarray(rows["cycles"][halves]),
            rows["counters"][halves],
            np.stack([rows["start"][halves], rows["end"][halves]], axis=1),
        ),
        [row for row in losses if row.height],
    )


def _nth_runs(task: Column, main: Column, tasks: pl.DataFrame) -> Column:
    """Row of the run that each record belongs to: the n-th of a task and of a core to its n-th run; -1 where there is none."""
    number = task.astype(np.int64)
    records = pl.DataFrame({"task_id": number, "turn": turns(number << 1 | main)})
    of_run = tasks["task_id"].to_numpy()
    runs = pl.DataFrame({"task_id": of_run, "turn": turns(of_run), "row": np.arange(tasks.height)})
    return records.join(runs, on=["task_id", "turn"], how="left", maintain_order="left")["row"].fill_null(-1).to_numpy()
