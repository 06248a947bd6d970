# SPDX-License-Identifier: Apache-2.0
"""Marks of the user (mstx): the host layer, and the device tasks its arrows point at (docs/formats/outputs.md 3.3)."""

from __future__ import annotations

import polars as pl

from stepscope.formats.ascend.trace import args
from stepscope.formats.ascend.trace.device_rows import PLACE
from stepscope.formats.ascend.trace.events import arg, category, span, text
from stepscope.formats.ascend.trace.lanes import Lanes
from stepscope.tables import ALL_TABLES

_DEFAULT = args.select(args.MARKS, "domain")[0].missing


def mark_rows(events: pl.LazyFrame) -> pl.LazyFrame:
    return events.select(
        "pid",
        "tid",
        *span(),
        category("name").alias("message"),
        *args.columns(args.MARKS, kind=text, domain=_domain),
    )


def _domain(name: str) -> pl.Expr:
    return pl.when(arg(name) != _DEFAULT).then(text(name))


def device_part(tasks: pl.DataFrame, mark_arrows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Split the tasks that show a mark on its stream from those that do work."""
    if not mark_arrows.height:
        return tasks.clear(), tasks
    return (
        tasks.join(mark_arrows, on=PLACE, how="semi", maintain_order="left"),
        tasks.join(mark_arrows, on=PLACE, how="anti", maintain_order="left"),
    )


def marks(rows: pl.DataFrame, on_device: pl.DataFrame, mark_arrows: pl.DataFrame, lanes: Lanes) -> pl.DataFrame:
    origin = [f"from_{column}" for column in PLACE]
    device = lanes.place(on_device).select(
        *PLACE,
        "device",
        pl.col("tid").alias("stream"),
        pl.col("start_ns").alias("device_start_ns"),
        pl.col("end_ns").alias("device_end_ns"),
    )
    parts = mark_arrows.join(device, on=PLACE, how="inner", maintain_order="left").unique(origin, keep="first", maintain_order=True)
    joined = rows.join(
        parts.select(
            *origin,
            "device",
            "stream",
            "device_start_ns",
            "device_end_ns",
            pl.col("id").cast(pl.Int64, strict=False).alias("connection_id"),
        ),
        left_on=PLACE,
        right_on=origin,
        how="left",
        maintain_order="left",
    )
    placed = joined.join(lanes.processes.select("pid", "os_pid"), on="pid", how="left", maintain_order="left")
    return ALL_TABLES["marks"].conform(placed.with_columns(pl.col("os_pid").alias("pid")))
