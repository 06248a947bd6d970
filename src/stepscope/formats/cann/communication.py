# SPDX-License-Identifier: Apache-2.0
"""Communication operators and their link-level tasks: tables `collectives` and `transfers` (docs/formats/cann.md 7.2)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.formats.cann.host.side import HostSide
from stepscope.formats.cann.tasks import JoinedTasks
from stepscope.tables import ALL_TABLES, TEXT, issues, lost

_PAYLOAD = "RDMA_SEND_PAYLOAD"
# Tasks from the last payload to the one that reports its arrival; fewer where only two ranks take part.
_CLOSING, _CLOSING_PAIR = 4, 2
_PAIRS = ("hcom_send", "hcom_receive")
_BY_PROCESSOR = "AicpuKernel"  # such operators are counted separately
_NO_GROUP = "N/A"
_FROM_TASK = (
    "is_master", "model_id", "group", "group_name", "plane", "rank_size", "notify_id", "estimated_us", "bytes", "data_type",
    "link", "transport", "rdma_type",
)  # fmt: skip


def communication(
    joined: JoinedTasks, host: HostSide, session_start_ns: int | None
) -> tuple[pl.DataFrame, pl.DataFrame, list[pl.DataFrame]]:
    """Tables `collectives` and `transfers`, and what was lost."""
    tasks = _task_runs(joined, host)
    if not tasks.height:
        unmatched = lost(issues.UNMATCHED_COMMUNICATION, "hccl", host.big_ops.height, "operators without a device task")
        return ALL_TABLES["collectives"].empty(), ALL_TABLES["transfers"].empty(), [unmatched]
    tasks = tasks.with_columns(_run())
    operators = _operators(tasks, host.big_ops, session_start_ns)
    number = operators.select("operator", "run", pl.int_range(pl.len(), dtype=pl.Int64).alias("collective"), "op_type")
    tasks = tasks.drop("op_type", strict=False).join(number, on=["operator", "run"], how="left", maintain_order="left")
    tasks = tasks.sort("device", "start_ns", maintain_order=True)
    transfers = tasks.with_columns((pl.col("end_ns") - pl.col("start_ns")).cast(pl.Float64).alias("duration_ns"), _bandwidth(tasks))
    quality = [
        lost(issues.UNMATCHED_COMMUNICATION, "hccl", tasks["operator"].null_count(), "tasks without an operator"),
        lost(
            issues.UNMATCHED_COMMUNICATION,
            "hccl",
            host.big_ops.height - operators["operator"].n_unique(),
            "operators without a device task",
        ),
    ]
    return ALL_TABLES["collectives"].conform(operators), ALL_TABLES["transfers"].conform(transfers), quality


def _task_runs(joined: JoinedTasks, host: HostSide) -> pl.DataFrame:
    """Each run of each link-level task, in the order of start."""
    rows = joined.rows.select(
        "device", "stream", "task_id", "context_id", "start_ns", "end_ns", "duration_ns", pl.col("host").alias("task")
    )
    described = host.hccl_tasks.select(
        "task",
        pl.col("big_op").cast(pl.Int64).alias("operator"),
        *_FROM_TASK,
        pl.coalesce("task_type", "name").alias("task_type"),
        pl.col("local_rank").alias("src_rank"),
        pl.col("remote_rank").alias("dst_rank"),
    )
    return rows.join(described, on="task", how="inner", maintain_order="left")


def _run() -> pl.Expr:
    """How often the task had run before: a graph is queued once and run many times."""
    return pl.int_range(pl.len(), dtype=pl.Int64).over("task").alias("run")


def _operators(tasks: pl.DataFrame, operators: pl.DataFrame, session_start_ns: int | None) -> pl.DataFrame:
    """One row per run of an operator, by device and start; its span is that of its master tasks."""
    master = pl.col("is_master").fill_null(False)
    spans = (
        tasks.drop_nulls("operator")
        .group_by("device", "operator", "run", maintain_order=True)
        .agg(
            pl.coalesce(pl.col("start_ns").filter(master).min(), pl.col("start_ns").min()).alias("start_ns"),
            pl.coalesce(pl.col("end_ns").filter(master).max(), pl.col("end_ns").max()).alias("end_ns"),
            pl.col("rank_size").drop_nulls().first(),
            pl.col("group").drop_nulls().first().alias("task_group"),
            pl.col("group_name").drop_nulls().first().alias("task_group_name"),
        )
        .sort("device", "start_ns", maintain_order=True)
    )
    described = (
        operators.drop("device", "start_ns", "end_ns", "tid")
        .with_row_index("operator")
        .with_columns(pl.col("operator").cast(pl.Int64))
    )
    rows = spans.join(described, on="operator", how="left", maintain_order="left").with_columns(
        pl.coalesce("task_group", "group").alias("group"),
        pl.coalesce("task_group_name", "group_name").alias("group_name"),
        pl.col("name").cast(pl.String),
    )
    return _with_group_index(rows).with_columns(
        (pl.col("end_ns") - pl.col("start_ns")).cast(pl.Float64).alias("duration_ns"),
        pl.coalesce("op_type", pl.col("name").cast(TEXT)).alias("op_type"),
        _display_name(session_start_ns).cast(TEXT).alias("name"),
    )


def _with_group_index(rows: pl.DataFrame) -> pl.DataFrame:
    """Groups numbered in the order in which they first communicate."""
    groups = rows.select(pl.col("group").unique(maintain_order=True))
    numbered = groups.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("group_index"))
    return rows.join(numbered, on="group", how="left", nulls_equal=True, maintain_order="left")


def _display_name(session_start_ns: int | None) -> pl.Expr:
    """`<name>_<end of the group's number>_<how many of the group came before>_<how often it had run>`."""
    group = pl.col("group").cast(pl.String).fill_null(_NO_GROUP)
    counted = (pl.col("start_ns") >= (session_start_ns or 0)).cast(pl.Int64)
    by_processor = pl.col("name").str.contains(_BY_PROCESSOR, literal=True)
    index = (counted.cum_sum() - counted).over("device", "group", by_processor, "run")
    return pl.format("{}_{}_{}_{}", "name", group.str.slice(-3), index, pl.col("run") + 1)


def _bandwidth(tasks: pl.DataFrame) -> pl.Series:
    """GB/s; payloads sent by RDMA are counted together until their arrival is known."""
    start, end = tasks["start_ns"].to_numpy(), tasks["end_ns"].to_numpy()
    size = tasks["bytes"].fill_null(0).to_numpy().astype(np.float64)
    duration = (end - start).astype(np.float64)
    payload = (tasks["rdma_type"].cast(pl.String) == _PAYLOAD).fill_null(False).to_numpy()
    if payload.any():
        _join_payloads(tasks, payload, start, end, size, duration)
    rate = np.divide(size, duration, out=np.zeros(len(size)), where=duration > 0)
    return pl.Series("bandwidth", rate)


def _join_payloads(
    tasks: pl.DataFrame,
    payload: npt.NDArray[np.bool_],
    start: npt.NDArray[np.int64],
    end: npt.NDArray[np.int64],
    size: npt.NDArray[np.float64],
    duration: npt.NDArray[np.float64],
) -> None:
    """Give every payload of a series the size of the whole series and the time from its first payload to its closing task."""
    lane = tasks.select(pl.struct("device", "collective", "plane").rank("dense").cast(pl.Int64)).to_series().to_numpy()
    order = np.lexsort((start, lane))
    lane, sent = lane[order], payload[order]
    first = sent & np.append(True, ~sent[:-1] | (lane[1:] != lane[:-1]))
    starts = np.flatnonzero(first)
    series = np.cumsum(first) - 1
    counts = np.bincount(series[sent], minlength=len(starts))
    pair = tasks["op_type"].cast(pl.String).fill_null("").str.to_lowercase().str.contains(f"^({'|'.join(_PAIRS)})").to_numpy()
    closing = starts + counts - 1 + np.where(pair[order][starts], _CLOSING_PAIR, _CLOSING)
    complete = (closing < len(lane)) & (lane[np.minimum(closing, len(lane) - 1)] == lane[starts])
    for number in np.flatnonzero(complete).tolist():
        members = order[starts[number] : starts[number] + counts[number]]
        duration[members] = end[order[closing[number]]] - start[members[0]]
        size[members] = size[members].sum()
