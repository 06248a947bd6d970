# SPDX-License-Identifier: Apache-2.0
"""Hardware counters whose records are joined with the runs of their task by their order (docs/formats/cann.md 6.7, 6.8)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.formats.cann.chips import Chip
from stepscope.formats.cann.device.hwts import counter_gaps, stream_and_task
from stepscope.formats.cann.device.pmu import AIC, AIV, CORES, PMU_ROWS, Counters
from stepscope.formats.cann.device.sized_records import EVENT_COUNTER_KIND, read_sized
from stepscope.formats.cann.device.task_frame import turns
from stepscope.formats.cann.folder import Part
from stepscope.formats.cann.layouts import AI_VECTOR_CORE, AICORE, EVENT_COUNTER
from stepscope.formats.cann.records import read_records
from stepscope.tables import issues, lost

Column = npt.NDArray[Any]

_OF_TASK, _KIND, _OVERFLOW = 5, 7, 8  # kind of record, and the bits of the head
# Device types and host types that are no work of an AI core: their runs have no counters.
_OTHER_WORK = ("AI_CPU", "SDMA_SQE", "PLACE_HOLDER_SQE", "EVENT_RECORD_SQE", "EVENT_WAIT_SQE", "NOTIFY_RECORD_SQE")
_CORES_WITHOUT_COUNTERS = ("AI_CPU", "DSA_SQE", "DVPP")


def read_aicore(part: Part, chip: Chip, tasks: pl.DataFrame, queued: pl.DataFrame | None) -> tuple[Counters, list[pl.DataFrame]]:
    """Counters of HWTS chips, of both kinds of core."""
    del chip
    frames, values = [], []
    losses: list[pl.DataFrame] = []
    for layout, core in ((AICORE, AIC), (AI_VECTOR_CORE, AIV)):
        records = read_records(part, layout)
        losses += records.lost
        rows = records.rows
        kind = rows["head"] & _KIND
        losses += [
            lost(issues.UNKNOWN_KIND, layout.file, int(count), f"kind {number}, {layout.size} B each")
            for number, count in enumerate(np.bincount(kind, minlength=8))
            if count and number != _OF_TASK
        ]
        losses.append(counter_gaps(rows["head"], layout.file))
        rows = rows.view(f"V{layout.size}")[kind == _OF_TASK].view(layout.dtype)
        stream, task = stream_and_task(rows)
        frames.append(
            _records(stream, task, core, rows["cycles"], overflow=rows["head"] & _OVERFLOW != 0, block_num=np.zeros(len(rows)))
        )
        values.append(rows["counters"])
    return _in_order(pl.concat(frames), np.concatenate(values), tasks, queued, losses, AICORE.file)


def read_event_counters(
    part: Part, chip: Chip, tasks: pl.DataFrame, queued: pl.DataFrame | None
) -> tuple[Counters, list[pl.DataFrame]]:
    """Counters of the 310."""
    del chip
    found, losses = read_sized(part, EVENT_COUNTER.file, {EVENT_COUNTER_KIND: EVENT_COUNTER})
    rows = found[EVENT_COUNTER_KIND]
    rows = rows.view(f"V{EVENT_COUNTER.size}")[np.argsort(rows["counter"], kind="stable")].view(EVENT_COUNTER.dtype)
    frame = _records(
        rows["stream"].astype(np.int64), rows["task"].astype(np.int64), AIC, rows["cycles"], overflow=rows["overflow"] != 0,
        block_num=rows["block_num"], ticks=rows["counter"],
    )  # fmt: skip
    return _in_order(frame, rows["counters"], tasks, queued, losses, EVENT_COUNTER.file)


def _records(
    stream: Column, task: Column, core: int, cycles: Column, *, overflow: Column, block_num: Column, ticks: Column | int = 0
) -> pl.DataFrame:
    number = len(stream)
    stamp = np.broadcast_to(np.asarray(ticks, np.uint64), number)
    return pl.DataFrame(
        {
            "stream": stream,
            "task_id": task,
            "core": pl.repeat(CORES[core], number, dtype=pl.Enum(CORES), eager=True),
            "start_ticks": stamp,
            "end_ticks": stamp,
            "cycles": np.ascontiguousarray(cycles),
            "overflow": overflow,
            "block_num": block_num.astype(np.int64),
        },
        schema={name: PMU_ROWS[name] for name in ("stream", "task_id", "core", "start_ticks", "end_ticks", "cycles", "overflow")}
        | {"block_num": pl.Int64()},
    )


def _in_order(
    records: pl.DataFrame,
    values: npt.NDArray[np.uint64],
    tasks: pl.DataFrame,
    queued: pl.DataFrame | None,
    losses: list[pl.DataFrame],
    file: str,
) -> tuple[Counters, list[pl.DataFrame]]:
    """The n-th record of a task belongs to its n-th run on an AI core; records of tasks that did not run are left over."""
    key = ["stream", "task_id"]
    runs = tasks.select(*key, "batch_id", task=pl.int_range(pl.len(), dtype=pl.Int64)).filter(_on_cores(tasks, queued))
    placed = records.with_columns(_turn(records), at=pl.int_range(pl.len(), dtype=pl.Int64)).join(
        runs.with_columns(_turn(runs)), on=[*key, "turn"], how="inner"
    )
    losses.append(lost(issues.UNMATCHED_COUNTERS, file, records.height - placed.height, "of tasks"))
    placed = placed.sort("task")
    rows = placed.with_columns(
        pl.lit(None, pl.Int64).alias("context_id"), pl.when(pl.col("block_num") > 0).then("block_num").alias("block_num")
    ).select(pl.col(name).cast(dtype) for name, dtype in PMU_ROWS.items())
    none = np.empty(0, np.uint64)
    chosen = np.ascontiguousarray(values[placed["at"].to_numpy()])
    counters = Counters(rows, chosen, np.empty(0, np.int64), none, np.empty((0, values.shape[1]), np.uint64))
    return counters, [row for row in losses if row.height]


def _turn(rows: pl.DataFrame) -> pl.Series:
    return pl.Series("turn", turns((rows["stream"] * (1 << 16) + rows["task_id"]).to_numpy()))


def _on_cores(tasks: pl.DataFrame, queued: pl.DataFrame | None) -> pl.Series:
    """Whether a run may have counters: the host's word goes before the device's, which says little on these chips."""
    by_device: pl.Series = ~tasks["device_type"].cast(pl.String).is_in(_OTHER_WORK)
    if queued is None or not queued.height:
        return by_device
    key = ["stream", "task_id", "batch_id"]
    words = queued.group_by(key).agg(
        operator=pl.col("is_operator").any(), elsewhere=pl.col("core").is_in(_CORES_WITHOUT_COUNTERS).any()
    )
    found = tasks.select(key).join(words, on=key, how="left", maintain_order="left")
    known = found["operator"].is_not_null()
    kernel = found["operator"].fill_null(False) & ~found["elsewhere"].fill_null(False)
    chosen: pl.Series = pl.select(pl.when(known).then(kernel).otherwise(by_device)).to_series()
    return chosen
