# SPDX-License-Identifier: Apache-2.0
"""The Operator view: time by operator (and input shapes), with call stacks (docs/reference/viewer.md 4.2)."""

from __future__ import annotations

from typing import Any

import polars as pl

from stepscope.analysis.kernels.tensor_cores import can_use, with_tensor_core_times
from stepscope.analysis.largest import largest
from stepscope.analysis.operators import operator_calls, operator_groups
from stepscope.web.frames_of_stack import stack_frames
from stepscope.web.loaded import LoadedCapture
from stepscope.web.paging import Listing, Shown, filtered
from stepscope.web.parameters import Query
from stepscope.web.problems import Problem, missing
from stepscope.web.row_filter import in_step

GROUPS = {"op": ["name"], "op_shape": ["name", "shapes"]}
PIES = {
    "device_self": "Device Self Time (us)",
    "device_total": "Device Total Time (us)",
    "host_self": "Host Self Time (us)",
    "host_total": "Host Total Time (us)",
}
NESTED = "Total columns: nested calls counted (operator_details.csv does not say which call is inside another)"


def calls(capture: LoadedCapture) -> pl.DataFrame:
    """One row per call: name, shapes, stack, six times in ns, `outer` (not inside a call of the same name), `start_ns` or null."""
    return capture.once("operator calls", lambda: _calls(capture))


def _calls(capture: LoadedCapture) -> pl.DataFrame:
    tables = capture.tables
    rows = operator_calls(tables)
    if not rows.height and not tables.ops.height:
        raise missing("operators", "this capture has no operators")
    return rows if capture.is_npu else with_tensor_core_times(rows, tables)


def from_csv(capture: LoadedCapture) -> bool:
    return not capture.tables.ops.height


def _of_step(capture: LoadedCapture, query: Query) -> pl.DataFrame:
    rows = calls(capture)
    chosen = in_step(capture, query, rows["start_ns"])
    return rows if chosen is None else rows.filter(chosen)


def has_device(rows: pl.DataFrame) -> bool:
    return bool(rows["device_total_ns"].sum())


