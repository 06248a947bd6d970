# SPDX-License-Identifier: Apache-2.0
"""Call stacks of operators from the Python calls around them, for captures whose operators carry none of their own.

A stack holds functions of Python files and modules, and no functions of C: the vendor's profiler records frames of files
only (docs/formats/outputs.md 3.1), and what a C function did is the operator itself.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.analysis.link import op_tree
from stepscope.analysis.link.groups import Ints
from stepscope.arrays import unique_inverse
from stepscope.tables import TEXT, Tables

_FRAME = r"\(\d+\): |^nn\.Module: "  # `file(line): function`, or the call of a module


def with_stacks(tables: Tables) -> pl.DataFrame:
    """`ops` with the stacks that the capture was asked for and that its source kept as Python calls only."""
    ops, calls = tables.ops, tables.python_calls
    if not calls.height or ops["stack"].count() or not tables.facts.with_stack:
        return ops
    return ops.with_columns(stack=stacks(ops, calls))


def stacks(ops: pl.DataFrame, python_calls: pl.DataFrame) -> pl.Series:
    """Stack of each operator as in `ops.stack`: the calls that were open on its thread when it began, innermost first."""
    names = python_calls["name"].unique().cast(pl.String)
    framed = names.filter(names.str.contains(_FRAME)).cast(TEXT)
    calls = python_calls.filter(pl.col("name").is_in(framed.implode())).sort("start_ns", "end_ns", descending=[False, True])
    parent = op_tree.parents(calls)
    points = ops.select("pid", "tid", time_ns="start_ns")
    around = op_tree.row_numbers(op_tree.innermost(calls, points, by=("pid", "tid"), at_end=False, parent=parent))
    above = op_tree.row_numbers(parent)
    # Most calls of a script have no operator in them: texts of their stacks would take gigabytes.
    needed = _with_outer(around, above)
    place = np.append(np.cumsum(needed) - 1, -1)  # where -1, the row of no call, is found, too
    texts, number = _texts(calls["name"].filter(needed), op_tree.to_rows(place[above[needed]], "parent"))
    different, row = unique_inverse(np.append(number, -1)[place[around]] + 1)
    stack = pl.Series("stack", [texts[one - 1] if one else None for one in different.tolist()], dtype=pl.String).cast(TEXT)
    return pl.DataFrame({"stack": stack})[row]["stack"]


def _with_outer(rows: Ints, above: Ints) -> npt.NDArray[np.bool_]:
    """Which rows are among these, or are above one of them."""
    found = np.zeros(above.size, np.bool_)
    found[rows[rows >= 0]] = True
    rows = np.flatnonzero(found)
    while rows.size:
        rows = above[rows]
        rows = rows[rows >= 0]
        rows = rows[~found[rows]]
        found[rows] = True
    return found


def _texts(names: pl.Series, parent: pl.Series) -> tuple[list[str], Ints]:
    """The different stacks that calls stand on, themselves first, and which of them is that of each call."""
    above = op_tree.row_numbers(parent)
    # `;` separates frames.
    text = names.cast(pl.String).fill_null("?").str.replace_all(";", ",", literal=True)
    number = np.full(len(names), -1, dtype=np.int64)
    known: list[str] = []
    for rows in op_tree.levels(parent):
        outer = np.where(above[rows] >= 0, number[above[rows]], -1)
        level = pl.DataFrame({"outer": outer, "name": text.gather(rows)})
        distinct = level.unique(maintain_order=True).with_columns(number=pl.int_range(len(known), len(known) + pl.len()))
        number[rows] = level.join(distinct, on=["outer", "name"], how="left", maintain_order="left")["number"].to_numpy()
        known += [f"{name};{known[up]}" if up >= 0 else name for up, name in distinct.select("outer", "name").iter_rows()]
    return known, number
