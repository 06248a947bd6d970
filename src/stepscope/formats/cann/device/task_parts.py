# SPDX-License-Identifier: Apache-2.0
"""Parts of tasks that a device reports by themselves: sub tasks of a fusion, blocks on single cores (docs/formats/cann.md 6.12)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.formats.cann.chips import Chip
from stepscope.formats.cann.device.hwts import stream_and_task
from stepscope.formats.cann.device.stars import counter_gaps, unread_functions
from stepscope.formats.cann.device.stars_32 import BLOCK_END, BLOCK_START, FUSION_END, FUSION_START, OF_BLOCK, host_streams
from stepscope.formats.cann.device.task_frame import pair, turns
from stepscope.formats.cann.folder import Part
from stepscope.formats.cann.layouts import HWTS, HWTS_BLOCK, PMU_128, STARS_32, STARS_BLOCK
from stepscope.formats.cann.records import read_records
from stepscope.tables import issues, lost

Column = npt.NDArray[Any]
Found = tuple[pl.DataFrame, list[pl.DataFrame]]

FUSION, BLOCK, COUNTED_BLOCK = "fusion", "block", "counted block"
PARTS = {
    "kind": pl.String(), "type": pl.String(), "stream": pl.Int64(), "task_id": pl.Int64(), "start_ns": pl.Int64(),
    "end_ns": pl.Int64(), "core_id": pl.Int64(), "block_id": pl.Int64(), "accelerator": pl.Int64(), "mission": pl.Int64(),
    "die": pl.Int64(), "cycles": pl.Int64(),
}  # fmt: skip
# What a sub task of a fusion runs on: the highest bit of its mask, with the die where there are two of them.
_FUSED = ((0, "CPU", None), (1, "AICPU", None), (2, "AICORE", None), (3, "CCU", 0), (4, "CCU", 1))
_CORES = np.array(["AIC", "AIV"])
_HWTS_BLOCK_START, _HWTS_BLOCK_END, _HWTS_BLOCK_COUNTERS = 2, 3, 4
_WHOLE = np.int64((1 << 63) - 1)


def read_stars_32(part: Part, chip: Chip, queued: pl.DataFrame | None) -> Found:
    """Sub tasks of fusions and blocks of the 950: the scheduler's log of blocks, and blocks with counters."""
    del chip
    sub_tasks, losses = _fusions(part, queued)
    frames = [sub_tasks]
    records = read_records(part, STARS_BLOCK)
    head = np.ascontiguousarray(records.rows["head"])
    losses += [*records.lost, counter_gaps(head, STARS_BLOCK.file)]
    losses += unread_functions(head & 63, (BLOCK_START, BLOCK_END), STARS_BLOCK.file, STARS_BLOCK.size)
    rows = records.rows
    place = rows["task"].astype(np.uint64) << np.uint64(25) | _core_key(rows)
    first, last = _paired(head & 63, BLOCK_START, BLOCK_END, place, rows["counter"], losses, STARS_BLOCK.file, "blocks")
    frames.append(_blocks(part, rows, first, rows["counter"][first], rows["counter"][last], queued, BLOCK))
    pmu = read_records(part, PMU_128).rows  # what is lost of it is said by the reader of counters
    at = np.flatnonzero(pmu["head"] & 63 == OF_BLOCK)
    counted = _blocks(part, pmu, at, pmu["start"][at], pmu["end"][at], queued, COUNTED_BLOCK)
    backwards = pmu["end"][at] < pmu["start"][at]
    losses.append(lost(issues.DAMAGED_RECORD, PMU_128.file, int(np.count_nonzero(backwards)), "a block ends before it starts"))
    frames.append(counted.with_columns(cycles=_signed(pmu["cycles"][at])).filter(~backwards))
    return pl.concat(frames, how="diagonal"), [row for row in losses if row.height]


def _fusions(part: Part, queued: pl.DataFrame | None) -> Found:
    rows = read_records(part, STARS_32).rows  # what is lost of it is said by the reader of tasks
    losses: list[pl.DataFrame] = []
    place = rows["task"].astype(np.uint64) << np.uint64(9) | (rows["fusion"] & 0x1FF).astype(np.uint64)
    first, last = _paired(
        rows["head"] & 63, FUSION_START, FUSION_END, place, rows["counter"], losses, STARS_32.file, "sub tasks of fusions"
    )
    chosen = rows["fusion"][first].astype(np.int64)
    task = rows["task"][first].astype(np.int64)
    mask = chosen & 0x1F
    types = np.full(len(mask), "UNKNOWN", dtype="<U8")
    die = np.full(len(mask), -1)
    for bit, name, number in _FUSED:  # the highest bit has the last word
        types[mask >> bit & 1 == 1] = name
        die[mask >> bit & 1 == 1] = -1 if number is None else number
    frame = _frame(
        part, rows["counter"][first], rows["counter"][last], kind=FUSION, type=types, stream=host_streams(task, queued),
        task_id=task, accelerator=rows["accelerator"][first], mission=chosen >> 5 & 0xF, die=die,
    )  # fmt: skip
    return frame.with_columns(pl.when(pl.col("die") >= 0).then("die").alias("die")), losses


