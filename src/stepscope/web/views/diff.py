# SPDX-License-Identifier: Apache-2.0
"""The Diff view: two captures side by side, phase by phase and operator by operator (viewer.md 4.9)."""

from __future__ import annotations

from typing import Any

import polars as pl

from stepscope.analysis.name_tree import METRICS, NameTree, of_ops
from stepscope.analysis.views import module_view
from stepscope.web.loaded import LoadedCapture
from stepscope.web.paging import Listing, Shown, page
from stepscope.web.parameters import Query
from stepscope.web.problems import Problem, bad_parameter
from stepscope.web.views import kernels as kernel_view
from stepscope.web.views import operators as operator_view
from stepscope.web.views.steps import npu_steps, other_steps

TITLES = {
    "host_total": "Host Duration",
    "host_self": "Self Host Duration",
    "device_total": "Device Duration",
    "device_self": "Self Device Duration",
    "duration": "Duration",
}
LEVELS = ("operator", "kernel", "communication", "module", "step")
MOST_PHASES = 200


def diff(a: LoadedCapture, b: LoadedCapture, query: Query) -> dict[str, Any]:
    """The whole answer; `a` is the baseline."""
    level = query.choice("level", LEVELS)
    path = query.json("path", list, [])
    if not all(isinstance(part, str) for part in path) or len(path) > 100:
        raise bad_parameter("path", "a list of at most 100 names")
    metrics = list(METRICS) if level in ("operator", "module") else ["duration"]
    metric = query.choice("metric", metrics)
    listing = table(a, b, level, metric)
    return {
        "path": path,
        "phases": phases(a, b, path, metric) if level == "operator" else [],
        "metric": metric,
        "metrics": metrics,
        "table": page(listing, query),
    }


def _tree(opened: LoadedCapture) -> NameTree:
    return opened.once("op tree", lambda: of_ops(opened.tables))


def phases(a: LoadedCapture, b: LoadedCapture, path: list[str], metric: str) -> list[dict[str, Any]]:
    """Calls directly below a path in both captures, in the order in which they first appear."""
    sides = []
    for opened in (a, b):
        found = _tree(opened)
        node = found.at(path)
        children = found.children(node) if node is not None else []
        inner = set(found.parent)
        base = opened.base_ns
        sides.append(
            {
                found.name[child]: (found.values[metric][child], child in inner, found.values["first_ns"][child] - base)
                for child in children
            }
        )
    if path and not (sides[0] or sides[1]) and all(_tree(opened).at(path) is None for opened in (a, b)):
        raise Problem(404, "missing_data", "nothing at this path", detail=" / ".join(path), hint="go back")
    names = sorted({*sides[0], *sides[1]}, key=lambda name: min(side[name][2] for side in sides if name in side))
    rows: list[dict[str, Any]] = []
    sums = [0.0, 0.0]
    for name in names[:MOST_PHASES]:
        values = [float(side[name][0]) if name in side else 0.0 for side in sides]
        sums = [total + value for total, value in zip(sums, values, strict=True)]
        rows.append(
            {
                "name": name,
                "baseline": values[0],
                "experiment": values[1],
                "diff": values[1] - values[0],
                "baseline_sum": sums[0],
                "experiment_sum": sums[1],
                "diff_sum": sums[1] - sums[0],
                "children": any(side[name][1] for side in sides if name in side),
            }
        )
    return rows


def table(a: LoadedCapture, b: LoadedCapture, level: str, metric: str) -> Listing:
    """Calls and times of both captures by name, the largest difference first."""
    sides = [
        _rows(opened, level, metric).rename({"calls": f"calls_{side}", "value": f"value_{side}"})
        for opened, side in ((a, "a"), (b, "b"))
    ]
    joined = sides[0].join(sides[1], on="name", how="full", coalesce=True)
    only = (
        pl.when(pl.col("calls_b").is_null()).then(pl.lit("baseline")).when(pl.col("calls_a").is_null()).then(pl.lit("experiment"))
    )
    known = joined.with_columns(only.alias("only")).with_columns(
        pl.col("calls_a", "calls_b").fill_null(0), pl.col("value_a", "value_b").fill_null(0.0)
    )
    frame = known.with_columns(
        calls_delta=pl.col("calls_b") - pl.col("calls_a"), value_delta=pl.col("value_b") - pl.col("value_a")
    ).with_columns(calls_percent=_percent("calls"), value_percent=_percent("value"))
    frame = frame.sort(pl.col("value_delta").abs(), pl.col("name"), descending=[True, False])
    title = TITLES[metric]
    columns = (
        Shown(
            "name",
            {"operator": "Operator", "kernel": "Kernel", "communication": "Operator", "module": "Module", "step": "Step"}[level],
        ),
        Shown("calls_a", "Baseline Calls", summed=True),
        Shown("calls_b", "Exp Calls", summed=True),
        Shown("calls_delta", "Delta Calls", summed=True),
        Shown("calls_percent", "Delta Calls%", unit="%"),
        Shown("value_a", f"Baseline {title} (us)", summed=True),
        Shown("value_b", f"Exp {title} (us)", summed=True),
        Shown("value_delta", f"Delta {title} (us)", summed=True),
        Shown("value_percent", f"Delta {title}%", unit="%"),
        Shown("only", "Only in", "The other capture has no such row."),
    )
    return Listing(frame, columns, (("value_delta", True),))


def _percent(key: str) -> pl.Expr:
    """Change relative to the baseline; null where that is 0."""
    return pl.when(pl.col(f"{key}_a") != 0).then(100.0 * pl.col(f"{key}_delta") / pl.col(f"{key}_a"))


def _rows(opened: LoadedCapture, level: str, metric: str) -> pl.DataFrame:
    """name, calls, value (us)."""
    tables = opened.tables
    name = pl.col("name").cast(pl.String)
    if level == "operator":
        return operator_view.summary(operator_view.calls(opened), ["name"]).select(name, "calls", value=metric)
    if level == "kernel":
        listing = kernel_view.kernels(opened, Query(group="statistic" if opened.is_npu else "name"))
        return listing.frame.select(name, "calls", value="total")
    if level == "communication":
        length = pl.col("duration_ns").fill_null(pl.col("end_ns") - pl.col("start_ns")).sum() / 1000.0
        return tables.collectives.group_by(pl.col("op_type").cast(pl.String).fill_null("?").alias("name")).agg(
            pl.len().cast(pl.Int64).alias("calls"), value=length
        )
    if level == "module":
        return module_view(tables).select(name="path", calls="calls", value=pl.col(f"{metric}_ns") / 1000.0)
    if opened.is_npu:
        steps = npu_steps(opened).with_columns(value=pl.col("Computing") + pl.col("Communication(Not Overlapped)") + pl.col("Free"))
    else:
        steps = other_steps(opened).with_columns(value=pl.col("total"))
    # Steps of two captures have different numbers; the first is compared with the first.
    return steps.select(
        pl.format("step {}", pl.int_range(1, pl.len() + 1)).alias("name"), pl.lit(1, pl.Int64).alias("calls"), "value"
    )
