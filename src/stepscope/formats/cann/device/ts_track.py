# SPDX-License-Identifier: Apache-2.0
"""What the task scheduler reports: flips, step trace, marks, task types, copies, block numbers (docs/formats/cann.md 4.5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.formats.cann.device.flips import Flips
from stepscope.formats.cann.device.stars import task_ids
from stepscope.formats.cann.folder import Part
from stepscope.formats.cann.layouts import TS_TRACK
from stepscope.formats.cann.records import read_records
from stepscope.tables import lost

STEP_TRACE, MEMCPY, TASK_TYPE, OLD_FLIP, FLIP, BLOCK_NUM = 10, 11, 12, 13, 14, 15
MARK, RANGE = 11, 12  # tags of the step trace that mstx leaves
_NARROW = 0x7FF

_TASK = {"time_ns": pl.Int64(), "stream": pl.Int64(), "task_id": pl.Int64()}
STEP_TRACE_ROWS = {**_TASK, "tag": pl.Int64(), "index_id": pl.Int64(), "model_id": pl.Int64()}
MARK_ROWS = {
    "mark_id": pl.Int64(), "start_ns": pl.Int64(), "end_ns": pl.Int64(), "stream": pl.Int64(), "task_id": pl.Int64(),
    "is_range": pl.Boolean(),
}  # fmt: skip


@dataclass(frozen=True)
class Track:
    """Frames of `ts_track`, each in the order of time. Numbers beyond 63 bits (not set) are null.

    step_trace: time_ns, stream, task_id, tag, index_id, model_id (marks left out).
    marks: mark_id, start_ns, end_ns, stream, task_id, is_range; one row per mark id.
    task_types: time_ns, stream, task_id, task_type, status. memcpy: time_ns, stream, task_id, status.
    block_nums: time_ns, stream, task_id, block_num.
    """

    flips: Flips
    step_trace: pl.DataFrame
    marks: pl.DataFrame
    task_types: pl.DataFrame
    memcpy: pl.DataFrame
    block_nums: pl.DataFrame


def read_track(part: Part, wide: bool) -> tuple[Track, list[pl.DataFrame]]:
    records = read_records(part, TS_TRACK)
    rows = records.rows
    kinds = np.bincount(rows["kind"], minlength=256)
    losses = [*records.lost]
    losses += [
        lost(TS_TRACK.file, "records of unknown kind", int(count), f"kind {kind}")
        for kind, count in enumerate(kinds)
        if count and kind not in (STEP_TRACE, MEMCPY, TASK_TYPE, OLD_FLIP, FLIP, BLOCK_NUM)
    ]

    def of(kind: int) -> npt.NDArray[Any]:
        places = np.flatnonzero(rows["kind"] == kind)
        places = places[np.argsort(rows["counter"][places], kind="stable")]
        return rows.view(f"V{TS_TRACK.size}")[places].view(TS_TRACK.dtype)  # as bytes: fields overlap

    flips = of(FLIP)
    steps, marks = _step_trace(part, of(STEP_TRACE))
    task_types, copies, blocks = of(TASK_TYPE), of(MEMCPY), of(BLOCK_NUM)
    track = Track(
        flips=Flips(
            flips["stream"].astype(np.int64) & (0x7FFF if wide else _NARROW),
            flips["counter"].copy(),
            flips["flip_task"].astype(np.int64),
        ),
        step_trace=steps,
        marks=marks,
        task_types=_frame(part, task_types, wide, task_type=task_types["task_type"], status=task_types["status"]),
        memcpy=_frame(part, copies, wide, status=copies["copy_status"]),
        block_nums=_frame(part, blocks, wide, block_num=blocks["blocks"]),
    )
    return track, losses


def _frame(part: Part, rows: npt.NDArray[Any], wide: bool, **further: npt.NDArray[Any]) -> pl.DataFrame:
    stream, task = task_ids(rows["stream"], rows["task"], 0, wide)
    columns = {"time_ns": part.clock.ns(rows["counter"]), "stream": stream, "task_id": task, **further}
    return pl.DataFrame({name: np.asarray(values).astype(np.int64) for name, values in columns.items()})


def _step_trace(part: Part, rows: npt.NDArray[Any]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Steps, and the marks among them: the first and the last record of a mark id are its start and end."""
    frame = pl.DataFrame(
        {
            "time_ns": part.clock.ns(rows["counter"]),
            "stream": rows["step_stream"].astype(np.int64) & _NARROW,
            "task_id": rows["step_task"].astype(np.int64),
            "tag": rows["step_tag"].astype(np.int64),
            "index_id": rows["index"].astype(np.uint64).view(np.int64),
            "model_id": rows["model"].astype(np.uint64).view(np.int64),
        },
        schema=STEP_TRACE_ROWS,
    ).with_columns(pl.when(pl.col(name) >= 0).then(name).alias(name) for name in ("index_id", "model_id"))
    of_mark = pl.col("tag").is_in([MARK, RANGE])
    marks = (
        frame.filter(of_mark)
        .group_by(pl.col("index_id").alias("mark_id"), maintain_order=True)
        .agg(
            pl.col("time_ns").min().alias("start_ns"),
            pl.col("time_ns").max().alias("end_ns"),
            pl.col("stream", "task_id").first(),
            (pl.col("tag") == RANGE).any().alias("is_range"),
        )
    )
    return frame.filter(~of_mark), marks.select(*MARK_ROWS)
