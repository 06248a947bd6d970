# SPDX-License-Identifier: Apache-2.0
"""Operators that ran on the AI CPU, and how long their parts took (docs/formats/cann.md 4.7)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.formats.cann.device.stars import task_ids
from stepscope.formats.cann.folder import Part
from stepscope.formats.cann.sampled.series import Column, SampledRows, select_records
from stepscope.tables import issues, lost

_NODE, _AI_CPU_SQE = 0, 1
# Other kinds of record in the same file; no table holds them.
_OTHER_TYPES = {
    1: "data pre-processing", 2: "model", 3: "MindData queue", 4: "KFC communication turn", 5: "KFC computing turn",
    6: "KFC task", 10: "communication operator", 11: "flip", 12: "main stream task", 13: "KFC task",
}  # fmt: skip


def aicpu(part: Part, rows: Column, *, wide: bool) -> SampledRows:
    types = rows["type"]
    kinds, counts = np.unique(types[types != _NODE], return_counts=True)
    losses = [
        lost(issues.UNSUPPORTED_KIND, "aicpu.data", int(count), f"type {kind}: {_OTHER_TYPES.get(int(kind), 'unknown')}")
        for kind, count in zip(kinds[:50], counts[:50], strict=True)
    ]
    return _tasks(part, select_records(rows, types == _NODE), "aicpu.data", losses, wide)


def aicpu_old(part: Part, rows: Column) -> SampledRows:
    return _tasks(part, rows, "DATA_PREPROCESS.AICPU", [], None)


def _tasks(part: Part, rows: Column, file: str, losses: list[pl.DataFrame], wide: bool | None) -> SampledRows:
    """`wide` says how stream and task are coded; None for records that hold them plain."""
    complete = (rows["run_start_tick"] != 0) & (rows["run_end_tick"] != 0)
    losses.append(lost(issues.UNPAIRED_RECORD, file, int((~complete).sum()), "tasks without start or end"))
    rows = select_records(rows, complete)
    start, end = part.clock.ns(rows["run_start_tick"]), part.clock.ns(rows["run_end_tick"])
    stream, task = rows["stream"].astype(np.int64), rows["task"].astype(np.int64)
    if wide is not None:
        stream, task = task_ids(rows["stream"], rows["task"], _AI_CPU_SQE, wide)
    tasks = pl.DataFrame(
        {
            "time_ns": start,
            "compute_us": _distance(rows["compute_start"], rows["memcpy_start"]),
            "memcpy_us": _distance(rows["memcpy_start"], rows["memcpy_end"]),
            "task_us": (end - start) / 1e3,
            "dispatch_us": rows["dispatch_us"].astype(np.float64),
            "total_us": _distance(rows["submit_tick"], rows["after_run_tick"]) / (part.clock.mhz or 1e3),
            "stream": stream,
            "task_id": task,
        }
    )
    return SampledRows({"aicpu_tasks": [tasks.with_columns(pl.lit(part.device).alias("device"))]}, tuple(losses))


def _distance(before: Column, after: Column) -> npt.NDArray[np.float64]:
    """Counters are unsigned, their distance is signed."""
    return (after.astype(np.uint64) - before.astype(np.uint64)).astype(np.int64).astype(np.float64)
