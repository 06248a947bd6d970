# SPDX-License-Identifier: Apache-2.0
"""The Diff view: two captures side by side, phase by phase and operator by operator (docs/reference/viewer.md 4.9)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from stepscope.analysis.name_tree import NameTree, of_ops
from stepscope.diff import levels
from stepscope.diff.differences import differences
from stepscope.diff.phases import phases as phases_below
from stepscope.web.loaded import LoadedCapture
from stepscope.web.paging import Listing, Shown, page
from stepscope.web.parameters import Query
from stepscope.web.problems import Problem, bad_parameter

TITLES = {
    "host_total": "Host Duration",
    "host_self": "Self Host Duration",
    "device_total": "Device Duration",
    "device_self": "Self Device Duration",
    "duration": "Duration",
}
NAMES = {"operator": "Operator", "kernel": "Kernel", "communication": "Operator", "module": "Module", "step": "Step"}


def diff(a: LoadedCapture, b: LoadedCapture, query: Query) -> dict[str, Any]:
    """The whole answer; `a` is the baseline."""
    level = query.choice("level", levels.LEVELS)
    path = query.json("path", list, [])
    if not all(isinstance(part, str) for part in path) or len(path) > 100:
        raise bad_parameter("path", "a list of at most 100 names")
    metrics = list(levels.metrics(level))
    metric = query.choice("metric", metrics)
    return {
        "path": path,
        "phases": phases(a, b, path, metric) if level == "operator" else [],
        "metric": metric,
        "metrics": metrics,
        "table": page(table(a, b, level, metric), query),
    }


def _tree(capture: LoadedCapture) -> NameTree:
    return capture.once("op tree", lambda: of_ops(capture.tables))


def phases(a: LoadedCapture, b: LoadedCapture, path: list[str], metric: str) -> list[dict[str, Any]]:
    """Calls directly below a path in both captures, in the order in which they first appear."""
    rows = phases_below([_tree(a), _tree(b)], path, metric, [a.base_ns, b.base_ns])
    if rows is None:
        raise Problem(404, "missing_data", "nothing at this path", detail=" / ".join(path), hint="go back")
    return [asdict(phase) for phase in rows]


def table(a: LoadedCapture, b: LoadedCapture, level: str, metric: str) -> Listing:
    """Calls and times of both captures by name, the largest difference first."""
    sides = []
    for capture in (a, b):
        begin, length = capture.base_ns, capture.trace.length_ns
        sides.append(levels.times(capture.tables, level, metric, (begin, begin + length) if capture.trace.count else None))
    title = TITLES[metric]
    columns = (
        Shown("name", NAMES[level]),
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
    return Listing(differences(*sides), columns, (("value_delta", True),))
