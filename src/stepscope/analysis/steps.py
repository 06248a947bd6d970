# SPDX-License-Identifier: Apache-2.0
"""When each step ran on the device, and which step a moment belongs to (docs/formats/outputs.md 2.5)."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Literal

import numpy as np
import polars as pl

from stepscope.analysis.link.groups import Ints
from stepscope.analysis.link.op_tree import STEP_MARK, to_rows
from stepscope.arrays import filled, is_null
from stepscope.tables import ALL_TABLES, Tables

LAST = np.iinfo(np.int64).max


def from_ops(ops: pl.DataFrame) -> pl.DataFrame:
    """Table `steps` of the ranges named ProfilerStep#n, at whatever depth they stand."""
    named = ops.filter(is_step()).with_columns(
        step=pl.col("name").cast(pl.String).str.extract(rf"{STEP_MARK}(\d+)").cast(pl.Int64, strict=False)
    )
    return ALL_TABLES["steps"].conform(named.filter(pl.col("step").is_not_null()))


def is_step(name: str = "name") -> pl.Expr:
    """Whether a range is a step."""
    return pl.col(name).cast(pl.String).str.starts_with(STEP_MARK).fill_null(False)


def step_of(times: pl.Series, ranges: pl.DataFrame, *, closed: Literal["left", "both"] = "both") -> pl.Series:
    """Row of the first range that holds each time; null when none does.

    Args:
        times: moments; null belongs to no range.
        ranges: start_ns and end_ns; rows with a null hold nothing. They may overlap, the earlier row wins.
        closed: whether a range holds its own end.
    """
    bounds, owner = _segments(ranges, 1 if closed == "both" else 0)
    if not bounds.size:
        return pl.Series("step", [None] * len(times), dtype=pl.Int64)
    place = np.searchsorted(bounds, filled(times), side="right") - 1
    rows = np.where(place >= 0, owner[place], -1)
    rows[is_null(times)] = -1
    return to_rows(rows, "step")


def _segments(ranges: pl.DataFrame, beyond: int) -> tuple[Ints, Ints]:
    """Cut time at every bound; the owner of each piece is the first range over it. Cost depends on the ranges only."""
    spans = [
        (start, end if end == LAST else end + beyond, row)
        for row, (start, end) in enumerate(ranges[["start_ns", "end_ns"]].iter_rows())
        if start is not None and end is not None
    ]
    spans = sorted(span for span in spans if span[0] < span[1])
    cuts = sorted({bound for start, end, _ in spans for bound in (start, end)})
    owners, open_rows, following = [], list[tuple[int, int]](), 0
    for cut in cuts:
        while following < len(spans) and spans[following][0] <= cut:
            heappush(open_rows, (spans[following][2], spans[following][1]))
            following += 1
        while open_rows and open_rows[0][1] <= cut:
            heappop(open_rows)
        owners.append(open_rows[0][0] if open_rows else -1)
    return np.array(cuts, dtype=np.int64), np.array(owners, dtype=np.int64)


def by_launch(device_kind: str) -> bool:
    """Whether tasks belong to the step that launched them, and not to the one on whose device range they start.

    GPUs run far behind the host, and tasks of one step run while the next one is on the host. On NPUs the device range is
    the documented rule (docs/formats/outputs.md 2.5).
    """
    return device_kind not in ("npu", "cpu")


def steps_of_tasks(tables: Tables, tasks: pl.DataFrame) -> pl.Series:
    """Step of each row of `kernels` or `collectives`: the one that launched it, or in whose host range it starts."""
    if by_launch(tables.device_kind):
        return tasks["step"]
    return tables.steps["step"].gather(step_of(tasks["start_ns"], tables.steps)).alias("step")


