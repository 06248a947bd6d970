# SPDX-License-Identifier: Apache-2.0
"""How long each operator took on the host and on the device, with and without what it called (docs/formats/outputs.md 5)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.analysis.link.attribution import launched
from stepscope.analysis.link.groups import Ints
from stepscope.analysis.link.op_tree import child_sums, row_numbers, subtree_sums
from stepscope.analysis.steps import is_step
from stepscope.tables import Tables

# Sources give durations with up to five digits below the nanosecond (docs/formats/outputs.md 16). Sums add whole units of that
# size: exact in any order, up to 25 hours of device time.
FINEST = 100_000
USER_SCOPE = 7  # RecordScope::USER_SCOPE


def operator_times(tables: Tables) -> pl.DataFrame:
    """One row per row of `ops`: host_self_ns, host_total_ns, device_self_ns, device_total_ns, aicore_self_ns, aicore_total_ns.

    Self excludes the operators called directly inside, total includes everything below. Device times are those of the
    launched tasks, however they overlap.
    """
    ops = tables.ops
    total = (ops["end_ns"] - ops["start_ns"]).to_numpy()
    tasks = launched(tables.kernels, tables.collectives).drop_nulls("op")
    device = _sum_by_op(tasks, ops.height)
    aicore = _sum_by_op(tasks.filter("is_aicore"), ops.height)
    device_total, aicore_total = subtree_sums(ops["parent"], device, aicore)
    return pl.DataFrame(
        {
            "host_self_ns": total - child_sums(ops["parent"], total),
            "host_total_ns": total,
            "device_self_ns": device / FINEST,
            "device_total_ns": device_total / FINEST,
            "aicore_self_ns": aicore / FINEST,
            "aicore_total_ns": aicore_total / FINEST,
        }
    )


def _sum_by_op(tasks: pl.DataFrame, ops: int) -> Ints:
    units = (tasks["duration_ns"] * FINEST).round().cast(pl.Int64).to_numpy()
    total = np.zeros(ops, dtype=np.int64)
    np.add.at(total, tasks["op"].to_numpy(), units)
    return total


def operator_details(tables: Tables) -> pl.DataFrame:
    """Rows of operator_details.csv, in order of start: op (row of `ops`), name, shapes, stack and the six times."""
    named = tables.ops.select(pl.int_range(pl.len(), dtype=pl.Int64).alias("op"), "name", "shapes", "stack")
    return pl.concat([named, operator_times(tables)], how="horizontal").filter(~is_step())


def operator_calls(tables: Tables) -> pl.DataFrame:
    """One row per call in order of start: columns of `operator_details`, `outer` (not inside a call of the same name), `start_ns`.

    Where the calls themselves are gone, what operator_details.csv says of them (table `op_times`): `op` and `start_ns` are
    null, and every call counts as outer, because the file does not say which call is inside another. Ranges that a user
    annotated are not operators; those of an NPU are, because operator_details.csv lists them.
    """
    if tables.ops.height or not tables.op_times.height:
        rows = operator_details(tables)
        if tables.device_kind != "npu":
            rows = rows.filter(~is_annotation(tables.ops).gather(rows["op"]))
        outer = pl.Series(outermost(tables.ops)).gather(rows["op"])
        return rows.with_columns(outer=outer, start_ns=tables.ops["start_ns"].gather(rows["op"]))
    unknown = pl.lit(None, pl.Int64)
    return tables.op_times.select(unknown.alias("op"), pl.all(), outer=pl.lit(True), start_ns=unknown)


def operator_groups(calls: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """One row per group: columns of `by`, calls, the six times in ns, and `call_stack` (whether any call has one).

    Totals leave out calls inside a call of the same name.

    Args:
        calls: rows of `operator_calls`.
        by: columns that make a group.
    """
    return calls.group_by(by).agg(
        pl.len().cast(pl.Int64).alias("calls"),
        pl.col("host_self_ns", "device_self_ns", "aicore_self_ns").sum(),
        pl.col("host_total_ns", "device_total_ns", "aicore_total_ns").filter("outer").sum(),
        call_stack=pl.col("stack").count() > 0,
    )


def is_annotation(ops: pl.DataFrame) -> pl.Series:
    """Whether a range was set by the user (`record_function`) or by the framework for the user, not by an operator."""
    return ops.select((pl.col("scope") == USER_SCOPE).fill_null(False)).to_series()


def operator_summary(tables: Tables) -> pl.DataFrame:
    """One row per operator name, most device time first, then most host time.

    Columns: name, calls, host_self_ns, host_total_ns, device_self_ns, device_total_ns, host_share, device_share. Totals
    leave out calls inside a call of the same name. Shares are of the self times of all operators.
    """
    summed = operator_groups(operator_calls(tables), ["name"])
    shares = [(pl.col(f"{side}_self_ns") / pl.col(f"{side}_self_ns").sum()).alias(f"{side}_share") for side in ("host", "device")]
    columns = ["name", "calls", "host_self_ns", "host_total_ns", "device_self_ns", "device_total_ns"]
    ordered = summed.sort("device_self_ns", "host_self_ns", pl.col("name").cast(pl.String), descending=[True, True, False])
    return ordered.select(*columns, *[share.fill_nan(0.0) for share in shares])


def outermost(ops: pl.DataFrame) -> npt.NDArray[np.bool_]:
    """Whether no operator around a call has the same name."""
    names = ops["name"].to_physical().to_numpy()
    parent = row_numbers(ops["parent"])
    outermost = np.ones(ops.height, dtype=np.bool_)
    rows = np.flatnonzero(parent >= 0)
    above = parent[rows]
    while rows.size:
        same = names[above] == names[rows]
        outermost[rows[same]] = False
        above = parent[above]
        going = ~same & (above >= 0)
        rows, above = rows[going], above[going]
    return outermost
