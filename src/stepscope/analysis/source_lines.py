# SPDX-License-Identifier: Apache-2.0
"""Where in the user's program an operator was called: its module and its source line, and how long the operators of a line took."""

from __future__ import annotations

import re

import numpy as np
import polars as pl

from stepscope.analysis import recompute
from stepscope.analysis.link import op_tree
from stepscope.analysis.operators import operator_times
from stepscope.analysis.partition.names import matches
from stepscope.analysis.views import has_modules, module_of_operators
from stepscope.tables import Tables

# Frames of libraries and of the interpreter: the line that called into them is the user's.
LIBRARY = (
    r"site-packages|dist-packages|/lib/python\d|(^|/)(torch|torch_npu|torchvision|mindspore|stepscope|contextlib|threading|queue)"
    r"(/|\.py)|^<|multiprocessing|importlib"
)
PLACE = r"^(?<file>.*)\((?<line>\d+)\)(?::\s*(?<function>.*))?$"
MOST_NAMES = 5
_LINE = r"\(\d+\)"
_FRAMES = "function"  # kind of a Python call that is a line of source; others are modules and built-in functions


def operator_places(tables: Tables) -> pl.DataFrame:
    """`module` (path) and `line` (`file(line): function`) of every row of `ops`; null where nothing tells."""
    return pl.DataFrame({"module": operator_modules(tables), "line": _lines(tables)})


def lines_with_backward(tables: Tables, lines: pl.Series) -> pl.Series:
    """The lines, and for what backward runs (which has no frames of the user) those of its forward operator."""
    ops = tables.ops
    pairs = recompute.links(ops)
    if not pairs.height:
        return lines
    forward = np.arange(ops.height, dtype=np.int64)
    forward[lines.is_null().to_numpy()] = -1
    forward[pairs["backward"].to_numpy()] = pairs["forward"].to_numpy()
    above = op_tree.row_numbers(ops["parent"])
    for rows in op_tree.levels(ops["parent"])[1:]:
        forward[rows] = np.where(forward[rows] >= 0, forward[rows], forward[above[rows]])
    linked = lines.gather(op_tree.to_rows(forward, "line"))
    return pl.select(pl.coalesce(lines, linked)).to_series().alias(lines.name)


def user_frame(stack: str) -> str:
    """The innermost frame of a stack (innermost first, separated by `;`) that is not a library's, else the innermost.

    Frames without a line (modules, built-in functions) stand for the user only where nothing else does.
    """
    frames = [frame.strip() for frame in stack.split(";") if frame.strip()]
    own = [frame for frame in frames if not re.search(LIBRARY, frame)]
    return next((frame for frame in own if re.search(_LINE, frame)), (own or frames or [""])[0])


def operator_modules(tables: Tables, *, backward: bool = True) -> pl.Series:
    """Module path of each operator, see `views.module_of_operators`; as the source says where it does."""
    ops = tables.ops
    if ops["modules"].count() or not has_modules(tables):
        return pl.Series("module", ops["modules"].cast(pl.String))
    return module_of_operators(tables, backward=backward)


def _lines(tables: Tables) -> pl.Series:
    ops = tables.ops
    if ops["stack"].count():
        distinct = ops["stack"].drop_nulls().unique()
        found = {stack: user_frame(stack) for stack in distinct.cast(pl.String).to_list()}
        return pl.Series("line", ops["stack"].cast(pl.String).replace_strict(found, default=None, return_dtype=pl.String))
    calls = tables.python_calls.filter((pl.col("kind") == _FRAMES).fill_null(False))
    calls = calls.filter(~pl.Series(matches(calls["name"], LIBRARY)) & pl.Series(matches(calls["name"], _LINE)))
    if not calls.height or not ops.height:
        return pl.Series("line", [None] * ops.height, dtype=pl.String)
    # Only frames of the user are left, so the innermost around an operator is the line asked for.
    process = pl.col("pid").fill_null(-1)
    calls = calls.sort("start_ns", "end_ns", descending=[False, True], maintain_order=True)
    spans = calls.select(process, "tid", "start_ns", "end_ns")
    points = ops.select(process, "tid", time_ns="start_ns")
    around = op_tree.innermost(spans, points, by=("pid", "tid"), at_end=False, parent=op_tree.parents(spans))
    rows = op_tree.row_numbers(around)
    return pl.Series("line", calls["name"].cast(pl.String).gather(op_tree.to_rows(rows, "line")))


def line_times(tables: Tables, lines: pl.Series) -> pl.DataFrame:
    """One row per line that called operators, the longest first.

    Args:
        lines: `file(line): function` of each row of `ops`, null where it is not known.

    Returns:
        file, line, function, calls, host_ns, device_ns (operators themselves, so nothing counts twice), operators (names).
    """
    place = lines.cast(pl.String).str.extract_groups(PLACE).struct.unnest()
    rows = pl.concat([tables.ops.select(name=pl.col("name").cast(pl.String)), place, operator_times(tables)], how="horizontal")
    rows = rows.drop_nulls("file").with_columns(pl.col("line").cast(pl.Int64))
    key = ["file", "line", "function"]
    names = (
        rows.group_by(*key, "name")
        .agg(pl.col("host_self_ns").sum(), pl.col("device_self_ns").sum())
        .sort("device_self_ns", "host_self_ns", "name", descending=[True, True, False])
        .group_by(key, maintain_order=True)
        .agg(operators=pl.col("name").head(MOST_NAMES))
    )
    summed = rows.group_by(key).agg(
        calls=pl.len().cast(pl.Int64),
        host_ns=pl.col("host_self_ns").sum(),
        device_ns=pl.col("device_self_ns").sum().round().cast(pl.Int64),
    )
    order = ["device_ns", "host_ns", "file", "line", "function"]
    found: pl.DataFrame = summed.join(names, on=key, how="left", nulls_equal=True)
    return found.sort(order, descending=[True, True, False, False, False])
