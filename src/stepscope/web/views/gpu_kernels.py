# SPDX-License-Identifier: Apache-2.0
"""The Kernel view of GPUs, and of frameworks that run kernels on the CPU (docs/reference/viewer.md 4.3)."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from stepscope.analysis.kernels.groups import PROPERTIES, gpu_kernel_groups, time_by, timed_kernels
from stepscope.analysis.kernels.tensor_cores import can_use
from stepscope.web.loaded import LoadedCapture
from stepscope.web.paging import Listing, Shown
from stepscope.web.parameters import Query
from stepscope.web.problems import missing
from stepscope.web.views.operators import pie

GROUPS = ("name", "all", "properties")
_PROPERTIES = {
    "operator": "Operator", "grid": "Grid", "block": "Block", "registers": "Register Per Thread", "shared_memory": "Shared Memory",
}  # fmt: skip


def _rows(capture: LoadedCapture) -> pl.DataFrame:
    """Kernels: everything but copies and waiting."""
    if not capture.tables.kernels.height:
        raise missing("device", "no kernel in this capture")
    return capture.once("gpu kernels", lambda: timed_kernels(capture.tables))


def _chosen(capture: LoadedCapture, query: Query) -> pl.DataFrame:
    rows = _rows(capture)
    step = query.whole("step")
    if step is not None:
        rows = rows.filter(pl.col("step") == step)
    return rows if query.flag("comm", True) else rows.filter(pl.col("kind") != "communication")


def _yes(flag: pl.Expr) -> pl.Expr:
    return pl.when(flag).then(pl.lit("Yes")).otherwise(pl.lit("No"))


def kernels(capture: LoadedCapture, query: Query) -> Listing:
    """The table, grouped by name, by properties or not at all."""
    group = query.choice("group", GROUPS)
    rows = _chosen(capture, query)
    if group == "all":
        return _every(capture, rows)
    gpu = capture.kind != "cpu"
    by = ["name"] if group == "name" else ["name", *PROPERTIES] if gpu else ["name", "operator"]
    frame = gpu_kernel_groups(rows, by).with_columns(_yes(pl.col("tensor")).alias("tensor"))
    frame = frame.with_columns(eligible=_yes(can_use(pl.col("operator")).fill_null(False))) if "operator" in by else frame
    return Listing(frame, tuple(_columns(by, gpu)), (("total", True),))


def _columns(by: list[str], gpu: bool) -> list[Shown]:
    shown = [Shown("name", "Name"), *(Shown(key, _PROPERTIES[key]) for key in by[1:])]
    if gpu and len(by) > 1:
        shown += [Shown("tensor", "Kernel Uses Tensor Cores"), Shown("eligible", "Op is Tensor Cores eligible")]
    elif gpu:
        shown.append(Shown("tensor", "Tensor Cores Used"))
    shown += [
        Shown("calls", "Calls", "Number of kernels.", summed=True),
        Shown("total", "Total Duration (us)", "Sum of the durations.", summed=True),
        Shown("mean", "Mean Duration (us)"),
        Shown("max", "Max Duration (us)"),
        Shown("min", "Min Duration (us)"),
    ]
    if gpu:
        shown += [
            Shown("blocks_per_sm", "Mean Blocks Per SM", "Mean weighted by duration."),
            Shown("occupancy", "Mean Est. Achieved Occupancy (%)", "Mean weighted by duration."),
        ]
    return shown


def _every(capture: LoadedCapture, rows: pl.DataFrame) -> Listing:
    frame = rows.select(
        "name", "step", "device", "stream", "kind", *_PROPERTIES, "blocks_per_sm", "occupancy", duration="duration_us",
        start_ms=(pl.col("start_ns") - capture.base_ns) / 1e6, slice=_slices(capture, rows),
    )  # fmt: skip
    gpu = {**_PROPERTIES, "blocks_per_sm": "Blocks Per SM", "occupancy": "Est. Achieved Occupancy (%)"}
    titles = {
        "name": "Name", "step": "Step Id", "device": "Device", "stream": "Stream", "kind": "Kind",
        **(gpu if capture.kind != "cpu" else {"operator": "Operator"}), "start_ms": "Start Time (ms since capture start)",
        "duration": "Duration (us)", "slice": "Slice",
    }  # fmt: skip
    columns = tuple(Shown(key, title, shown=key != "slice", summed=key == "duration") for key, title in titles.items())
    return Listing(frame, columns, (("start_ms", False),))


def _slices(capture: LoadedCapture, rows: pl.DataFrame) -> pl.Series:
    place = capture.trace.places.get("kernels")
    numbers = place[rows["row"].to_numpy()].astype(np.int64) if place is not None else np.zeros(rows.height, dtype=np.int64)
    return pl.Series("slice", numbers)


def pies(capture: LoadedCapture, query: Query, top: int) -> dict[str, Any]:
    rows = _chosen(capture, query)
    by_name = time_by(rows, "name")
    shares = [{"key": "total_time", "title": "Total Time (us)", **pie(by_name, "value", top)}]
    if capture.kind != "cpu":
        label = pl.when("tensor").then(pl.lit("Using Tensor Cores")).otherwise(pl.lit("Not Using Tensor Cores"))
        by_core = time_by(rows.with_columns(label.alias("label")), "label")
        shares.append({"key": "core", "title": "Tensor Cores Utilization", **pie(by_core, "value", 0)})
    return {"pies": shares, "cores": []}


def calls(capture: LoadedCapture, name: str) -> pl.DataFrame:
    """Every kernel of one name."""
    rows = _rows(capture).filter(pl.col("name") == name)
    return rows.select(
        start_ns=pl.col("start_ns") - capture.base_ns, duration_us="duration_us", wait_us=pl.lit(None, pl.Float64), step="step",
        slice=_slices(capture, rows), op=pl.col("operator").cast(pl.String),
    ).sort("start_ns")  # fmt: skip
