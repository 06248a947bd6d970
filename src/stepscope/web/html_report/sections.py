# SPDX-License-Identifier: Apache-2.0
"""What the report says about one capture and about all workers of a run: the views' own numbers, most important first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stepscope.analysis import quality
from stepscope.web.html_report import drawing
from stepscope.web.html_report.markup import EMPTY, Markup, joined, number, table, tag, time_text
from stepscope.web.loaded import LoadedCapture
from stepscope.web.paging import Listing, page
from stepscope.web.parameters import Query
from stepscope.web.problems import Problem
from stepscope.web.view_list import views_of
from stepscope.web.views import distributed, findings, kernels, memory, modules, operators, overview

MOST_ROWS = 25
Section = Callable[[LoadedCapture], Markup]


def capture_sections(capture: LoadedCapture, anchor: str, workers: int) -> Markup:
    """Everything about one worker; a part that cannot be had says why and leaves the others."""
    views = views_of(capture)
    kernel = next((view for view in views if view.endswith(" Kernel")), "")
    parts: list[tuple[str, str, Section]] = [
        ("Overview", "Where the time goes", lambda one: _overview(one, workers)),
        ("Findings", "Findings", _findings),
        ("Trace", "Timeline", _timeline),
        ("Operator", "Operator", _operators),
        (kernel, kernel, _kernels),
        ("Memory", "Memory", _memory),
        ("Module", "Module", _modules),
        ("Files", "Data quality", _quality),
    ]
    return joined(*(_part(title, section, capture, f"{anchor}-{view}") for view, title, section in parts if view and view in views))


def _part(title: str, section: Section, capture: LoadedCapture, anchor: str) -> Markup:
    try:
        inside = section(capture)
    except Problem as problem:
        inside = tag("p", ". ".join(part for part in (problem.title, problem.detail, problem.hint) if part), class_="note")
    return tag("section", tag("h3", title), inside, id=anchor.replace(" ", "-")) if inside else EMPTY


def _overview(capture: LoadedCapture, workers: int) -> Markup:
    data = overview.overview(capture, workers)
    steps, rows = data["steps"], data["execution"]["rows"]
    bars = [(str(row["step"]), row["values"]) for row in steps["rows"]]
    slow = [str(row["step"]) for row in steps["rows"] if row["slow"]]
    notes = [f"slow steps: {', '.join(slow)}"] if slow else []
    notes += [f"the first {drawing.MOST_BARS} of {len(bars)} steps are drawn"] if len(bars) > drawing.MOST_BARS else []
    step = data["step"]
    called = " mean step" if step["marked"] else " from the first to the last task"
    return joined(
        tag("p", tag("b", data["headline"]["en"]), class_="note") if data["headline"]["en"] else EMPTY,
        tag("p", tag("b", time_text(step["us"])), called, class_="headline") if step["us"] else EMPTY,
        *(tag("p", note, class_="note") for note in data["notes"]),
        table(data["execution"]["columns"], rows, bars=1) if rows else EMPTY,
        tag("h4", "Step Time Breakdown"),
        drawing.stacked_bars(steps["categories"], bars, "Time of each step by what it went to"),
        *(tag("p", note, class_="note") for note in notes),
        *(
            table([title, "Value"], [[fact["name"], _fact(fact)] for fact in data[key]])
            for title, key in (
                ("Configuration", "configuration"),
                ("Device Summary", "device_summary"),
                ("GPU Summary", "gpu_summary"),
            )
            if data[key]
        ),
    )


def _fact(fact: Mapping[str, Any]) -> str:
    value = fact["value"]
    text = ", ".join(map(str, value)) if isinstance(value, list) else number(value, 2)
    return f"{text} {fact.get('unit') or ''}".strip()


def _findings(capture: LoadedCapture) -> Markup:
    result = findings.findings(capture)
    rows = [
        [hit["severity"], joined(tag("b", hit["title"]), tag("br"), hit["detail"]), hit["action"], hit["gain_us"]]
        for hit in result["findings"]
    ]
    silent = "; ".join(f"{one['rule']}: {one['because']}" for one in result["not_applicable"])
    if not rows:
        return tag("p", f"No findings. Not applicable: {silent or 'none'}", class_="note")
    note = f"Not applicable: {silent}" if silent else ""
    return table(["Severity", "Finding", "What to do", "Estimated gain (us)"], rows, bars=3, note=note)


def _listing(listing: Listing, bars: str, leave: tuple[str, ...] = ()) -> Markup:
    """The first rows of a table of the page, with the sums of all."""
    data = page(listing, Query(limit=MOST_ROWS))
    places = [place for place, column in enumerate(data["columns"]) if column["shown"] and column["key"] not in leave]
    rows = [[row[place] for place in places] for row in data["rows"]]
    keys = [data["columns"][place]["key"] for place in places]
    note = [f"the first {len(rows)} of {data['total']:,} rows"] if data["total"] > len(rows) else []
    sums = [
        f"{data['columns'][place]['name']} {number(data['totals'][key])}"
        for place, key in zip(places, keys, strict=True)
        if key in data["totals"]
    ]
    note += [f"total: {', '.join(sums)}"] if sums else []
    titles = [data["columns"][place]["name"] for place in places]
    return table(titles, rows, bars=keys.index(bars) if bars in keys else None, note="; ".join([*note, *data["notes"]]))


def _timeline(capture: LoadedCapture) -> Markup:
    drawn = drawing.timeline(capture.trace)
    return (
        joined(drawn, tag("p", "The three fullest rows of each track; stepscope view shows every slice.", class_="note"))
        if drawn
        else EMPTY
    )


def _operators(capture: LoadedCapture) -> Markup:
    listing = operators.operators(capture, Query())
    device = any(column.key == "device_self" for column in listing.columns)
    return _listing(listing, "device_self" if device else "host_self", ("call_stack",))


def _kernels(capture: LoadedCapture) -> Markup:
    return _listing(kernels.kernels(capture, Query()), "total")


def _memory(capture: LoadedCapture) -> Markup:
    data = memory.curve(capture, Query(px=drawing.WIDTH))
    series = [one for one in data["series"] if one["name"] in ("Allocated (MB)", "Reserved (MB)")] or data["series"]
    return joined(*(tag("p", title) for title in data["titles"]), drawing.curves(series, "Memory over time"))


def _modules(capture: LoadedCapture) -> Markup:
    data = modules.modules(capture, Query())
    rows = [
        [joined(Markup("&emsp;" * row["depth"]), row["cells"][0]), *row["cells"][1:]]
        for row in data["rows"]
        if row["depth"] < 4
    ][: 4 * MOST_ROWS]  # fmt: skip
    left = len(data["rows"]) - len(rows)
    titles = [f"{title} (us)" if title.endswith("Time") else title for title in data["columns"]]
    return table(titles, rows, bars=3, note=f"{left} deeper or later modules are left out" if left else "")


def _quality(capture: LoadedCapture) -> Markup:
    summary = tag("p", quality.summary(capture.tables.quality), class_="note")
    rows = [
        [one.issue.severity, one.sentence(), one.where(), one.issue.advice] for one in quality.occurrences(capture.tables.quality)
    ]
    return joined(summary, table(["Severity", "Issue", "Where", "What to do"], rows) if rows else EMPTY)


def workers(ready: dict[str, LoadedCapture], missing: list[dict[str, Any]]) -> Markup:
    """All workers of a run beside each other."""
    data = distributed.overview(ready, missing, Query())
    parts = []
    for block in (data["computation"], data["synchronizing"]):
        bars = [(worker, row) for worker, row in zip(data["workers"], block["rows"] if block else [], strict=bool(block)) if row]
        if bars:
            # Bubbles and preparing are not part of the bar's length.
            places = [place for place, name in enumerate(block["series"]) if name not in ("Bubble", "Preparing")]
            drawn = [(worker, [row[place] for place in places]) for worker, row in bars]
            parts += [
                tag("h4", block["title"]),
                drawing.stacked_bars([block["series"][place] for place in places], drawn, block["title"]),
                table(["Worker", *block["series"]], [[worker, *row] for worker, row in bars]),
            ]
    slow = distributed.slow(ready)["rows"] if len(ready) > 1 else []
    if slow:
        rows = [
            [
                row["worker"],
                row["step_us"],
                row["behind_us"],
                row["cause"] or "",
                ", ".join(one["name"] for one in row["operators"]),
            ]
            for row in slow
        ]
        parts += [
            tag("h4", "Slow ranks"),
            table(["Worker", "Step (us)", "behind the fastest (us)", "Cause", "Operators"], rows, bars=2),
        ]
    return joined(*parts)
