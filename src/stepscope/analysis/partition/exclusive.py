# SPDX-License-Identifier: Apache-2.0
"""Each busy nanosecond belongs to one task: higher parts first, inside a part who started first."""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.analysis.partition.model import COMMUNICATION, COMPUTE, COPY, DeviceModel
from stepscope.analysis.partition.parts import BUSY, PartitionError
from stepscope.analysis.partition.spans import EMPTY, Ints, Spans, join


def exclusive_time(model: DeviceModel) -> pl.DataFrame:
    """Exclusive time of every task by window: task (row of the model's tasks), window, part (0 computing …), ns.

    Rows of a part and window sum to that part of the partition.
    """
    kind = model.tasks["kind"].to_numpy()
    start, end = (np.clip(model.tasks[name].to_numpy(), model.start_ns, model.end_ns) for name in ("start_ns", "end_ns"))
    higher, pieces = EMPTY, []
    for part, spans in zip((COMPUTE, COMMUNICATION, COPY), model.busy, strict=True):
        rows = np.flatnonzero(kind == part)
        pieces.append(_part(model, part, rows, start[rows], end[rows], higher))
        higher = join(higher, spans)
    return pl.concat(pieces)


def _part(model: DeviceModel, part: int, rows: Ints, start: Ints, end: Ints, higher: Spans) -> pl.DataFrame:
    reach = np.concatenate(([model.start_ns], np.maximum.accumulate(end)[:-1])) if end.size else end
    begin = np.maximum(start, reach)
    real = end > begin
    rows, begin, end = rows[real], begin[real], end[real]
    first = model.window_of(begin)
    last = model.window_of(end - 1)
    # A task that crosses borders gives one piece to each window.
    task = np.repeat(np.arange(rows.size), last - first + 1)
    window = first[task] + np.arange(task.size) - np.repeat(np.cumsum(last - first + 1) - (last - first + 1), last - first + 1)
    left, right = np.maximum(begin[task], model.windows[window]), np.minimum(end[task], model.windows[window + 1])
    spent = right - left - higher.within(left, right)
    kept = spent > 0
    frame = pl.DataFrame({"task": rows[task][kept], "window": window[kept], "ns": spent[kept]})
    frame = frame.with_columns(pl.lit(part, pl.Int8).alias("part")).select("task", "window", "part", "ns")
    _check(model, part, int(frame["ns"].sum()), higher)
    return frame


def _check(model: DeviceModel, part: int, found: int, higher: Spans) -> None:
    expected = join(model.busy[part], higher).total_ns - higher.total_ns
    if found != expected:
        raise PartitionError(f"{BUSY[part]}: tasks sum to {found} ns, the part to {expected} ns")
