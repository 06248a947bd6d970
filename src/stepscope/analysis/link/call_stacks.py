# SPDX-License-Identifier: Apache-2.0
"""Call stacks of operators from the Python calls around them, for captures whose operators carry none of their own.

A stack holds functions of Python files and modules, and no functions of C: the vendor's profiler records frames of files
only (docs/formats/outputs.md 3.1), and what a C function did is the operator itself.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from stepscope.analysis.link import op_tree
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
    around = op_tree.innermost(calls, points, by=("pid", "tid"), at_end=False, parent=parent)
    return _texts(calls["name"], parent).gather(around).alias("stack")


def _texts(names: pl.Series, parent: pl.Series) -> pl.Series:
    """The stack that each call stands on, itself first. Texts are made once per distinct path, not per call."""
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
    text_of = pl.Series("stack", known, dtype=pl.String).cast(TEXT)
    return pl.DataFrame({"stack": text_of})[number]["stack"] if len(number) else text_of
