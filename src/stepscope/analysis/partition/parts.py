# SPDX-License-Identifier: Apache-2.0
"""Each nanosecond of a window belongs to exactly one part: work of the device, or a cause of its idling.

Precedence is computing > communication > copy > idle. An idle gap before a task is divided by the moments at which the host
issued (`issue_ns`) and launched (`launch_ns`) that task: what the issuing thread did until then, the task queue, the latency of
the device. Parts of a window sum to its length; this is asserted on every capture.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.analysis.partition.layers import LAYERS
from stepscope.analysis.partition.model import DeviceModel
from stepscope.analysis.partition.spans import Ints, Spans, complement, join, minus

Flags = npt.NDArray[np.bool_]

BUSY = ("computing", "communication", "copy")
IDLE = (*(f"idle.{layer}" for layer in LAYERS), "idle.queue", "idle.launch", "idle.queued", "idle.unknown")
HOST = tuple(f"host.{layer}" for layer in LAYERS)  # of captures without a device
PARTS = (*BUSY, *IDLE)

# A healthy device starts a launched task within tens of microseconds; what takes longer waits for something not recorded.
LATENCY_NS = 50_000


@dataclass(frozen=True)
class Partition:
    """Where the time of one device went.

    Attributes:
        windows: one row per window: step, total and one column per part that occurs, in ns; the parts sum to `total`.
        gaps: one row per idle gap, cut at the borders of windows: start_ns, end_ns, window, task (row of the model's tasks that
            ended it; null at the end), tid (thread that issued that task) and one column per idle part.
    """

    windows: pl.DataFrame
    gaps: pl.DataFrame

    @property
    def parts(self) -> list[str]:
        """Parts that occur, in order."""
        return [name for name in self.windows.columns if name not in ("step", "total")]

    @property
    def total_ns(self) -> int:
        return int(self.windows["total"].sum())

    def sum_ns(self, *names: str) -> int:
        """Time of some parts over all windows; parts that do not occur have none."""
        return sum(int(self.windows[name].sum()) for name in names if name in self.windows.columns)


class PartitionError(AssertionError):
    """Parts do not sum to their window: a fault of ours, not of the data."""


def partition(model: DeviceModel) -> Partition:
    """Divide every window of the model."""
    if model.device is None or not model.tasks.height:
        return Partition(_checked(model, _host_parts(model), HOST), _no_gaps())
    computing, communication, copies = model.busy
    exposed = minus(communication, computing)
    exposed_copies = minus(copies, join(computing, communication))
    first, beyond = model.windows[:-1], model.windows[1:]
    columns = {
        "computing": computing.within(first, beyond),
        "communication": exposed.within(first, beyond),
        "copy": exposed_copies.within(first, beyond),
    }
    gaps = _gaps(model, complement(join(computing, communication, copies), model.start_ns, model.end_ns))
    window = gaps["window"].to_numpy()
    for name in gaps.columns[_GAP_WIDTH:]:
        columns[name] = _sums(window, gaps[name].to_numpy(), model.count)
    return Partition(_checked(model, columns, PARTS), gaps)


def _checked(model: DeviceModel, columns: dict[str, Ints], order: tuple[str, ...]) -> pl.DataFrame:
    total = np.diff(model.windows)
    whole = sum(columns.values(), np.zeros(model.count, dtype=np.int64))
    if not np.array_equal(whole, total):
        raise PartitionError(f"parts sum to {whole.tolist()}, windows to {total.tolist()}")
    occurring = {name: columns[name] for name in order if name in columns and (name in BUSY or columns[name].any())}
    return pl.DataFrame({"step": pl.Series(model.steps, dtype=pl.Int64), "total": total, **occurring})


def _sums(window: Ints, values: Ints, count: int) -> Ints:
    """Exact sums by window; rows are sorted by window."""
    before = np.concatenate(([0], np.cumsum(values)))
    edges = np.searchsorted(window, np.arange(count + 1), side="left")
    return np.asarray(before[edges[1:]] - before[edges[:-1]], dtype=np.int64)


_GAP_WIDTH = 5


def _no_gaps() -> pl.DataFrame:
    return pl.DataFrame(schema={"start_ns": pl.Int64, "end_ns": pl.Int64, "window": pl.Int64, "task": pl.Int64, "tid": pl.Int64})


def _gaps(model: DeviceModel, idle: Spans) -> pl.DataFrame:
    start, end = _cut(idle, model.windows)
    task, follows = _next_task(model, end)
    issue, launch, tid = (_gathered(model.tasks[name], task) for name in ("issue_ns", "launch_ns", "issue_tid"))
    issued = follows & ~issue[1]
    # Until the issue the host is the cause; from there to the launch the queue; then the device.
    host_end = np.where(issued, np.clip(issue[0], start, end), start)
    launched = np.where(launch[1], issue[0], np.maximum(launch[0], issue[0]))
    queue_end = np.where(issued, np.clip(launched, host_end, end), start)
    late = np.where(issued, end - queue_end, 0)
    parts = {
        "idle.queue": queue_end - host_end,
        "idle.launch": np.where(late <= LATENCY_NS, late, 0),
        "idle.queued": np.where(late > LATENCY_NS, late, 0),
        "idle.unknown": np.where(follows & issue[1], end - start, 0),
    }
    main = model.main_tid
    thread = np.where(follows, np.where(tid[1], -1, tid[0]), -1 if main is None else main)
    host_end = np.where(follows, host_end, end)
    layers, rest = _host_time(model, thread, start, host_end)
    parts |= layers
    # What nobody recorded after the last task may be anything; before a task of a known thread it is that thread's own.
    known = follows & (thread >= 0)
    parts["idle.other"] = np.where(known, rest, 0)
    parts["idle.unknown"] = parts["idle.unknown"] + np.where(known, 0, rest)
    frame = pl.DataFrame(
        {
            "start_ns": start,
            "end_ns": end,
            "window": model.window_of(start),
            "task": pl.Series(np.where(follows, task, -1)).replace(-1, None),
            "tid": pl.Series(thread).replace(-1, None),
        }
    )
    return frame.with_columns(pl.Series(name, parts[name]) for name in IDLE if name in parts and parts[name].any())


def _cut(idle: Spans, borders: Ints) -> tuple[Ints, Ints]:
    """The spans, cut at the borders of windows; none is lost, none is empty."""
    inner = np.unique(borders[1:-1])
    place = np.maximum(np.searchsorted(idle.start, inner, side="right") - 1, 0)
    inside = (idle.start[place] < inner) & (inner < idle.end[place]) if idle.start.size else np.zeros(inner.size, dtype=np.bool_)
    if not inside.any():
        return idle.start, idle.end
    cuts = inner[inside]
    return np.sort(np.concatenate((idle.start, cuts))), np.sort(np.concatenate((idle.end, cuts)))


def _next_task(model: DeviceModel, end: Ints) -> tuple[Ints, Flags]:
    """The task that begins at or after the end of each gap, and whether there is one."""
    starts = model.tasks["start_ns"].to_numpy()
    place = np.searchsorted(starts, end, side="left")
    return np.minimum(place, starts.size - 1), place < starts.size


def _gathered(column: pl.Series, rows: Ints) -> tuple[Ints, Flags]:
    """Values of a column at some rows (0 where null), and where they are null."""
    missing = column.is_null().to_numpy()
    return column.fill_null(0).to_numpy()[rows], missing[rows]


def _host_time(model: DeviceModel, thread: Ints, start: Ints, end: Ints) -> tuple[dict[str, Ints], Ints]:
    """Time by layer of the given thread in each span, and what is left of the span."""
    rest = end - start
    parts = {f"idle.{layer}": np.zeros(start.size, dtype=np.int64) for layer in LAYERS[:-1]}
    for tid in pl.Series(thread[(rest > 0) & (thread >= 0)]).unique().sort().to_list():
        rows = np.flatnonzero((thread == tid) & (rest > 0))
        for layer, spans in model.layers(tid).items():
            spent = spans.within(start[rows], end[rows])
            parts[f"idle.{layer}"][rows] = spent
            rest[rows] -= spent
    return parts, rest


def _host_parts(model: DeviceModel) -> dict[str, Ints]:
    first, beyond = model.windows[:-1], model.windows[1:]
    main = model.main_tid
    parts = {
        f"host.{layer}": spans.within(first, beyond) for layer, spans in (model.layers(main) if main is not None else {}).items()
    }
    return parts | {"host.other": beyond - first - sum(parts.values(), np.zeros(model.count, dtype=np.int64))}
