# SPDX-License-Identifier: Apache-2.0
"""One device of one capture as the partition and the replay see it: its tasks in order, and the windows of the steps.

A window begins with the first task *issued* inside its step on the host: the device lags behind, and a border in the middle of
the device's work would give one step the work of another. Windows tile the recorded range, so their sum is wall time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.analysis.overlap import drives_communication
from stepscope.analysis.partition.layers import thread_layers
from stepscope.analysis.partition.spans import Ints, Spans, union
from stepscope.analysis.steps import is_step
from stepscope.tables import Tables

COMPUTE, COMMUNICATION, COPY = 0, 1, 2
_KINDS = {"compute": COMPUTE, "communication": COMMUNICATION, "memcpy": COPY, "memset": COPY}
TASKS = {
    "table": pl.UInt8, "row": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64, "kind": pl.Int8, "stream": pl.Int64,
    "launch_ns": pl.Int64, "launch_tid": pl.Int64, "op": pl.Int64, "issue_ns": pl.Int64, "issue_tid": pl.Int64,
}  # fmt: skip
FROM = ("kernels", "collectives")  # what `table` counts


@dataclass(frozen=True)
class DeviceModel:
    """Tasks of one device and the windows of its steps.

    Attributes:
        device: its number; None when nothing ran on a device.
        tasks: columns of `TASKS`, sorted by start; `issue_ns` is when the host issued the task: put it into the task queue, or
            launched it. `row` is a row of the table that `table` names (see `FROM`).
        windows: n + 1 borders of n windows.
        steps: number of the step of each window; None when the capture marks none.
        by_issue: whether the borders come from what the host issued; else they are those of the steps on the host.
    """

    tables: Tables
    device: int | None
    tasks: pl.DataFrame
    windows: Ints
    steps: tuple[int | None, ...]
    by_issue: bool
    _layers: dict[int, dict[str, Spans]] = field(default_factory=dict, repr=False)

    def layers(self, tid: int) -> dict[str, Spans]:
        """What a host thread did (see `layers`), computed once."""
        if tid not in self._layers:
            self._layers[tid] = thread_layers(self.tables, tid)
        return self._layers[tid]

    @property
    def start_ns(self) -> int:
        return int(self.windows[0])

    @property
    def end_ns(self) -> int:
        return int(self.windows[-1])

    @property
    def count(self) -> int:
        """Number of windows."""
        return len(self.steps)

    @cached_property
    def busy(self) -> tuple[Spans, Spans, Spans]:
        """When the device computed, communicated and copied, clipped to the windows; each for itself."""
        return tuple(self._of_kind(kind) for kind in (COMPUTE, COMMUNICATION, COPY))  # type: ignore[return-value]

    def _of_kind(self, kind: int) -> Spans:
        rows = self.tasks.filter(pl.col("kind") == kind)
        start, end = (np.clip(rows[name].to_numpy(), self.start_ns, self.end_ns) for name in ("start_ns", "end_ns"))
        return union(start, end)

    @cached_property
    def main_tid(self) -> int | None:
        """The thread of the step ranges; without any, the thread with most operators."""
        ops = self.tables.ops
        marked = ops.filter(is_step())
        rows = marked if marked.height else ops
        common = rows["tid"].drop_nulls().mode().sort()
        return int(common[0]) if common.len() else None

    def window_of(self, times: Ints) -> Ints:
        """Number of the window that holds each moment; -1 and `count` outside."""
        place = np.searchsorted(self.windows, times, side="right") - 1
        return np.asarray(place, dtype=np.int64)


def device_model(tables: Tables, device: int | None = None) -> DeviceModel:
    """The model of the given device, or of the one that computed most."""
    device = busiest_device(tables) if device is None else device
    steps = tables.steps.filter(~pl.col("inflated").fill_null(False)).drop_nulls(["start_ns", "end_ns"])
    if not steps.height:
        steps = tables.steps.drop_nulls(["start_ns", "end_ns"])
    steps = steps.sort("start_ns")
    tasks = _tasks(tables, device) if device is not None else pl.DataFrame(schema=TASKS)
    numbers = tuple(steps["step"].to_list())
    if tasks.height and steps.height and 2 * tasks["issue_ns"].count() > tasks.height:
        return DeviceModel(tables, device, tasks, _issued_windows(steps, tasks), numbers, by_issue=True)
    if steps.height:
        borders = np.append(steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy().max())
        return DeviceModel(tables, device, tasks, _rising(borders), numbers, by_issue=False)
    return DeviceModel(tables, device, tasks, _whole(tasks if tasks.height else tables.ops), (None,), by_issue=False)


def busiest_device(tables: Tables) -> int | None:
    """The device with most computing tasks, else with most tasks or collectives; None without any."""
    kernels = tables.kernels
    for rows in (
        kernels.filter(pl.col("kind") == "compute"),
        kernels.filter(pl.col("kind").is_in(list(_KINDS))),
        tables.collectives,
    ):
        counts = rows.group_by("device").len().drop_nulls().sort("len", "device", descending=[True, False])
        if counts.height:
            return int(counts["device"][0])
    return None


def _tasks(tables: Tables, device: int) -> pl.DataFrame:
    """Tasks that count as work, with the moment at which the host issued each."""
    kind = pl.when(drives_communication()).then(pl.lit("communication")).otherwise(pl.col("kind").cast(pl.String))
    launch = ("launch_ns", "launch_tid", "correlation_id", "op")
    kernels = tables.kernels.with_row_index("row").filter((pl.col("device") == device) & pl.col("kind").is_in(list(_KINDS)))
    kernels = kernels.select(
        pl.lit(0, pl.UInt8).alias("table"), pl.col("row").cast(pl.Int64), "start_ns", "end_ns",
        kind.replace_strict(_KINDS, return_dtype=pl.Int8).alias("kind"), "stream", *launch,
    )  # fmt: skip
    collectives = tables.collectives.with_row_index("row").filter(pl.col("device") == device)
    if collectives.height and not collectives["kernel"].count():
        # Operators of their own stand for their link-level tasks; each group is a stream of its own.
        own = collectives.select(
            pl.lit(1, pl.UInt8).alias("table"), pl.col("row").cast(pl.Int64), "start_ns", "end_ns",
            pl.lit(COMMUNICATION, pl.Int8).alias("kind"), (-1 - pl.col("group_index").fill_null(0)).alias("stream"), *launch,
        )  # fmt: skip
        kernels = pl.concat([kernels.filter(pl.col("kind") != COMMUNICATION), own])
    tasks = kernels.filter(pl.col("end_ns") > pl.col("start_ns")).sort("start_ns", "end_ns", maintain_order=True)
    enqueued = (
        tables.queue.filter(pl.col("kind") == "enqueue")
        .select("correlation_id", issue_ns="end_ns", issue_tid="tid")
        .drop_nulls("correlation_id")
        .unique("correlation_id", keep="first", maintain_order=True)
    )
    tasks = tasks.join(enqueued, on="correlation_id", how="left", maintain_order="left")
    tasks = tasks.with_columns(issue_ns=pl.coalesce("issue_ns", "launch_ns"), issue_tid=pl.coalesce("issue_tid", "launch_tid"))
    return tasks.select(*TASKS)


def _issued_windows(steps: pl.DataFrame, tasks: pl.DataFrame) -> Ints:
    begin, end = steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()
    known = tasks.drop_nulls("issue_ns")
    issue = known["issue_ns"].to_numpy()
    place = np.searchsorted(begin, issue, side="right") - 1
    inside = (place >= 0) & (issue < end[place])
    first = np.full(begin.size, np.iinfo(np.int64).max)
    np.minimum.at(first, place[inside], known["start_ns"].to_numpy()[inside])
    lag_known = first != np.iinfo(np.int64).max
    borders = np.where(lag_known, first, begin)
    last = int(end[-1] + (borders[-1] - begin[-1]))
    in_last = inside & (place == begin.size - 1)
    if in_last.any():
        last = max(last, int(known["end_ns"].to_numpy()[in_last].max()))
    return _rising(np.append(borders, last))


def _rising(borders: npt.NDArray[np.int64]) -> Ints:
    return np.maximum.accumulate(borders.astype(np.int64))


def _whole(rows: pl.DataFrame) -> Ints:
    first, last = rows["start_ns"].min(), rows["end_ns"].max()
    return np.array([first or 0, last or first or 0], dtype=np.int64)
