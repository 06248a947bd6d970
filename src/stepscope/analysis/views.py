# SPDX-License-Identifier: Apache-2.0
"""Time by module of the model and by Python stack."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.analysis import recompute
from stepscope.analysis.link import op_tree
from stepscope.analysis.link.groups import Ints
from stepscope.analysis.mindspore import cells
from stepscope.analysis.operators import operator_times
from stepscope.analysis.steps import step_of
from stepscope.tables import Tables

MODULE_PREFIX = "nn.Module: "
_PROCESS = pl.col("pid").fill_null(cells.NO_PROCESS)


def has_modules(tables: Tables) -> bool:
    """Whether a capture says which module work belongs to."""
    return bool((tables.python_calls["kind"] == "module").any()) or cells.has_scopes(tables.ops)


def module_view(tables: Tables, *, step: pl.DataFrame | None = None) -> pl.DataFrame:
    """One row per module path, parents before children; with `step` (start_ns, end_ns) of what starts in it.

    Columns: path (names from the outermost module joined by `/`), depth, calls, host_self_ns, host_total_ns, device_self_ns,
    device_total_ns, device_backward_ns, operators (with those of the modules inside). Host times are those of the module's
    calls. An operator belongs to the innermost module call around it on its thread, and so do the device tasks it launched;
    what the backward of such an operator launched is in `device_backward_ns` of the module (the total over the modules inside).
    A block that backward runs again (activation checkpointing) counts where it ran first.
    With MindSpore it belongs to the cell that queued it, and inside a compiled graph to the cell in its name.
    """
    calls = tables.python_calls.filter(pl.col("kind") == "module").sort("start_ns", "end_ns", descending=[False, True])
    calls = calls.with_columns(_PROCESS)
    parent = op_tree.parents(calls)
    ops = tables.ops.with_columns(_PROCESS)
    around = recompute.around_calls(ops, calls)
    path, paths = _paths(calls, recompute.first_parents(calls, parent, around))
    host = (calls["end_ns"] - calls["start_ns"]).to_numpy()
    numbers = {
        "calls": np.ones(calls.height, dtype=np.int64),
        "host_self_ns": host - op_tree.child_sums(parent, host),
        "host_total_ns": host,
    }
    forward, backward = (_path_of(path, module) for module in _module_of_ops(tables, calls, parent, around))
    paths, forward, backward = cells.inside_graphs(tables.ops, paths, forward, backward)
    path_then = np.where(_starts_in(step, calls), path, -1)
    summed = {name: _by_number(path_then, value, paths.height) for name, value in numbers.items()}
    forward, backward = (np.where(_starts_in(step, tables.ops), module, -1) for module in (forward, backward))
    device = _whole_ns(operator_times(tables)["device_self_ns"])
    own = [_by_number(module, device, paths.height) for module in (forward, backward)]
    operators = _by_number(forward, np.ones(len(forward), dtype=np.int64), paths.height)
    totals = op_tree.subtree_sums(paths["parent"], *own, operators)
    device_times = {"device_self_ns": own[0], "device_total_ns": totals[0], "device_backward_ns": totals[1], "operators": totals[2]}
    found = paths.select("path", "depth").with_columns(
        **{name: pl.Series(value) for name, value in {**summed, **device_times}.items()}
    )
    if step is None:
        return found
    (within,) = op_tree.subtree_sums(paths["parent"], summed["calls"] + operators)
    return found.filter(within > 0)


def module_of_operators(tables: Tables, *, backward: bool = True) -> pl.Series:
    """Path of the module of each row of `ops`, as in `module_view`.

    Args:
        tables: linked tables.
        backward: whether what backward runs belongs to the module of its forward operator; else only calls around an operator
            itself count, which in backward are those that are computed again.
    """
    own, linked, paths = _operator_paths(tables)
    number = np.where(own >= 0, own, linked) if backward else own
    return paths["path"].gather(op_tree.to_rows(number, "path")).alias("module")


def _operator_paths(tables: Tables) -> tuple[Ints, Ints, pl.DataFrame]:
    """Number of the path of each operator by the calls around it, of what backward runs by its forward operator, and the paths."""
    calls = tables.python_calls.filter(pl.col("kind") == "module").sort("start_ns", "end_ns", descending=[False, True])
    calls = calls.with_columns(_PROCESS)
    parent = op_tree.parents(calls)
    around = recompute.around_calls(tables.ops.with_columns(_PROCESS), calls)
    path, paths = _paths(calls, recompute.first_parents(calls, parent, around))
    own, linked = (_path_of(path, module) for module in _module_of_ops(tables, calls, parent, around))
    paths, own, linked = cells.inside_graphs(tables.ops, paths, own, linked)
    return own, linked, paths


def module_paths(tables: Tables) -> tuple[Ints, pl.Series]:
    """Number of the module path of each operator (-1 without one), and the paths.

    What the backward of an operator launches belongs to the module of the operator. Without recorded module calls the hierarchy
    is that which the framework wrote beside each operator.
    """
    ops = tables.ops
    if not has_modules(tables):
        written = ops["modules"].cast(pl.String)
        paths = written.drop_nulls().unique(maintain_order=True)
        number = written.replace_strict(paths, pl.int_range(paths.len(), eager=True), default=-1, return_dtype=pl.Int64)
        return (number.to_numpy() if paths.len() else np.full(ops.height, -1, dtype=np.int64)), paths
    own, linked, known = _operator_paths(tables)
    return np.where(own >= 0, own, linked), known["path"]


def _starts_in(step: pl.DataFrame | None, rows: pl.DataFrame) -> npt.NDArray[np.bool_]:
    if step is None:
        return np.ones(rows.height, dtype=np.bool_)
    return step_of(rows["start_ns"], step).is_not_null().to_numpy()


def _whole_ns(times: pl.Series) -> Ints:
    return np.asarray(times.round().cast(pl.Int64).to_numpy(), dtype=np.int64)


def _paths(calls: pl.DataFrame, parent: pl.Series) -> tuple[Ints, pl.DataFrame]:
    """Path number of each call, and the paths: path, depth, parent (number), sorted so that parents come first."""
    above = op_tree.row_numbers(parent)
    number = np.full(calls.height, -1, dtype=np.int64)
    found = [pl.DataFrame(schema={"path": pl.String, "depth": pl.Int64, "parent": pl.Int64})]
    names = cells.readable(calls["name"].cast(pl.String).str.strip_prefix(MODULE_PREFIX)).fill_null("?")
    known: dict[int, str] = {}
    for depth, rows in enumerate(op_tree.levels(parent)):
        outer = np.where(above[rows] >= 0, number[above[rows]], -1)
        level = pl.DataFrame({"parent": outer, "name": names.gather(rows)})
        distinct = level.unique(maintain_order=True).with_columns(number=pl.int_range(len(known), len(known) + pl.len()))
        number[rows] = level.join(distinct, on=["parent", "name"], how="left", maintain_order="left")["number"].to_numpy()
        texts = [f"{known[up]}/{name}" if up >= 0 else name for up, name in distinct.select("parent", "name").iter_rows()]
        known.update(zip(distinct["number"].to_list(), texts, strict=True))
        found.append(distinct.select(pl.Series("path", texts, dtype=pl.String), pl.lit(depth, pl.Int64).alias("depth"), "parent"))
    paths = pl.concat(found).with_columns(parent=pl.when(pl.col("parent") >= 0).then("parent"))
    return number, paths


def _module_of_ops(tables: Tables, calls: pl.DataFrame, parent: pl.Series, repeated: Ints) -> tuple[Ints, Ints]:
    """Row of the module call of each operator: that around it, and for backward ranges that around the forward operator."""
    ops = tables.ops
    around = op_tree.innermost(
        calls, ops.select(_PROCESS, "tid", time_ns="start_ns"), by=("pid", "tid"), at_end=False, parent=parent
    )
    forward = cells.through_queues(tables, calls, parent, op_tree.row_numbers(around))
    pairs = recompute.links(ops)
    runs = recompute.first_runs(ops, pairs)
    runs = runs.filter(forward[runs["again"].to_numpy()] < 0)
    forward[runs["again"].to_numpy()] = forward[runs["first"].to_numpy()]
    backward = np.full(ops.height, -1, dtype=np.int64)
    backward[pairs["backward"].to_numpy()] = forward[pairs["forward"].to_numpy()]
    blocks = recompute.repeated_in(ops, parent, repeated)
    backward[blocks["range"].to_numpy()] = blocks["call"].to_numpy()
    if runs.height:
        held = recompute.checkpointed_calls(ops.with_columns(_PROCESS), calls, parent, runs["checkpoint"])
        ranges = pairs.join(held, left_on="forward", right_on="checkpoint", how="inner")
        backward[ranges["backward"].to_numpy()] = ranges["call"].to_numpy()
    above = op_tree.row_numbers(ops["parent"])
    for rows in op_tree.levels(ops["parent"])[1:]:
        backward[rows] = np.where(backward[rows] >= 0, backward[rows], backward[above[rows]])
    # A module call around the operator itself is nearer than the one around its forward operator.
    backward[forward >= 0] = -1
    return forward, backward


def _path_of(path: Ints, call: Ints) -> Ints:
    return np.where(call >= 0, path[call], -1) if path.size else call


def _by_number(number: Ints, value: Ints, count: int) -> Ints:
    total = np.zeros(count, dtype=np.int64)
    known = number >= 0
    np.add.at(total, number[known], value[known])
    return total