def with_launching_step(tasks: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Kernels or collectives with the step whose host range holds their launch; null where no launch is known."""
    return tasks.with_columns(step=steps["step"].gather(step_of(tasks["launch_ns"], steps)))


def ranged(steps: pl.DataFrame, queue: pl.DataFrame, tasks: pl.DataFrame) -> pl.DataFrame:
    """Table `steps` with the device range of each step, from what was launched while it ran on the host.

    The range begins with the tasks of the first launch and ends with those of the last one, not before the host's
    end. A step that launched nothing has no range; one whose launches left no task has that of the host.

    Args:
        steps: table `steps`.
        queue: table `queue`; when it has enqueues these are the launches, on whatever thread.
        tasks: kernels and collectives as `attribution.launched` gives them.
    """
    enqueues = queue.filter(pl.col("kind") == "enqueue")
    if enqueues.height:
        launches = enqueues.select(key="correlation_id", time_ns="start_ns")
        tasks = tasks.select("start_ns", "end_ns", key="correlation_id")
    else:
        tasks = tasks.select("start_ns", "end_ns", key="launch_ns")
        launches = tasks.select("key", time_ns="key").unique("key")
    launches = launches.with_columns(row=step_of(launches["time_ns"], steps)).drop_nulls()
    if not launches.height and steps["device_start_ns"].count():
        return steps  # of files that tell of steps and not of launches
    first, last = pl.col("key").min().over("row"), pl.col("key").max().over("row")
    device = (
        launches.join(tasks.drop_nulls("key"), on="key")
        .with_columns(is_first=pl.col("key") == first, is_last=pl.col("key") == last)
        .group_by("row")
        .agg(
            pl.col("start_ns").filter("is_first").min().alias("first_ns"),
            pl.col("end_ns").filter("is_last").max().alias("last_ns"),
        )
    )
    return _with_ranges(steps, launches.select("row").unique().join(device, on="row", how="left"))


def ranged_by_connection(steps: pl.DataFrame, api_calls: pl.DataFrame, tasks: pl.DataFrame) -> pl.DataFrame:
    """Table `steps` with the device range as database captures define it.

    The range holds all tasks whose operator launch (an API call of level node) lies wholly inside the host's step; a
    step without any has that of the host.

    Args:
        steps: table `steps`.
        api_calls: table `api_calls`.
        tasks: connection_id, start_ns and end_ns of kernels and collectives.
    """
    calls = api_calls.filter(pl.col("level") == "node").select("connection_id", "start_ns", "end_ns")
    calls = calls.with_columns(row=step_of(calls["start_ns"], steps)).drop_nulls()
    ends = steps.select(host_end="end_ns").with_row_index("row").cast({"row": pl.Int64})
    inside = calls.join(ends, on="row").filter(pl.col("end_ns") <= pl.col("host_end")).unique(["row", "connection_id"])
    device = (
        inside.select("row", "connection_id")
        .join(tasks.select("connection_id", "start_ns", "end_ns"), on="connection_id")
        .group_by("row")
        .agg(pl.col("start_ns").min().alias("first_ns"), pl.col("end_ns").max().alias("last_ns"))
    )
    return _with_ranges(steps, ends.select("row").join(device, on="row", how="left"))


def _with_ranges(steps: pl.DataFrame, found: pl.DataFrame) -> pl.DataFrame:
    """Set the device range of the rows in `found` (row, first_ns, last_ns); where these are null the host's bound stands."""
    numbered = steps.with_row_index("row").cast({"row": pl.Int64})
    has_range = pl.col("found").fill_null(False)
    return (
        numbered.join(found.with_columns(found=pl.lit(True)), on="row", how="left", maintain_order="left")
        .with_columns(
            device_start_ns=pl.when(has_range).then(pl.coalesce("first_ns", "start_ns")),
            device_end_ns=pl.when(has_range).then(pl.max_horizontal("last_ns", "end_ns")),
        )
        .select(steps.columns)
    )


def with_inflated(steps: pl.DataFrame) -> pl.DataFrame:
    """Mark the first and the last of more than two steps: there the profiler starts or stops inside the step."""
    row = pl.int_range(pl.len())
    edge = (row == 0) | (row == pl.len() - 1)
    return steps.with_columns(inflated=edge if steps.height > 2 else pl.lit(False))
