# SPDX-License-Identifier: Apache-2.0
"""The Diff view: why two captures differ, and their operators side by side (docs/reference/viewer.md 4.9)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from itertools import accumulate
from typing import Any

import polars as pl

from stepscope.analysis.name_tree import METRICS, NameTree, of_ops
from stepscope.diff import Diff, Row, words
from stepscope.diff.differences import differences
from stepscope.diff.engine import Recording, Side, compare_sides, record
from stepscope.diff.gate import Budget, gate
from stepscope.diff.noise import FLOOR, WITHIN_NOISE
from stepscope.diff.operators import operators
from stepscope.diff.phases import phases as phases_below
from stepscope.diff.text import MARKS, markdown, named_first, shown, status_of
from stepscope.verdict.engine import conclude
from stepscope.web.loaded import LoadedCapture
from stepscope.web.paging import Listing, Shown, page
from stepscope.web.parameters import Query
from stepscope.web.problems import Problem, bad_parameter
from stepscope.web.views.verdict import answer_of, family_of

OPERATORS = "operator"  # calls and durations by name, whatever ran beside them; not a level of `stepscope diff`
TITLES = {
    "host_total": "Host Duration",
    "host_self": "Self Host Duration",
    "device_total": "Device Duration",
    "device_self": "Self Device Duration",
}
NAMES = {"module": "Module", "op": "Operator", "kernel": "Kernel"}
MOST_BARS = 12  # rows of the waterfall; the smaller ones are one bar
MOST_DOTS = 400
MOST_IMPLEMENTATIONS = 3


def diff(a: LoadedCapture, b: LoadedCapture, query: Query, budget: Budget | None = None) -> dict[str, Any]:
    """The whole answer; `a` is the baseline."""
    level = query.choice("level", ("kernel", "op", "module", "part", OPERATORS))
    path = query.json("path", list, [])
    if not all(isinstance(part, str) for part in path) or len(path) > 100:
        raise bad_parameter("path", "a list of at most 100 names")
    metric = query.choice("metric", METRICS)
    by_name = level == OPERATORS
    found = _found(a, b, "part" if by_name else level, budget)
    return {
        "answer": _texts(lambda lang: words.answer(found, lang)),
        "notes": {lang: words.notes(found, lang) for lang in words.LANGUAGES},
        "status": found.status,
        "comparable": found.comparable,
        "base_ms": float(found.base_ns) / 1e6,
        "new_ms": float(found.new_ns) / 1e6,
        "delta_ms": float(found.delta_ns) / 1e6,
        "waterfall": waterfall(found),
        "checks": checks(found),
        "samples": samples(found),
        "implementations": implementations(found),
        "gate": None if found.gate is None else found.gate.as_dict(),
        "path": path,
        "phases": phases(a, b, path, metric) if by_name else parts(found),
        "metric": metric,
        "metrics": list(METRICS) if by_name else [],
        "table": page(table(a, b, metric) if by_name else rows(found), query),
    }


def as_markdown(a: LoadedCapture, b: LoadedCapture, query: Query, budget: Budget | None = None) -> str:
    """The same as text for a review or a ticket."""
    level = query.choice("level", ("kernel", "op", "module", "part", OPERATORS))
    lang = query.choice("lang", words.LANGUAGES)
    return "\n".join(markdown(_found(a, b, "part" if level == OPERATORS else level, budget), lang)) + "\n"


def _found(a: LoadedCapture, b: LoadedCapture, by: str, budget: Budget | None) -> Diff:
    found = compare_sides(Side([_recording(a)]), Side([_recording(b)]), by=by)
    if budget is None:
        return found
    findings = conclude([answer_of(b)]).findings if budget.rules else ()
    return found.with_gate(gate(found, budget, findings))


def _texts(text: Callable[[str], str]) -> dict[str, str]:
    return {lang: text(lang) for lang in words.LANGUAGES}


def waterfall(found: Diff) -> dict[str, Any]:
    """Rows from the step of the base to that of the new side, in units of the last digit shown: they sum as shown."""
    rows = named_first(found.rows, MOST_BARS)
    by_language = {lang: shown(found, rows, lang, MOST_BARS) for lang in words.LANGUAGES}
    table = by_language["en"]
    floor = FLOOR * float(found.base_ns)
    bars = []
    for place, line in enumerate(table.lines):
        row = rows[place] if place < MOST_BARS else None
        labels = {lang: by_language[lang].lines[place].name for lang in words.LANGUAGES}
        bars.append(
            {
                "name": {lang: _bar_name(found, row, lang) or label for lang, label in labels.items()},
                "label": labels,
                "family": family_of(row.part) if row else "unknown",
                **dict(zip(("base", "new", "delta", "calls", "price"), line.figures, strict=True)),
                "status": row.status if row else "",
                "real": row is not None and row.real,
                "below": row is not None and row.status == WITHIN_NOISE and _below(row, floor),
                "text": {lang: status_of(found, row, lang) if row else "" for lang in words.LANGUAGES},
                "band_ms": _band(row.noise.low_ns, row.noise.high_ns) if row else None,
            }
        )
    whole = dict(zip(("base", "new", "delta", "calls", "price"), table.whole, strict=True))
    band = _band(found.noise.low_ns, found.noise.high_ns)
    return {"digits": table.digits, "rows": bars, "whole": whole, "more": max(0, len(found.rows) - MOST_BARS), "band_ms": band}


def _bar_name(found: Diff, row: Row | None, lang: str) -> str:
    if row is None:
        return ""
    name = row.kernel if found.by == "kernel" and row.match not in ("implementation", "replaced") else ""
    return str(words.plain(name or words.row_name(row, lang)))


def _below(row: Row, floor: float) -> bool:
    """Surely different, but by less than anybody cares about."""
    low, high = row.noise.low_ns, row.noise.high_ns
    return low is not None and high is not None and (low > 0 or high < 0) and abs(float(row.delta_ns)) < floor


def _band(low: float | None, high: float | None) -> list[float] | None:
    return None if low is None or high is None else [low / 1e6, high / 1e6]


def checks(found: Diff) -> list[dict[str, Any]]:
    """What was compared before any time: the same, different, or not recorded."""
    about = []
    for one in found.checks:
        mark = "cannot tell" if one.same is None else "pass" if one.same else "fail" if one.blocks else "cannot tell"
        name = {lang: words.texts(lang)["check"][one.name] for lang in words.LANGUAGES}
        sides = {
            lang: [words.plain(side) or words.line("unknown", lang) for side in (one.base, one.new)] for lang in words.LANGUAGES
        }
        about.append({"name": name, "same": one.same, "about": one.about, "mark": MARKS[mark], "status": mark, "sides": sides})
    return about


def samples(found: Diff) -> dict[str, Any]:
    """Mean ms of each step or run that the noise was estimated from."""
    sides = () if found.sides is None else found.sides
    by_run = found.samples == "runs"
    dots = [side.part_samples(side.keys["part"].unique().to_list(), by_run=by_run)[:MOST_DOTS] / 1e6 for side in sides]
    return {"of": found.samples, **{name: one.tolist() for name, one in zip(("base", "new"), dots, strict=False)}}


def implementations(found: Diff) -> list[dict[str, Any]]:
    """Operators that other kernels do on the other side, the largest change first."""
    other = sorted((row for row in found.rows if row.match == "implementation"), key=lambda row: -abs(row.delta_ns))
    return [
        {"op": row.op, "base": words.plain(row.base_kernel), "new": words.plain(row.kernel), "delta_ms": float(row.delta_ns) / 1e6}
        for row in other[:MOST_IMPLEMENTATIONS]
    ]


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
