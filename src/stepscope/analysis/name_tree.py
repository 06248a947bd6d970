# SPDX-License-Identifier: Apache-2.0
"""Operators (or call stacks) put together by the path of names that leads to them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.analysis.link import op_tree
from stepscope.analysis.operators import operator_times
from stepscope.analysis.steps import is_step
from stepscope.tables import Tables

Ints = npt.NDArray[np.int64]
Chosen = npt.NDArray[np.bool_]
METRICS = ("host_total", "host_self", "device_total", "device_self")


@dataclass(frozen=True)
class NameTree:
    """Nodes in an order in which parents come first; `parent` is -1 at the top. Values are sums in us over the calls of a node."""

    parent: list[int]
    name: list[str]
    values: pl.DataFrame  # calls, first_ns and METRICS, one row per node

    def children(self, node: int) -> list[int]:
        return [number for number, parent in enumerate(self.parent) if parent == node]

    def weights(self, value: str) -> tuple[list[float], list[float]]:
        """A column of `values` for each node itself, and with everything below; never negative."""
        own = np.maximum(self.values[value].to_numpy().astype(np.float64), 0.0)
        whole = own.copy()
        for node in range(len(self.parent) - 1, -1, -1):
            if self.parent[node] >= 0:
                whole[self.parent[node]] += whole[node]
        return own.tolist(), whole.tolist()

    def below(self, name: str) -> list[int]:
        """Nodes of a name and everything below them."""
        inside = [False] * len(self.parent)
        for node, parent in enumerate(self.parent):
            inside[node] = self.name[node] == name or (parent >= 0 and inside[parent])
        return [node for node, is_inside in enumerate(inside) if is_inside]

    def paths(self) -> list[list[str]]:
        """The names that lead to each node, itself last."""
        paths: list[list[str]] = []
        for node, parent in enumerate(self.parent):
            paths.append([*(paths[parent] if parent >= 0 else []), self.name[node]])
        return paths

    def at(self, path: list[str]) -> int | None:
        """The node of a path of names; -1 for the empty one."""
        node = -1
        for name in path:
            node = next((child for child in self.children(node) if self.name[child] == name), -2)
            if node == -2:
                return None
        return node


def of_ops(tables: Tables, chosen: Chosen | None = None) -> NameTree:
    """Calls of all threads by path; steps are left out, what they hold stands at the top.

    Values are those of the `chosen` operators only, one flag per row of `ops`.
    """
    ops = tables.ops
    parent = op_tree.row_numbers(ops["parent"])
    steps = ops.select(is_step()).to_series().to_numpy()
    while True:  # the parent of what a step holds is the parent of the step
        inside = (parent >= 0) & steps[parent]
        if not inside.any():
            break
        parent[inside] = parent[parent[inside]]
    kept = np.flatnonzero(~steps)
    place = np.full(ops.height, -1, dtype=np.int64)
    place[kept] = np.arange(kept.size)
    above = np.where(parent[kept] >= 0, place[parent[kept]], -1)
    names = ops["name"].gather(kept).cast(pl.String).fill_null("?")
    number, parents, texts = by_path(above, names)
    times = operator_times(tables)[kept]
    summed = times.select(
        pl.Series("node", number), start_ns=ops["start_ns"].gather(kept), **{key: pl.col(f"{key}_ns") / 1000.0 for key in METRICS}
    )
    counted = pl.Series("counted", np.ones(kept.size, dtype=np.bool_) if chosen is None else chosen[kept])
    values = (
        summed.with_columns(counted)
        .group_by("node")
        .agg(
            pl.col("counted").sum().cast(pl.Int64).alias("calls"),
            pl.col("start_ns").min().alias("first_ns"),
            pl.col(METRICS).filter("counted").sum(),
        )
    )
    return NameTree(parents, texts, values.sort("node").drop("node"))


def by_path(above: Ints, names: pl.Series) -> tuple[Ints, list[int], list[str]]:
    """Number of the path of each row; parent and name of each path. Rows with one parent path and one name share a path."""
    number = np.full(len(names), -1, dtype=np.int64)
    parents: list[int] = []
    texts: list[str] = []
    for rows in op_tree.levels(op_tree.to_rows(above, "parent")):
        outer = np.where(above[rows] >= 0, number[above[rows]], -1)
        level = pl.DataFrame({"outer": outer, "name": names.gather(rows)})
        distinct = level.unique(maintain_order=True).with_columns(number=pl.int_range(len(texts), len(texts) + pl.len()))
        number[rows] = level.join(distinct, on=["outer", "name"], how="left", maintain_order="left")["number"].to_numpy()
        parents += distinct["outer"].to_list()
        texts += distinct["name"].to_list()
    return number, parents, texts


def of_stacks(tables: Tables, chosen: Chosen | None = None) -> NameTree:
    """Call stacks, outermost frame at the top; the values are self times of the operators called from there."""
    times = operator_times(tables)
    stacked = pl.concat([tables.ops.select(pl.col("stack").cast(pl.String), "start_ns"), times], how="horizontal")
    stacked = (stacked if chosen is None else stacked.filter(chosen)).drop_nulls("stack")
    summed = stacked.group_by("stack").agg(
        pl.len().cast(pl.Int64).alias("calls"),
        pl.col("start_ns").min().alias("first_ns"),
        pl.col("host_self_ns", "device_self_ns").sum(),
    )
    parents: list[int] = []
    texts: list[str] = []
    known: dict[tuple[int, str], int] = {}
    rows = []
    for stack, *values in summed.sort("first_ns").iter_rows():
        node = -1
        for frame in reversed([part.strip() for part in stack.split(";") if part.strip()]):
            key = (node, frame)
            if key not in known:
                known[key] = len(texts)
                parents.append(node)
                texts.append(frame)
            node = known[key]
        if node >= 0:
            rows.append((node, *values))
    schema = {"node": pl.Int64, "calls": pl.Int64, "first_ns": pl.Int64, "host_self": pl.Float64, "device_self": pl.Float64}
    own = (
        pl.DataFrame(rows, schema=schema, orient="row")
        .group_by("node")
        .agg(pl.col("calls").sum(), pl.col("first_ns").min(), pl.col("host_self", "device_self").sum() / 1000.0)
    )
    whole = pl.DataFrame({"node": range(len(texts))}, schema={"node": pl.Int64}).join(
        own, on="node", how="left", maintain_order="left"
    )
    filled = whole.with_columns(pl.col("calls").fill_null(0), pl.col("host_self", "device_self").fill_null(0.0))
    return NameTree(parents, texts, filled.drop("node"))
