# SPDX-License-Identifier: Apache-2.0
"""The Diff view: why two captures differ, and their operators side by side (docs/reference/viewer.md 4.9)."""

from __future__ import annotations

from dataclasses import asdict
from itertools import accumulate
from typing import Any

import polars as pl

from stepscope.analysis.name_tree import METRICS, NameTree, of_ops
from stepscope.diff import Diff, Row, words
from stepscope.diff.differences import differences
from stepscope.diff.engine import Recording, Side, compare_sides, record
from stepscope.diff.operators import operators
from stepscope.diff.phases import phases as phases_below
from stepscope.web.loaded import LoadedCapture
from stepscope.web.paging import Listing, Shown, page
from stepscope.web.parameters import Query
from stepscope.web.problems import Problem, bad_parameter

OPERATORS = "operator"  # calls and durations by name, whatever ran beside them; not a level of `stepscope diff`
TITLES = {
    "host_total": "Host Duration",
    "host_self": "Self Host Duration",
    "device_total": "Device Duration",
    "device_self": "Self Device Duration",
}
NAMES = {"module": "Module", "op": "Operator", "kernel": "Kernel"}


def diff(a: LoadedCapture, b: LoadedCapture, query: Query) -> dict[str, Any]:
    """The whole answer; `a` is the baseline."""
    level = query.choice("level", ("kernel", "op", "module", "part", OPERATORS))
    path = query.json("path", list, [])
    if not all(isinstance(part, str) for part in path) or len(path) > 100:
        raise bad_parameter("path", "a list of at most 100 names")
    metric = query.choice("metric", METRICS)
    found = compare_sides(Side([_recording(a)]), Side([_recording(b)]), by="part" if level == OPERATORS else level)
    by_name = level == OPERATORS
    return {
        "answer": {lang: words.answer(found, lang) for lang in words.LANGUAGES},
        "notes": {lang: words.notes(found, lang) for lang in words.LANGUAGES},
        "status": found.status,
        "comparable": found.comparable,
        "base_ms": float(found.base_ns) / 1e6,
        "new_ms": float(found.new_ns) / 1e6,
        "delta_ms": float(found.delta_ns) / 1e6,
        "path": path,
        "phases": phases(a, b, path, metric) if by_name else parts(found),
        "metric": metric,
        "metrics": list(METRICS) if by_name else [],
        "table": page(table(a, b, metric) if by_name else rows(found), query),
    }


def _recording(capture: LoadedCapture) -> Recording:
    return capture.once("diff", lambda: record(capture.tables))


def parts(found: Diff) -> list[dict[str, Any]]:
    """The parts of the step on both sides with their accumulated sums, in the order of the base's time; us."""
    ordered = sorted(found.parts, key=lambda row: (-row.base_ns, row.part))
    base, new = ([float(getattr(row, name)) / 1000 for row in ordered] for name in ("base_ns", "new_ns"))
    delta = [float(row.delta_ns) / 1000 for row in ordered]
    columns = zip(ordered, base, new, delta, accumulate(base), accumulate(new), accumulate(delta), strict=True)
    return [
        {
            "name": words.part_name(row.part, "en"),
            "baseline": one,
            "experiment": other,
            "diff": change,
            "baseline_sum": one_sum,
            "experiment_sum": other_sum,
            "diff_sum": change_sum,
            "children": False,
        }
        for row, one, other, change, one_sum, other_sum, change_sum in columns
    ]


def rows(found: Diff) -> Listing:
    """Rows of the diff in its order: what changed first. They sum to the change of the mean step."""
    frame = pl.DataFrame([_shown(place, row) for place, row in enumerate(found.rows)], schema=_ROW, orient="row")
    named = [Shown(found.by, NAMES[found.by])] if found.by in NAMES else []
    if found.by == "kernel":
        named.insert(0, Shown("op", NAMES["op"]))
    columns = (
        Shown("order", "Order", "Changes first, largest first; then what is surest to differ.", shown=False),
        Shown("part", "Part", "Where the time of a step goes: each nanosecond belongs to one part."),
        *named,
        Shown("base_ms", "Baseline (ms)", "Per mean step.", summed=True),
        Shown("new_ms", "Exp (ms)", "Per mean step.", summed=True),
        Shown("delta_ms", "Delta (ms)", "All rows sum to the change of the mean step.", summed=True),
        Shown("calls_ms", "By Calls (ms)", "Because there are more or fewer calls, at the old price.", summed=True),
        Shown("price_ms", "By Price (ms)", "Because a call costs more or less.", summed=True),
        Shown("base_calls", "Baseline Calls", "Per step.", summed=True),
        Shown("new_calls", "Exp Calls", "Per step.", summed=True),
        Shown("status", "Status", "Whether the change is more than steps vary by themselves."),
        Shown("match", "Match", "How the row was found on both sides; base or new: one side lacks it."),
        Shown("low_ms", "Band Low (ms)", "95 % band of the change.", shown=False),
        Shown("high_ms", "Band High (ms)", "95 % band of the change.", shown=False),
    )
    return Listing(frame, columns, (("order", False),))


_ROW: dict[str, Any] = {
    "order": pl.Int64, "part": pl.String, "module": pl.String, "op": pl.String, "kernel": pl.String, "base_ms": pl.Float64,
    "new_ms": pl.Float64, "delta_ms": pl.Float64, "calls_ms": pl.Float64, "price_ms": pl.Float64, "base_calls": pl.Float64,
    "new_calls": pl.Float64, "status": pl.String, "match": pl.String, "low_ms": pl.Float64, "high_ms": pl.Float64,
}  # fmt: skip


def _shown(place: int, row: Row) -> tuple[Any, ...]:
    op = row.op if row.op == row.base_op else f"{row.base_op} → {row.op}"
    kernel = row.kernel if row.kernel == row.base_kernel else f"{row.base_kernel} → {row.kernel}"
    times = (float(value) / 1e6 for value in (row.base_ns, row.new_ns, row.delta_ns, row.calls_ns, row.price_ns))
    band = (None if value is None else value / 1e6 for value in (row.noise.low_ns, row.noise.high_ns))
    calls = float(row.base_calls), float(row.new_calls)
    return place, words.part_name(row.part, "en"), row.module, op, kernel, *times, *calls, row.status, row.match, *band


def _tree(capture: LoadedCapture) -> NameTree:
    return capture.once("op tree", lambda: of_ops(capture.tables))


def phases(a: LoadedCapture, b: LoadedCapture, path: list[str], metric: str) -> list[dict[str, Any]]:
    """Calls directly below a path in both captures, in the order in which they first appear."""
    found = phases_below([_tree(a), _tree(b)], path, metric, [a.base_ns, b.base_ns])
    if found is None:
        raise Problem(404, "missing_data", "nothing at this path", detail=" / ".join(path), hint="go back")
    return [asdict(phase) for phase in found]


def table(a: LoadedCapture, b: LoadedCapture, metric: str) -> Listing:
    """Calls and times of the operators of both captures by name, the largest difference first."""
    title = TITLES[metric]
    columns = (
        Shown("name", NAMES["op"]),
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
    return Listing(differences(*(operators(capture.tables, metric) for capture in (a, b))), columns, (("value_delta", True),))
