# SPDX-License-Identifier: Apache-2.0
"""Which operator launched which device task (docs/formats/outputs.md 2.4, docs/formats/framework.md 6.2).

With a host task queue the launch happens on the thread that empties the queue: launch -> the dequeue that holds it ->
its task number -> the enqueue -> the innermost operator there. Without one, the innermost operator on the launching
thread. A Kineto task names its operator itself.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.analysis.link.groups import group_numbers, last_started
from stepscope.analysis.link.op_tree import innermost, to_rows


def with_launches(tasks: pl.DataFrame, api_calls: pl.DataFrame, *, unless: pl.Series | None = None) -> pl.DataFrame:
    """Fill launch_ns and launch_tid of a source without launches from the API call of the same connection id.

    A timeline draws an arrow for every launch that counts, so when any launch is known nothing is added: the events of
    old timelines have a connection id but no arrow, and count for no operator (docs/formats/outputs.md 3.3).

    Args:
        tasks: table `kernels` or `collectives`.
        api_calls: table `api_calls`; of several calls with one id the operator launch counts, else the first.
        unless: connection ids that launched something else of which these tasks are parts.
    """
    wanted = tasks.select(pl.col("connection_id").drop_nulls().unique())
    if tasks["launch_ns"].null_count() < tasks.height or not wanted.height or not api_calls.height:
        return tasks
    calls = api_calls.select("connection_id", "start_ns", "tid", "level", "name").join(wanted, on="connection_id", how="semi")
    is_node = pl.col("level") == "node"
    by_rank = [calls.filter(is_node & (pl.col("name") == "launch")), calls.filter(is_node), calls]
    calls = pl.concat(by_rank).unique("connection_id", keep="first", maintain_order=True)
    if unless is not None:
        calls = calls.join(unless.drop_nulls().unique().to_frame("connection_id"), on="connection_id", how="anti")
    found = tasks.select("connection_id").join(calls, on="connection_id", how="left", maintain_order="left")
    return tasks.with_columns(launch_ns=found["start_ns"], launch_tid=found["tid"])


def enqueue_owners(ops: pl.DataFrame, queue: pl.DataFrame) -> pl.DataFrame:
    """Innermost operator around the enqueue of each task number: correlation_id, op."""
    enqueues = queue.filter(pl.col("kind") == "enqueue").filter(pl.col("correlation_id").is_first_distinct())
    points = enqueues.select("pid", "tid", time_ns="start_ns")
    return enqueues.select("correlation_id", op=innermost(ops, points, by=("pid", "tid")))


def attributed(tasks: pl.DataFrame, ops: pl.DataFrame, queue: pl.DataFrame, enqueued: pl.DataFrame | None = None) -> pl.DataFrame:
    """Set correlation_id and op of `kernels` or `collectives`.

    Further tasks of one launch (`extra`) get none, nor do events: they wait for work, and their time belongs to no operator.

    Args:
        tasks: with launch_ns and launch_tid.
        ops: table `ops` with `parent`.
        queue: table `queue`; empty when launches are direct.
        enqueued: `enqueue_owners` of the same, when the caller has them already.
    """
    counted = ~pl.col("extra").fill_null(False)
    if "kind" in tasks.columns:
        counted &= pl.col("kind").ne_missing("event")
    launches = tasks.select(time_ns=pl.when(counted).then("launch_ns"), tid="launch_tid")
    correlation = _correlations(launches, queue)
    if enqueued is None:
        enqueued = enqueue_owners(ops, queue)
    through_queue = correlation.to_frame("correlation_id").join(enqueued, on="correlation_id", how="left", maintain_order="left")[
        "op"
    ]
    # A launch outside every dequeue did not go through the queue: it stands in the operator around it.
    direct = innermost(ops, launches.with_columns(time_ns=pl.when(correlation.is_null()).then("time_ns")), at_end=False)
    op = pl.select(pl.coalesce(_named(tasks, ops), through_queue, direct)).to_series()
    return tasks.with_columns(correlation_id=correlation, op=pl.when(counted).then(op))


def _named(tasks: pl.DataFrame, ops: pl.DataFrame) -> pl.Series:
    """Operator that a Kineto task names by its external id."""
    if "external_id" not in tasks.columns or tasks["external_id"].null_count() == tasks.height:
        return pl.Series([None] * tasks.height, dtype=pl.Int64)
    named = ops.select("external_id", op=pl.int_range(pl.len(), dtype=pl.Int64)).drop_nulls().unique("external_id", keep="first")
    return tasks.select("external_id").join(named, on="external_id", how="left", maintain_order="left")["op"]


def _correlations(launches: pl.DataFrame, queue: pl.DataFrame) -> pl.Series:
    """Task number of the dequeue that holds each launch (`time_ns`, `tid`), both ends included."""
    dequeues = queue.filter(pl.col("kind") == "dequeue").select("tid", "start_ns", "end_ns", "correlation_id")
    if not dequeues.height:
        return pl.Series("correlation_id", [None] * launches.height, dtype=pl.Int64)
    has_thread, has_time = launches["tid"].is_not_null().to_numpy(), launches["time_ns"].is_not_null().to_numpy()
    thread, at_thread = group_numbers([dequeues, launches], ["tid"])
    # Some sources number the threads of the driver differently; then time alone must do.
    if not np.isin(np.unique(at_thread[has_thread]), np.unique(thread)).any():
        has_thread[:] = False
    starts, ends = dequeues["start_ns"].to_numpy(), dequeues["end_ns"].to_numpy()
    times, holder = launches["time_ns"].fill_null(0).to_numpy(), np.full(launches.height, -1, dtype=np.int64)
    same_thread, any_thread = np.flatnonzero(has_thread & has_time), np.flatnonzero(~has_thread & has_time)
    holder[same_thread] = last_started(thread, starts, at_thread[same_thread], times[same_thread])
    holder[any_thread] = last_started(np.zeros_like(thread), starts, np.zeros_like(any_thread), times[any_thread])
    holder[times > ends[holder]] = -1
    return dequeues["correlation_id"].gather(to_rows(holder, "dequeue"))


def launched(kernels: pl.DataFrame, collectives: pl.DataFrame) -> pl.DataFrame:
    """What launches of the host caused on devices: kernels and collectives in one frame, each piece of work once.

    Columns: table, row, device, stream, start_ns, end_ns, duration_ns, name, op, correlation_id, launch_ns,
    connection_id, is_aicore.
    """
    columns = [
        "device",
        "stream",
        "start_ns",
        "end_ns",
        "duration_ns",
        "name",
        "op",
        "correlation_id",
        "launch_ns",
        "connection_id",
    ]
    # In old timelines vector kernels say AI_CORE as well, and the AICore columns count them (docs/formats/outputs.md 2.4).
    is_aicore = (pl.coalesce("task_type", "core") == "AI_CORE").fill_null(False)
    counted = ~pl.col("extra").fill_null(False)
    row = pl.col("row").cast(pl.Int64)
    tasks = kernels.with_row_index("row").filter(counted)
    # A collective that is a single kernel is counted as that kernel.
    operators = collectives.with_row_index("row").filter(counted & pl.col("kernel").is_null())
    return pl.concat(
        [
            tasks.select(pl.lit("kernels").alias("table"), row, *columns, is_aicore=is_aicore),
            operators.select(pl.lit("collectives").alias("table"), row, *columns, is_aicore=pl.lit(False)),
        ]
    ).with_columns(pl.col("duration_ns").fill_null(pl.col("end_ns") - pl.col("start_ns")))