def _core_key(rows: Column) -> Column:
    """Core type, core and block: what tells blocks of one task apart. 1 + 8 + 16 bits."""
    core, core_id, block = ((rows[name]).astype(np.uint64) for name in ("core", "core_id", "block"))
    key: Column = (core & np.uint64(1)) << np.uint64(24) | core_id << np.uint64(16) | block
    return key


def _blocks(
    part: Part, rows: Column, at: Column, start: Column, end: Column, queued: pl.DataFrame | None, kind: str
) -> pl.DataFrame:
    task = rows["task"][at].astype(np.int64)
    return _frame(
        part, start, end, kind=kind, type=_CORES[rows["core"][at] & 1], stream=host_streams(task, queued), task_id=task,
        core_id=rows["core_id"][at], block_id=rows["block"][at],
    )  # fmt: skip


def read_hwts(part: Part, chip: Chip, queued: pl.DataFrame | None) -> Found:
    """Blocks that HWTS schedulers report when they are asked to; counters of a block have no time and follow it by their order."""
    del chip, queued
    rows = read_records(part, HWTS).rows  # what is lost of it is said by the reader of tasks
    kind = rows["head"] & 7
    losses: list[pl.DataFrame] = []
    stream, task = stream_and_task(rows)
    where = rows["type"].astype(np.int64) << 16 | rows["block"]
    place = stream << 40 | task << 24 | where
    first, last = _paired(kind, _HWTS_BLOCK_START, _HWTS_BLOCK_END, place, rows["counter"], losses, HWTS.file, "blocks")
    frame = _frame(
        part, rows["counter"][first], rows["counter"][last], kind=BLOCK, type=np.full(len(first), "AIC"), stream=stream[first],
        task_id=task[first], core_id=rows["type"][first], block_id=rows["block"][first],
    )  # fmt: skip
    counted = np.flatnonzero(kind == _HWTS_BLOCK_COUNTERS)
    if not len(counted):
        return frame, losses
    cycles = rows.view(HWTS_BLOCK.dtype)["cycles"][counted]
    of = pl.DataFrame({"place": place[counted], "turn": turns(place[counted]), "counted": _signed(cycles)})
    runs = pl.DataFrame({"place": place[first], "turn": turns(place[first])})
    found = runs.join(of, on=["place", "turn"], how="left", maintain_order="left")["counted"]
    losses.append(lost(issues.UNMATCHED_COUNTERS, HWTS.file, len(counted) - found.count(), "of blocks"))
    return frame.with_columns(found.alias("cycles")), [row for row in losses if row.height]


def _paired(
    function: Column, start: int, end: int, place: Column, counter: Column, losses: list[pl.DataFrame], file: str, what: str
) -> tuple[Column, Column]:
    """Places of the starts and ends that belong together, in the order of start; the rest is counted."""
    starts, ends = np.flatnonzero(function == start), np.flatnonzero(function == end)
    counter = np.ascontiguousarray(counter)
    first, last = pair(place[starts], counter[starts], place[ends], counter[ends])
    losses.append(lost(issues.START_WITHOUT_END, file, len(starts) - len(first), what))
    losses.append(lost(issues.END_WITHOUT_START, file, len(ends) - len(last), what))
    first, last = starts[first], ends[last]
    order = np.argsort(counter[first], kind="stable")
    return first[order], last[order]


def _frame(part: Part, start: Column, end: Column, **columns: Any) -> pl.DataFrame:
    times = {name: part.clock.ns(np.ascontiguousarray(ticks)) for name, ticks in (("start_ns", start), ("end_ns", end))}
    given = {name: values if isinstance(values, str) else np.asarray(values) for name, values in columns.items()}
    whole = {name: values.astype(np.int64) if not isinstance(values, str) and values.dtype.kind in "iu" else values
             for name, values in given.items()}  # fmt: skip
    kind = whole.pop("kind")
    frame = pl.DataFrame({**times, **whole}).with_columns(pl.lit(kind).alias("kind"))
    missing = [pl.lit(None, dtype).alias(name) for name, dtype in PARTS.items() if name not in frame.columns]
    return frame.with_columns(missing).select(pl.col(name).cast(dtype) for name, dtype in PARTS.items())


def _signed(values: Column) -> pl.Series:
    """Counts as they fit the table; a count that does not is damage, and becomes the largest."""
    return pl.Series(np.minimum(values, np.uint64(_WHOLE)).astype(np.int64))
