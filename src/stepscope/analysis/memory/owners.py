# SPDX-License-Identifier: Apache-2.0
"""Who owns the memory that is held at an instant: lines of the program or modules, then operators, then single blocks."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

UNKNOWN, BEFORE = "(no owner recorded)", "held before the capture"
NAMELESS = -1
MOST_BLOCKS = 12  # of one operator that are told one by one


@dataclass(frozen=True)
class Tree:
    """Nodes in order, parents before children; node 0 is the whole. Weights are bytes."""

    names: list[str]
    name: list[int]  # which of the names; NAMELESS for a single block
    parent: list[int]
    weight: list[int]


def with_operators(held: pl.DataFrame, ops: pl.DataFrame) -> pl.DataFrame:
    """Blocks with the row of the operator that allocated them; where only its name is recorded, the call of that name then."""
    calls = ops.with_row_index("call").select(
        pl.col("call").cast(pl.Int64), pl.col("name").cast(pl.String).alias("#name"), pl.col("start_ns").alias("#start"), "end_ns"
    )
    calls = calls.drop_nulls().sort("#start", "call")
    named = held.with_columns(pl.col("name").cast(pl.String).fill_null("").alias("#name"), pl.int_range(pl.len()).alias("#row"))
    timed = named.select("#row", "#name", "start_ns").drop_nulls().sort("start_ns")
    around = timed.join_asof(calls, left_on="start_ns", right_on="#start", by="#name", check_sortedness=False)
    found = around.filter(pl.col("end_ns") >= pl.col("start_ns")).select("#row", "call")
    joined = named.join(found, on="#row", how="left", maintain_order="left")
    return joined.with_columns(op=pl.coalesce(pl.col("op").cast(pl.Int64), "call")).drop("#row", "#name", "call")


def owners(held: pl.DataFrame, places: pl.DataFrame, by: str, before: int) -> pl.DataFrame:
    """Bytes by owner and operator, the largest owners first.

    Args:
        held: blocks with `name`, `bytes`, `op` (row of `ops` or null), `start_ns` and `release_ns`.
        places: `module` and `line` of each row of `ops`.
        by: `line` or `module`.
        before: bytes that are held and belong to no block.

    Returns:
        owner, within (the module of a line, the line of a module; empty where it is not known), operator, bytes, count,
        released_ns (the last release; null when a block is still held at the end), blocks (sizes of the largest ones).
    """
    other = "module" if by == "line" else "line"
    known = places.with_row_index("op").select(
        pl.col("op").cast(pl.Int64), pl.col(by).cast(pl.String).alias("owner"), pl.col(other).cast(pl.String).alias("within")
    )
    rows = held.select(
        pl.col("op").cast(pl.Int64), pl.col("bytes").abs(), "release_ns", operator=pl.col("name").cast(pl.String).fill_null("?")
    ).join(known, on="op", how="left", maintain_order="left")
    parts = (
        rows.with_columns(pl.col("owner").fill_null(UNKNOWN), pl.col("within").fill_null(""))
        .group_by("owner", "within", "operator")
        .agg(
            pl.col("bytes").sum(),
            count=pl.len().cast(pl.Int64),
            released_ns=pl.when(pl.col("release_ns").null_count() == 0).then(pl.col("release_ns").max()),
            blocks=pl.col("bytes").sort(descending=True).head(MOST_BLOCKS),
        )
    )
    if before > 0:
        line = {
            "owner": BEFORE, "within": "", "operator": "", "bytes": before, "count": 0, "released_ns": None, "blocks": [],
        }  # fmt: skip
        parts = pl.concat([parts, pl.DataFrame([line], schema=parts.schema)])
    whole = pl.col("bytes").sum().over("owner")
    return (
        parts.with_columns(whole=whole)
        .sort("whole", "owner", "bytes", "operator", "within", descending=[True, False, True, False, False])
        .drop("whole")
    )


def tree(parts: pl.DataFrame) -> Tree:
    """The parts of `owners` as nested boxes: all, owner, module or line inside it, operator, its largest blocks."""
    found = Tree([], [], [], [])
    number: dict[str, int] = {}

    def add(name: str | None, parent: int, weight: int) -> int:
        found.name.append(NAMELESS if name is None else number.setdefault(name, len(number)))
        found.parent.append(parent)
        found.weight.append(weight)
        return len(found.name) - 1

    whole = add("peak", -1, int(parts["bytes"].sum()))
    for (owner,), rows in parts.group_by("owner", maintain_order=True):
        node = add(str(owner), whole, int(rows["bytes"].sum()))
        for (within,), calls in rows.group_by("within", maintain_order=True):
            call = add(str(within), node, int(calls["bytes"].sum())) if within else node
            for operator, size, count, blocks in calls.select("operator", "bytes", "count", "blocks").iter_rows():
                if not operator:
                    continue
                own = add(operator, call, size)
                if count > 1:  # one block is as wide as its operator and says the same
                    for block in blocks:
                        add(None, own, block)
    found.names.extend(number)
    return found
