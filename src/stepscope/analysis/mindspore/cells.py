# SPDX-License-Identifier: Apache-2.0
"""Cells of a MindSpore network: their names, and the cell of work that other threads or a compiled graph did."""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.analysis.link import op_tree
from stepscope.analysis.link.groups import Ints
from stepscope.analysis.mindspore.scopes import TOPS
from stepscope.tables import Tables

_CALL = r"^.*:nn\.Cell\.(.+)\.__call__$"  # docs/formats/mindspore.md 7.2
_QUEUED = ("mindspore_to_self", "mindspore_queue")
NO_PROCESS = -1  # in place of null, which would not be equal to itself
_GRAPH_LAUNCH = "Kernel::KernelLaunch::"
_BACKWARD = "Gradients"


def readable(names: pl.Series) -> pl.Series:
    """`Conv2d` for `mindspore/nn/cell.py(1393):nn.Cell.Conv2d.__call__`; other names stay."""
    return names.str.replace(_CALL, "${1}")


def has_scopes(ops: pl.DataFrame) -> bool:
    """Whether operators carry the cells of a compiled graph in their names."""
    return bool(_scopes(ops))


def through_queues(tables: Tables, calls: pl.DataFrame, parent: pl.Series, around: Ints) -> Ints:
    """`around`, where -1 is replaced for operators that another thread queued: the call in which it did.

    Args:
        tables: `ops` and `flows`.
        calls: calls of cells, sorted by start, outer ones first, NO_PROCESS for null; `parent` is their tree.
        around: row of the innermost call around each operator on its own thread, -1 without one.
    """
    known_pid = pl.col("^.*pid$").fill_null(NO_PROCESS)
    ops, flows = (frame.with_columns(known_pid) for frame in (tables.ops, tables.flows.filter(pl.col("kind").is_in(_QUEUED))))
    if not flows.height or not calls.height:
        return _around_graphs(ops, calls, parent, around)
    starts = ops.select(pid="pid", tid="tid", ns="start_ns").with_row_index("op").unique(["pid", "tid", "ns"], keep="first")
    arrived = flows.join(starts, left_on=["to_pid", "to_tid", "to_ns"], right_on=["pid", "tid", "ns"], maintain_order="left")
    points = arrived.select(pid="from_pid", tid="from_tid", time_ns="from_ns")
    queued_in = op_tree.row_numbers(op_tree.innermost(calls, points, by=("pid", "tid"), at_end=False, parent=parent))
    queued_by = op_tree.row_numbers(op_tree.innermost(ops, points, by=("pid", "tid")))
    rows = arrived["op"].to_numpy()
    found, origin = around.copy(), np.full(ops.height, -1, dtype=np.int64)
    found[rows] = np.where(found[rows] >= 0, found[rows], queued_in)
    origin[rows] = queued_by
    above = op_tree.row_numbers(ops["parent"])
    for level in op_tree.levels(ops["parent"])[1:]:
        found[level] = np.where(found[level] >= 0, found[level], found[above[level]])
        origin[level] = np.where(origin[level] >= 0, origin[level], origin[above[level]])
    # A thread in between takes from one queue and puts into the next; each round goes one queue back.
    while True:
        open_ops = np.flatnonzero((found < 0) & (origin >= 0))
        known = found[origin[open_ops]]
        if not (known >= 0).any():
            return _around_graphs(ops, calls, parent, found)
        found[open_ops] = known


def inside_graphs(ops: pl.DataFrame, paths: pl.DataFrame, forward: Ints, backward: Ints) -> tuple[pl.DataFrame, Ints, Ints]:
    """Paths with the cells inside compiled graphs, and the path of each operator there.

    Python calls only the outermost cell of a graph; the names of the graph's operators hold the others.

    Args:
        ops: the operators.
        paths: path, depth, parent (number of the path around it).
        forward: number of the path of each operator, -1 without one; `backward` of those that compute its gradient.
    """
    scopes = _scopes(ops)
    if not scopes:
        return paths, forward, backward
    known = {
        (-1 if up is None else up, path.rpartition("/")[2]): number
        for number, (path, up) in enumerate(paths.select("path", "parent").iter_rows())
    }
    texts, depths, parents = (paths[name].to_list() for name in ("path", "depth", "parent"))
    forward, backward = forward.copy(), backward.copy()
    names = ops["name"].cast(pl.String)
    for name, (cells, is_backward) in scopes.items():
        rows = (names == name).fill_null(False).arg_true().to_numpy()
        for base in np.unique(forward[rows]):
            number = int(base)
            for cell in cells:
                outer = number
                if (outer, cell) not in known:
                    known[outer, cell] = len(texts)
                    texts.append(f"{texts[outer]}/{cell}" if outer >= 0 else cell)
                    depths.append(depths[outer] + 1 if outer >= 0 else 0)
                    parents.append(outer if outer >= 0 else None)
                number = known[outer, cell]
            there = rows[forward[rows] == base]
            if is_backward:
                backward[there], forward[there] = number, -1
            else:
                forward[there] = number
    schema = {"path": pl.String(), "depth": pl.Int64(), "parent": pl.Int64()}
    return pl.DataFrame({"path": texts, "depth": depths, "parent": parents}, schema=schema), forward, backward


def _scopes(ops: pl.DataFrame) -> dict[str, tuple[list[str], bool]]:
    """Cells from the outermost one, and whether it is their gradient, for each operator name that has a scope."""
    found = {}
    for name in ops["name"].unique().drop_nulls().cast(pl.String).to_list():
        parts = name.rpartition(":")[2].split("/")[:-1]
        cells = [part.partition("-")[2] for part in parts[1:] if "-" in part]
        if cells and parts[0] in TOPS:
            found[name] = (cells, parts[0] == _BACKWARD)
    return found


def _around_graphs(ops: pl.DataFrame, calls: pl.DataFrame, parent: pl.Series, around: Ints) -> Ints:
    """`around`, where launches of a graph's own threads get the call that waits for them, if only one thread calls cells.

    Launches that came through a queue have a task around them and are left alone: what they belong to may be over.
    """
    is_launch = pl.col("name").cast(pl.String).str.starts_with(_GRAPH_LAUNCH).fill_null(False) & pl.col("parent").is_null()
    lost = (around < 0) & ops.select(is_launch).to_series().to_numpy()
    if not lost.any() or calls.select("pid", "tid").n_unique() != 1:
        return around
    thread = {name: pl.lit(calls[name][0], pl.Int64()) for name in ("pid", "tid")}
    points = ops.filter(pl.Series(lost)).select(**thread, time_ns="start_ns")
    calls_around: Ints = around.copy()
    calls_around[lost] = op_tree.row_numbers(op_tree.innermost(calls, points, by=("pid", "tid"), at_end=False, parent=parent))
    return calls_around