def summary(rows: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """Sums by group in us, with shares and means."""
    share = [
        pl.when(pl.col(f"device_{part}_ns") > 0)
        .then(100 * pl.col(f"aicore_{part}_ns") / pl.col(f"device_{part}_ns"))
        .otherwise(0.0)
        .alias(f"core_{part}")
        for part in ("self", "total")
    ]
    eligible = (pl.col("aicore_self_ns") > 0) | (pl.col("aicore_total_ns") > 0)
    return operator_groups(rows, by).with_columns(
        *(
            (pl.col(f"{side}_{part}_ns") / 1000.0).alias(f"{side}_{part}")
            for side in ("device", "host")
            for part in ("self", "total")
        ),
        *share,
        eligible=pl.when(eligible).then(pl.lit("Yes")).otherwise(pl.lit("No")),
        device_mean=pl.col("device_self_ns") / pl.col("calls") / 1000.0,
        host_mean=pl.col("host_self_ns") / pl.col("calls") / 1000.0,
    )


def shapes_text(shapes: pl.Expr) -> pl.Expr:
    """`32,3;64` as `[[32,3],[64]]`; nothing for none."""
    inner = shapes.str.replace_all(";", "],[", literal=True)
    return pl.when(shapes.is_not_null() & (shapes != "")).then("[[" + inner + "]]").otherwise(pl.lit(""))


def operators(capture: LoadedCapture, query: Query) -> Listing:
    """Table 1."""
    group = query.choice("group", tuple(GROUPS))
    rows = _of_step(capture, query)
    on_device = has_device(calls(capture))
    order = "device_self" if on_device else "host_self"
    frame = _with_eligible(capture, summary(rows, GROUPS[group]))
    # All columns of the group decide: rows that changed places between two requests would be shown twice or not at all.
    keys = [pl.col(key).cast(pl.String) for key in GROUPS[group]]
    frame = frame.sort(pl.col(order), *keys, descending=[True, *(False for _ in keys)])
    if group == "op_shape":
        frame = frame.with_columns(shapes_text(pl.col("shapes").cast(pl.String)).alias("shapes"))
    notes = [NESTED] if from_csv(capture) else []
    if group == "op_shape" and not rows["shapes"].count():
        notes.append("no input shapes in this capture: collect with record_shapes=True")
    if not rows["stack"].count():
        notes.append("no call stacks in this capture: collect with with_stack=True")
    if not on_device:
        notes.append("no device times in this capture: collect with activities NPU or CUDA")
    return Listing(frame, tuple(_columns(capture, group, on_device)), ((order, True),), tuple(notes))


def _with_eligible(capture: LoadedCapture, frame: pl.DataFrame) -> pl.DataFrame:
    """On GPUs the operators that can use tensor cores are known by name, whatever their kernels did."""
    if capture.is_npu:
        return frame
    return frame.with_columns(eligible=pl.when(can_use(pl.col("name"))).then(pl.lit("Yes")).otherwise("eligible"))


def _columns(capture: LoadedCapture, group: str, on_device: bool) -> list[Shown]:
    columns = [Shown("name", "Name", "Name of the operator.")]
    if group == "op_shape":
        columns.append(Shown("shapes", "Input Shapes", "Shapes of the inputs."))
    columns.append(Shown("calls", "Calls", "Number of calls.", summed=True))
    if on_device:
        columns += [
            Shown("device_self", "Device Self Duration (us)", "Sum of device time without operators called inside.", summed=True),
            Shown("device_total", "Device Total Duration (us)", "Sum of device time with operators called inside."),
        ]
    columns += [
        Shown("host_self", "Host Self Duration (us)", "Sum of host time without operators called inside.", summed=True),
        Shown("host_total", "Host Total Duration (us)", "Sum of host time with operators called inside."),
    ]
    if on_device and capture.is_npu:
        columns += [
            Shown("eligible", "AI Cores Eligible", "Yes when any of its device time is on AI Cores."),
            Shown("core_self", "AI Cores Self (%)", "AI Core time of itself by Device Self Duration.", "%"),
            Shown("core_total", "AI Cores Total (%)", "AI Core time by Device Total Duration.", "%"),
        ]
    elif on_device:
        columns += _tensor_cores()
    columns.append(Shown("call_stack", "CallStack", "Whether call stacks were recorded."))
    if on_device:
        columns.append(Shown("device_mean", "Device Self Mean (us)", "Device Self Duration by Calls.", shown=False))
    return [*columns, Shown("host_mean", "Host Self Mean (us)", "Host Self Duration by Calls.", shown=False)]


def _tensor_cores() -> list[Shown]:
    return [
        Shown("eligible", "Tensor Cores Eligible", "Yes for operators that can use tensor cores."),
        Shown(
            "core_self",
            "Tensor Cores Self (%)",
            "Time of kernels that use tensor cores, launched by itself, by Device Self Duration.",
            "%",
        ),
        Shown("core_total", "Tensor Cores Total (%)", "Time of kernels that use tensor cores by Device Total Duration.", "%"),
    ]


def pies(capture: LoadedCapture, query: Query) -> dict[str, Any]:
    """Largest operators by each of the four times; the rest as one sum."""
    listing = operators(capture, query)
    top = query.number("top", 10, most=1000)
    frame = filtered(listing, query)
    shown = []
    for key, title in PIES.items():
        if key in frame.columns:
            shown.append({"key": key, "title": title, **pie(frame, key, top, shapes="shapes" in frame.columns)})
    return {"pies": shown}


def pie(frame: pl.DataFrame, key: str, top: int, *, label: str = "name", shapes: bool = False) -> dict[str, Any]:
    """The largest values as items of a pie chart, the rest as one sum."""
    rows, total, other = largest(frame, key, top, label=label)
    items = [
        {"name": row[label], "shapes": row["shapes"] if shapes else None, "value": row[key]}
        for row in rows.with_columns(pl.col(label).cast(pl.String)).iter_rows(named=True)
    ]
    return {"total": total, "items": items, "other": other}


def stacks(capture: LoadedCapture, query: Query) -> dict[str, Any]:
    """Table 2: one operator by call stack."""
    name = query.text("name")
    limit = query.number("limit", 200, least=1, most=2000)
    rows = _of_step(capture, query).filter(pl.col("name") == name)
    if not rows.height:
        raise Problem(404, "missing_data", f"no operator {name!r}", hint="the capture may have changed; reload")
    group = "op"
    if query.optional("shapes") is not None or query.text("group") == "op_shape":
        group = "op_shape"
        rows = rows.filter(shapes_text(pl.col("shapes").cast(pl.String)) == query.text("shapes"))
    on_device = has_device(calls(capture))
    order = "device_self" if on_device else "host_self"
    frame = _with_eligible(capture, summary(rows.drop_nulls("stack"), [*GROUPS[group], "stack"]))
    if "shapes" in frame.columns:
        frame = frame.with_columns(shapes_text(pl.col("shapes").cast(pl.String)).alias("shapes"))
    frame = frame.with_columns(pl.col("stack").cast(pl.String)).sort(order, "stack", descending=[True, False])
    columns = [column for column in _columns(capture, group, on_device) if column.key != "call_stack"]
    shown = frame.head(limit)
    cells = shown.select(pl.col(column.key) for column in columns).with_columns(pl.col("name").cast(pl.String)).rows()
    return {
        "columns": [column.described(frame.schema[column.key]) for column in columns],
        "rows": [{"cells": list(row), "frames": stack_frames(stack)} for row, stack in zip(cells, shown["stack"], strict=True)],
        "total": frame.height,
        "notes": [] if frame.height else ["no call stacks for this operator: collect with with_stack=True"],
    }
