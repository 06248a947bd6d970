# SPDX-License-Identifier: Apache-2.0
"""How much memory each category of tensors held, event by event (docs/formats/outputs.md 11)."""

from __future__ import annotations

from enum import IntEnum

import polars as pl

from stepscope.analysis.memory.categories import Categories, Category, categorised
from stepscope.analysis.memory.data_flow import Node, data_flow, op_kinds
from stepscope.analysis.memory.storages import Storages, followed
from stepscope.tables import Tables


class Action(IntEnum):
    PREEXISTING = 0
    CREATE = 1
    INCREMENT_VERSION = 2
    DESTROY = 3


_SCHEMA = {
    "time_ns": pl.Int64(),
    "action": pl.Int8(),
    "bytes": pl.Int64(),
    "category": pl.Int8(),
    "device_type": pl.String(),
    "device": pl.Int32(),
}


def memory_timeline(tables: Tables) -> pl.DataFrame:
    """One row per change of the memory that a category holds, in time order.

    Args:
        tables: linked tables (`ops.parent` filled). Without recorded input tensors all memory is of unknown category.

    Returns:
        Columns time_ns (null: there before the capture), action, bytes (negative when given back), category, device_type,
        device. A change in place that moves a block to another category gives two rows.
    """
    storages = followed(tables)
    kinds = op_kinds(tables.ops)
    nodes = data_flow(tables, storages, kinds)
    categories = categorised(tables, storages, nodes, kinds)
    rows = [*_lifetimes(storages, nodes, categories), *_changes(storages, nodes, categories)]
    frame = pl.DataFrame(rows, schema=_SCHEMA, orient="row")
    # By time and, at one time, creations before changes before releases.
    return frame.sort("time_ns", "action", nulls_last=False, maintain_order=True)


def running_sums(timeline: pl.DataFrame) -> tuple[list[int], list[list[int]]]:
    """Times in microseconds and the bytes per category after each of them.

    What was there before the capture gets the first real time; events of one microsecond are one point.
    """
    times = timeline.select((pl.col("time_ns") // 1000).alias("us"), "bytes", "category")
    if not times.height:
        return [], []
    first = times["us"].min()
    cumulated = times.select(
        pl.col("us").fill_null(first if first is not None else 0),
        *(pl.when(pl.col("category") == int(kind)).then("bytes").otherwise(0).cum_sum().alias(kind.name) for kind in Category),
    )
    # The events before the capture stay a point of their own, as in the original.
    point = times.select(pl.col("us").fill_null(-1).rle_id()).to_series()
    last = cumulated.with_columns(point.alias("point")).unique("point", keep="last", maintain_order=True)
    return last["us"].to_list(), [list(row) for row in last.select(kind.name for kind in Category).iter_rows()]


Row = tuple[int | None, int, int, int, str | None, int | None]


def _lifetimes(storages: Storages, nodes: list[Node], categories: Categories) -> list[Row]:
    last_version = {block: version + 1 for node in nodes for block, version in node.changes}
    rows: list[Row] = []
    for number, block in enumerate(storages.blocks):
        action = Action.PREEXISTING if block.created_ns is None else Action.CREATE
        first = _index(categories, (number, 0)) if block.is_tensor else Category.UNKNOWN
        rows.append((block.created_ns, action, block.bytes, first, block.device_type, block.device))
        if block.freed_ns is not None:
            end = (number, last_version.get(number, 0))
            last = _index(categories, end) if block.is_tensor else Category.UNKNOWN
            rows.append((block.freed_ns, Action.DESTROY, -block.bytes, last, block.device_type, block.device))
    return rows


def _changes(storages: Storages, nodes: list[Node], categories: Categories) -> list[Row]:
    rows: list[Row] = []
    for node in nodes:
        for number, version in node.changes:
            block = storages.blocks[number]
            for size, at in ((-block.bytes, version), (block.bytes, version + 1)):
                category = _index(categories, (number, at))
                rows.append((node.start_ns, Action.INCREMENT_VERSION, size, category, block.device_type, block.device))
    return rows


def _index(categories: Categories, version: tuple[int, int]) -> Category:
    found = categories.get(version)
    return Category.UNKNOWN if found is None else found
