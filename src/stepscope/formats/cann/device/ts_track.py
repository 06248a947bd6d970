# SPDX-License-Identifier: Apache-2.0
"""What the task scheduler reports: flips of task numbers, states of tasks, blocks, and marks (docs/formats/cann.md 4.5, 6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.formats.cann.chips import UNSAID, Chip
from stepscope.formats.cann.device.flips import Flips, batch_ids
from stepscope.formats.cann.folder import Part
from stepscope.formats.cann.layouts import TS_TRACK, TS_TRACK_NEXT, TS_TRACK_VECTOR
from stepscope.formats.cann.records import concatenate, read_records
from stepscope.tables import issues, lost

STEP_TRACE, MEMCPY, TASK_TYPE, OLD_FLIP, FLIP, BLOCK_NUM = 10, 11, 12, 13, 14, 15
MARK, RANGE = 11, 12  # tags of the step trace that mstx leaves
_NARROW = 0x7FF

MARK_ROWS = {
    "mark_id": pl.Int64(), "start_ns": pl.Int64(), "end_ns": pl.Int64(), "stream": pl.Int64(), "task_id": pl.Int64(),
    "is_range": pl.Boolean(),
}  # fmt: skip
BLOCK_ROWS = dict.fromkeys(("stream", "task_id", "batch_id", "block_num", "mix_block_num"), pl.Int64())


@dataclass(frozen=True)
class Track:
    """What one device's scheduler reported, each in the order of time.

    marks: mark_id, start_ns, end_ns, stream, task_id, is_range; one row per mark id.
    states: records of kind 12, when a task was received, began and ended.
    blocks: stream (null on chips whose task numbers are unique), task_id, batch_id, block_num, mix_block_num; one row per task
        whose size the device itself chose, the last word on it.
    """

    flips: Flips
    marks: pl.DataFrame
    states: npt.NDArray[Any]
    blocks: pl.DataFrame


NO_FLIPS = Flips(np.empty(0, np.int64), np.empty(0, np.uint64), np.empty(0, np.int64))


def read_track(part: Part, wide: bool, chip: Chip = UNSAID) -> tuple[Track, list[pl.DataFrame]]:
    layout = TS_TRACK_NEXT if chip.unique_ids else TS_TRACK
    found = [read_records(part, layout), *([read_records(part, TS_TRACK_VECTOR)] if chip.tasks == "hwts" else [])]
    rows = concatenate([records.rows for records in found if len(records)] or [found[0].rows], layout)
    kinds = np.bincount(rows["kind"], minlength=256)
    losses = [row for records in found for row in records.lost]
    losses += [
        lost(issues.UNKNOWN_KIND, TS_TRACK.file, int(count), f"kind {kind}, {layout.size} B each")
        for kind, count in enumerate(kinds)
        if count and kind not in (STEP_TRACE, MEMCPY, TASK_TYPE, OLD_FLIP, FLIP, BLOCK_NUM)
    ]

    def of(kind: int) -> npt.NDArray[Any]:
        places = np.flatnonzero(rows["kind"] == kind)
        places = places[np.argsort(rows["counter"][places], kind="stable")]
        return rows.view(f"V{layout.size}")[places].view(layout.dtype)  # as bytes: fields overlap

    times, stream_bits = NO_FLIPS, 0x7FFF if wide else _NARROW
    if chip.has_batches and not part.has_old_driver:
        flips = of(FLIP)
        times = Flips(flips["stream"].astype(np.int64) & stream_bits, flips["counter"].copy(), flips["flip_task"].astype(np.int64))
    blocks = _blocks(of(BLOCK_NUM), times, stream_bits, unique_ids=chip.unique_ids)
    return Track(times, _marks(part, of(STEP_TRACE)), of(TASK_TYPE), blocks), losses


def empty_track() -> Track:
    """What a scheduler reports that writes other records."""
    rows = np.empty(0, TS_TRACK.dtype)
    return Track(NO_FLIPS, pl.DataFrame(schema=MARK_ROWS), rows, pl.DataFrame(schema=BLOCK_ROWS))


def _blocks(rows: npt.NDArray[Any], flips: Flips, stream_bits: int, *, unique_ids: bool) -> pl.DataFrame:
    """Sizes of tasks: blocks in the low half, how many blocks of the other core belong to each in the high half."""
    task, size = rows["task"].astype(np.int64), rows["blocks"].astype(np.int64)
    if unique_ids:
        of_task = {
            "stream": pl.repeat(None, len(task), dtype=pl.Int64, eager=True),
            "task_id": task,
            "batch_id": np.zeros(len(task)),
        }
    else:
        stream = rows["stream"].astype(np.int64) & stream_bits
        batch = batch_ids(stream, np.ascontiguousarray(rows["counter"]), task, flips)
        of_task = {"stream": stream, "task_id": task, "batch_id": batch}
    blocks = size & 0xFFFF
    frame = pl.DataFrame({**of_task, "block_num": blocks, "mix_block_num": blocks * (size >> 16)})
    last = frame.unique(["stream", "task_id", "batch_id"], keep="last", maintain_order=True)
    return last.select(pl.col(name).cast(dtype) for name, dtype in BLOCK_ROWS.items())


def _marks(part: Part, rows: npt.NDArray[Any]) -> pl.DataFrame:
    """Marks in the step trace: the first and the last record of a mark id are its start and end."""
    tag = rows["step_tag"].astype(np.int64)
    mark_id = rows["index"].astype(np.uint64).view(np.int64)
    frame = pl.DataFrame(
        {
            "mark_id": pl.Series(mark_id).set(pl.Series(mark_id < 0), None),  # not set
            "time_ns": part.clock.ns(rows["counter"]),
            "stream": rows["step_stream"].astype(np.int64) & _NARROW,
            "task_id": rows["step_task"].astype(np.int64),
            "tag": tag,
        }
    )
    marks = (
        frame.filter(np.isin(tag, (MARK, RANGE)))
        .group_by("mark_id", maintain_order=True)
        .agg(
            pl.col("time_ns").min().alias("start_ns"),
            pl.col("time_ns").max().alias("end_ns"),
            pl.col("stream", "task_id").first(),
            (pl.col("tag") == RANGE).any().alias("is_range"),
        )
    )
    return marks.select(pl.col(name).cast(dtype) for name, dtype in MARK_ROWS.items())
