# SPDX-License-Identifier: Apache-2.0
"""Communication operators and their link-level tasks (docs/formats/outputs.md 3.2, 3.3)."""

from __future__ import annotations

import polars as pl

from stepscope.formats.ascend.trace import args
from stepscope.formats.ascend.trace.device_rows import with_launch
from stepscope.formats.ascend.trace.events import arg, category, number, rewritten, span, text
from stepscope.formats.ascend.trace.lanes import Lanes
from stepscope.formats.ascend.trace.layers import COMMUNICATION, GROUP, PLANE
from stepscope.tables import ALL_TABLES, TEXT

# Both have a type of data, and both share the number of the model and, as operators, that of the launch.
SHARED_ARGS = args.select(args.COLLECTIVES, "connection_id", "model_id")
OPERATOR_ARGS = args.without(args.COLLECTIVES, "connection_id", "model_id")
TASK_ARGS = args.without(args.TRANSFERS, "model_id")
_OPERATOR_TYPE = args.names(args.COLLECTIVES)["data_type"]

_INDEX_DIGITS = 5  # a group is named by its index (G1) or by a hash, which is longer


def communication_rows(events: pl.LazyFrame) -> pl.LazyFrame:
    return events.select(
        "pid",
        "tid",
        *span(),
        pl.col("dur_ns").alias("duration_ns"),
        category("name"),
        *args.columns(SHARED_ARGS, connection_id=number, model_id=number),
        *args.columns(args.without(OPERATOR_ARGS, "data_type")),
        text(_OPERATOR_TYPE).alias("collective_type"),
        *args.columns(TASK_ARGS, notify_id=_notify, context_id=number, src_rank=number, dst_rank=number),
    )


def _notify(name: str) -> pl.Expr:
    return pl.when(~arg(name).is_in(args.NO_NOTIFY)).then(arg(name)).cast(TEXT)


def communication(rows: pl.DataFrame, launches: pl.DataFrame, lanes: Lanes) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Tables `collectives` and `transfers`; a transfer belongs to the operator of its group that runs when it starts."""
    known = rows.join(_communication_lanes(lanes), on=["pid", "tid"], how="left", maintain_order="left")
    is_task = pl.coalesce("on_plane", pl.col("task_type").is_not_null())  # a lane without name: tasks name their type
    operators = _operators(known.filter(~is_task), launches, lanes)
    transfers = _with_operator(lanes.place(known.filter(is_task)), operators)
    transfers = transfers.with_columns(pl.coalesce("task_type", "name").alias("task_type"))
    return ALL_TABLES["collectives"].conform(operators), ALL_TABLES["transfers"].conform(transfers)


def _communication_lanes(lanes: Lanes) -> pl.DataFrame:
    """Per lane: whether it is a plane and its number, the lane of its group, the group's text and index."""
    layers = lanes.processes.filter(pl.col("layer").is_in([COMMUNICATION.name, COMMUNICATION.older])).select("pid")
    threads = lanes.threads.join(layers, on="pid", how="semi").sort("pid", "tid")
    plane = pl.col("lane").str.extract(rf"^{PLANE}(\d+)$", 1).cast(pl.Int64, strict=False)
    named = threads.with_columns(plane.alias("plane"), plane.is_not_null().alias("on_plane"))
    group = pl.col("lane").str.extract(f"^{'(.*)'.join(GROUP)}$", 1)
    index = pl.when(group.str.contains(rf"^\d{{1,{_INDEX_DIGITS}}}$")).then(group.cast(pl.Int64, strict=False))
    groups = named.filter(~pl.col("on_plane")).select(
        "pid",
        "tid",
        pl.col("tid").alias("group_tid"),
        pl.when(index.is_null()).then(group).cast(TEXT).alias("group"),
        pl.coalesce(index, pl.int_range(pl.len()).over("pid")).alias("group_index"),
    )
    # The planes of a group follow it: tid = group tid + 1 + plane.
    return named.drop("lane").sort("tid").join_asof(groups.sort("tid"), on="tid", by="pid", check_sortedness=False)


def _operators(rows: pl.DataFrame, launches: pl.DataFrame, lanes: Lanes) -> pl.DataFrame:
    """Sorted as the table will be, so that the row number is the row of `collectives`."""
    # name = {op type}_{end of the group hash}_{index}_{iteration}
    kind = pl.coalesce(pl.col("text").str.extract(r"^(.*)_[^_]*_-?\d+_\d+$", 1), "text")
    typed = rewritten(rows.with_columns(pl.col("name").alias("op_type")), "op_type", kind)
    placed = lanes.place(with_launch(typed, launches)).drop("stream", "bytes")
    return (
        placed.with_columns(pl.col("collective_type").alias("data_type"), pl.col("tid").alias("group_tid"))
        .sort("device", "start_ns", maintain_order=True)
        .with_row_index("collective")
    )


def _with_operator(tasks: pl.DataFrame, operators: pl.DataFrame) -> pl.DataFrame:
    spans = operators.select("pid", "group_tid", "start_ns", pl.col("end_ns").alias("op_end"), pl.col("collective").cast(pl.Int64))
    ordered = tasks.with_row_index("original").sort("start_ns")
    joined = ordered.join_asof(
        spans.sort("start_ns", maintain_order=True), on="start_ns", by=["pid", "group_tid"], check_sortedness=False
    )
    inside = pl.when(pl.col("start_ns") <= pl.col("op_end")).then(pl.col("collective"))
    return joined.with_columns(inside.alias("collective")).sort("original")
