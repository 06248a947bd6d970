# SPDX-License-Identifier: Apache-2.0
"""References between tables: one set from several sources with its references kept right, and keys for other readers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import polars as pl

from stepscope.tables.facts import Facts
from stepscope.tables.tableset import ALL_TABLES, Tables

# Columns that hold a row number of another table.
REFERENCES: dict[tuple[str, str], str] = {
    ("ops", "parent"): "ops",
    ("op_inputs", "op"): "ops",
    ("data_stages", "op"): "ops",
    ("kernels", "op"): "ops",
    ("collectives", "op"): "ops",
    ("allocations", "op"): "ops",
    ("kernel_metrics", "kernel"): "kernels",
    ("task_states", "kernel"): "kernels",
    ("task_parts", "kernel"): "kernels",
    ("collectives", "kernel"): "kernels",
    ("transfers", "collective"): "collectives",
    ("collective_times", "collective"): "collectives",
    ("collective_packets", "collective"): "collectives",
    ("collective_links", "collective"): "collectives",
}


def with_keys(name: str, frame: pl.DataFrame) -> pl.DataFrame:
    """The table for readers that know no row numbers (Parquet, SQL): `id` where others refer to it, `op_id` and the like besides.

    `kernels.op_id = ops.id` joins without counting rows; the columns `op`, `kernel`, … hold the same numbers.
    """
    references = [pl.col(column).alias(f"{column}_id") for table, column in REFERENCES if table == name and column in frame.columns]
    keyed = [pl.int_range(pl.len(), dtype=pl.Int64).alias("id")] if name in REFERENCES.values() else []
    return frame.select(*keyed, pl.all(), *references)


def union(parts: Sequence[Tables]) -> Tables:
    """Rows of all parts together, sorted as each table promises; the facts of all sources are merged."""
    if len(parts) == 1:
        return parts[0]
    split = {name for name in ALL_TABLES if sum(part[name].height > 0 for part in parts) > 1}
    places = {name: _places([part[name] for part in parts], name) for name in set(REFERENCES.values()) & split}
    frames = {}
    for name in ALL_TABLES:
        holders = [(index, part[name]) for index, part in enumerate(parts) if part[name].height]
        if name == "meta":
            frames[name] = _merge_facts([frame for _, frame in holders])
        elif len(holders) == 1:
            frames[name] = _move_references(holders[0][1], name, holders[0][0], places)
        elif holders:
            moved = [_move_references(frame, name, index, places) for index, frame in holders]
            frames[name] = _sort(pl.concat(moved, how="diagonal"), name)
    return Tables(frames)


def _places(frames: list[pl.DataFrame], name: str) -> list[pl.Series]:
    """For each part, the row number of each of its rows in the united table."""
    keys = pl.concat([frame.select(_keys(name)).with_columns(pl.lit(index).alias("#part")) for index, frame in enumerate(frames)])
    order = _sort(keys.with_row_index("#row"), name)
    where = order.select(pl.col("#row"), pl.int_range(pl.len()).cast(pl.Int64).alias("#place")).sort("#row")["#place"]
    starts = [0]
    for frame in frames:
        starts.append(starts[-1] + frame.height)
    return [where[start:stop] for start, stop in pairwise(starts)]


def _keys(name: str) -> list[str]:
    table = ALL_TABLES[name]
    return [*table.sorted_by, *(["end_ns"] if name == "ops" else [])]


def _sort(frame: pl.DataFrame, name: str) -> pl.DataFrame:
    keys = _keys(name)
    # Operators that start together: the longer one encloses the other.
    return frame.sort(keys, descending=[key == "end_ns" for key in keys], maintain_order=True) if keys else frame


def _move_references(frame: pl.DataFrame, name: str, part: int, places: dict[str, list[pl.Series]]) -> pl.DataFrame:
    changes = []
    for (table, column), target in REFERENCES.items():
        if table == name and target in places and frame[column].null_count() < frame.height:
            changes.append(places[target][part].gather(frame[column]).alias(column))
    return frame.with_columns(changes) if changes else frame


def _merge_facts(metas: list[pl.DataFrame]) -> pl.DataFrame:
    """Each fact from the first source that has one."""
    default, joined = Facts(), {}
    for facts in map(Facts.of, metas):
        for key, value in vars(facts).items():
            if key not in joined and value != getattr(default, key):
                joined[key] = value
    return default.replace(**joined).table()
