# SPDX-License-Identifier: Apache-2.0
"""Activation checkpointing: which module calls backward repeats, and which forward operator a backward range belongs to.

A checkpointed block runs a second time inside backward, often on a thread that knows nothing of the modules around it. Numbers
of forward operators count per thread, so those of the second run may be those of other operators of the first.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.analysis.flows import forward_backward_links
from stepscope.analysis.link import op_tree
from stepscope.analysis.link.groups import Ints

_IS_BACKWARD = (pl.col("fwd_thread").fill_null(0) != 0) & (pl.col("seq") >= 0).fill_null(False)


def around_calls(ops: pl.DataFrame, calls: pl.DataFrame) -> Ints:
    """Row of the innermost backward range around each module call on its thread, -1 without one.

    Args:
        ops: table `ops` with its tree.
        calls: module calls: pid (as in `ops`, no nulls), tid, start_ns.
    """
    rows = np.flatnonzero(_is_backward(ops))
    if not rows.size or not calls.height:
        return np.full(calls.height, -1, dtype=np.int64)
    ranges = ops[rows].select("pid", "tid", "start_ns", "end_ns")
    order = ranges.with_row_index("at").sort("start_ns", "end_ns", descending=[False, True])
    inside = op_tree.innermost(
        order, calls.select("pid", "tid", time_ns="start_ns"), by=("pid", "tid"), parent=op_tree.parents(order)
    )
    found = op_tree.row_numbers(inside)
    return np.where(found >= 0, rows[order["at"].to_numpy()[found]], -1)


def first_parents(calls: pl.DataFrame, parent: pl.Series, around: Ints) -> pl.Series:
    """The tree of calls in which a repeated block hangs where it ran first: under the parent of its last call in forward."""
    rows = calls.select("pid", "name", "start_ns", row=pl.int_range(pl.len(), dtype=pl.Int64)).with_columns(
        above=op_tree.row_numbers(parent), repeated=around >= 0
    )
    roots = rows.filter(pl.col("repeated") & (pl.col("above") < 0))
    if not roots.height:
        return parent
    first = rows.filter(~pl.col("repeated")).select("pid", "name", "start_ns", outer="above")
    named = roots.join_asof(first, on="start_ns", by=["pid", "name"], strategy="backward", check_sortedness=False)
    above = op_tree.row_numbers(parent)
    above[named["row"].to_numpy()] = named["outer"].fill_null(-1).to_numpy()
    return op_tree.to_rows(above, "parent")


def links(ops: pl.DataFrame) -> pl.DataFrame:
    """Forward operator and backward range of each number: forward, backward (rows of `ops`).

    A backward range inside another one (reentrant checkpointing) belongs to the operator with its number that the outer one
    repeated, every other range to an operator of the first run; only without such a one is the number alone decisive.
    """
    within = _outer_ranges(ops)
    rows = ops.select("seq", "end_ns", row=pl.int_range(pl.len(), dtype=pl.Int64)).with_columns(
        within=within, backward=_is_backward(ops)
    )
    rows = rows.filter(pl.col("seq") >= 0).reverse().sort("end_ns", maintain_order=True)
    forward = rows.filter(~pl.col("backward")).unique(["seq", "within"], keep="last").select("seq", "within", forward="row")
    exact = rows.filter("backward").join(forward, on=["seq", "within"], how="inner").select("forward", backward="row")
    by_number = forward_backward_links(ops).select("forward", "backward")
    return pl.concat([exact, by_number.join(exact, on="backward", how="anti")])


def repeated_in(ops: pl.DataFrame, parent: pl.Series, around: Ints) -> pl.DataFrame:
    """Ranges that repeat one block and then run its backward inside: range (row of `ops`), call (row of the block's call)."""
    roots = np.flatnonzero((around >= 0) & (op_tree.row_numbers(parent) < 0))
    held = np.unique(_outer_ranges(ops)[_is_backward(ops)]) if roots.size else np.empty(0, dtype=np.int64)
    found = pl.DataFrame({"range": around[roots], "call": roots}, schema={"range": pl.Int64, "call": pl.Int64})
    return found.filter(pl.col("range").is_in(held.tolist()) & pl.col("range").is_unique())


def first_runs(ops: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """Operators that a reentrant range runs again, with those of the first run: again, first, checkpoint (rows of `ops`).

    Both runs call the same operators, so they are told by their names and order. That is needed where module calls were recorded
    on other threads only; `pairs` are those of `links`.
    """
    backward, within = _is_backward(ops), _outer_ranges(ops)
    held = np.unique(within[backward & (within >= 0)])
    chosen = pairs.filter(pl.col("backward").is_in(held.tolist()))
    checkpoint, inside = np.full((2, ops.height), -1, dtype=np.int64)
    checkpoint[chosen["backward"].to_numpy()] = first = chosen["forward"].to_numpy()
    above, is_first = op_tree.row_numbers(ops["parent"]), np.zeros(ops.height, dtype=np.bool_)
    is_first[first] = True
    for rows in op_tree.levels(ops["parent"])[1:] if chosen.height else ():
        inside[rows] = np.where(is_first[above[rows]], above[rows], inside[above[rows]])
    again = np.where((within >= 0) & ~backward, checkpoint[within], -1)
    named = ops.select("name", row=pl.int_range(pl.len(), dtype=pl.Int64))
    one, two = (
        named.with_columns(checkpoint=run).filter(run >= 0).with_columns(nth=pl.int_range(pl.len()).over("checkpoint", "name"))
        for run in (inside, again)
    )
    both = two.join(one, on=["checkpoint", "name", "nth"], how="inner", suffix="_first")
    return both.select("checkpoint", again="row", first="row_first")


def checkpointed_calls(ops: pl.DataFrame, calls: pl.DataFrame, parent: pl.Series, checkpoints: pl.Series) -> pl.DataFrame:
    """The call of each checkpoint's block, where it has a single one: checkpoint (row of `ops`), call."""
    rows = checkpoints.unique().sort()
    spans = ops.select("pid", "tid", "start_ns", "end_ns")[rows]
    points = calls.select("pid", "tid", time_ns="start_ns")
    around = op_tree.row_numbers(op_tree.innermost(spans, points, by=("pid", "tid"), parent=op_tree.parents(spans)))
    above = op_tree.row_numbers(parent)
    outermost = np.flatnonzero((around >= 0) & ((above < 0) | (around[above] != around)))
    found = pl.DataFrame({"checkpoint": rows.gather(around[outermost]), "call": outermost}, schema_overrides={"call": pl.Int64})
    return found.filter(pl.col("checkpoint").is_unique())


def _is_backward(ops: pl.DataFrame) -> npt.NDArray[np.bool_]:
    return ops.select(_IS_BACKWARD).to_series().to_numpy()


def _outer_ranges(ops: pl.DataFrame) -> Ints:
    """The innermost backward range around each operator, -1 without one; the engine's range and the function's are one."""
    backward, parent = _is_backward(ops), op_tree.row_numbers(ops["parent"])
    outer = np.full(ops.height, -1, dtype=np.int64)
    if not backward.any():
        return outer
    number, thread = (ops[name].fill_null(-1).to_numpy() for name in ("seq", "fwd_thread"))
    for rows in op_tree.levels(ops["parent"])[1:]:
        above = parent[rows]
        same = backward[rows] & (number[rows] == number[above]) & (thread[rows] == thread[above])
        outer[rows] = np.where(backward[above] & ~same, above, outer[above])
    return outer
