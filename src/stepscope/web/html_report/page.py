# SPDX-License-Identifier: Apache-2.0
"""Puts the parts of the report together: one run after the other, each with its workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from stepscope import __version__
from stepscope.errors import CaptureError
from stepscope.web.catalogue import Catalogue, Entry
from stepscope.web.html_report import sections
from stepscope.web.html_report.markup import EMPTY, Markup, joined, tag
from stepscope.web.loaded import LoadedCapture
from stepscope.web.problems import Problem
from stepscope.web.views.overview import simulated as simulated_text

MOST_WORKERS = 8  # shown in detail; the pictures of all workers hold every one
# Should a text ever pass for markup, it still can load and run nothing.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
STYLE = (Path(__file__).with_name("style.css")).read_text(encoding="utf-8")


@dataclass(frozen=True)
class Run:
    """The captures of one run: those that could be read, and why the others could not."""

    name: str
    ready: dict[str, LoadedCapture]
    missing: list[tuple[str, str]]


def runs(paths: Sequence[Path]) -> list[Run]:
    """Reads every capture below some folders, as the page would.

    Raises:
        CaptureError: there is none, or none can be read.
    """
    catalogue = Catalogue(paths)
    try:
        catalogue.scan()
        read_runs = [of_entries(catalogue, name) for name in dict.fromkeys(entry.location.run for entry in catalogue.entries())]
        empty = catalogue.listing()["empty"]
    finally:
        catalogue.close()
    if empty:
        raise CaptureError(empty["title"], cause=empty["detail"], fix=f"{empty['hint']}: {'; '.join(empty['layouts'])}")
    if not any(run.ready for run in read_runs):
        worker, why = read_runs[0].missing[0]
        raise CaptureError(
            "no capture can be read", where=f"{read_runs[0].name}: {worker}", cause=why, fix="stepscope info says more"
        )
    return read_runs


def of_entries(catalogue: Catalogue, name: str) -> Run:
    """All captures of one run; waits until they are read."""
    run = Run(name, {}, [])
    entries: list[Entry] = [entry for entry in catalogue.entries() if entry.location.run == name]
    for entry in entries:
        catalogue.load(entry)
    for entry in entries:
        several = sum(other.location.worker == entry.location.worker for other in entries) > 1
        worker = f"{entry.location.worker} · {entry.location.span}" if several else entry.location.worker
        try:
            run.ready[worker] = catalogue.capture(entry, None)
        except Problem as problem:
            run.missing.append((worker, ". ".join(part for part in (problem.title, problem.detail, problem.hint) if part)))
    return run


def html(runs: Sequence[Run], *, most_workers: int = MOST_WORKERS, now: datetime | None = None) -> str:
    """The whole file."""
    title = ", ".join(run.name for run in runs)
    body = [_run_section(run, f"r{place}", most_workers) for place, run in enumerate(runs)]
    when = (now or datetime.now(timezone.utc)).strftime("%Y-%m-%d %H:%M UTC")
    contents = [
        tag(
            "li",
            tag("a", run.name, href=f"#r{place}"),
            tag(
                "ul",
                *(
                    tag("li", tag("a", worker, href=f"#r{place}w{number}"))
                    for number, worker in enumerate([*run.ready][:most_workers])
                ),
            ),
        )
        for place, run in enumerate(runs)
    ]
    head = joined(
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", **{"http-equiv": "Content-Security-Policy"}, content=POLICY),
        tag("title", f"{title} · stepscope"),
        tag("style", Markup(STYLE)),
    )
    page = joined(
        tag("header", tag("h1", title), tag("p", f"stepscope {__version__} · {when}")),
        tag("nav", tag("ul", *contents), aria_label="Contents"),
        tag("main", *body),
    )
    return f"<!doctype html>\n{tag('html', tag('head', head), tag('body', page), lang='en')}\n"


def _run_section(run: Run, anchor: str, most: int) -> Markup:
    shown = list(run.ready.items())[:most]
    left = len(run.ready) - len(shown)
    simulated = next((simulated_text(capture) for capture in run.ready.values() if capture.simulated), "")
    several = len(run.ready) > 1
    return tag(
        "article",
        tag("h2", run.name, tag("span", simulated, class_="simulated") if simulated else EMPTY),
        *(tag("p", tag("b", worker), f": {why}", class_="note") for worker, why in run.missing),
        tag("section", tag("h3", "All workers"), sections.workers(run.ready, []), id=f"{anchor}-all") if several else EMPTY,
        *(
            tag(
                "details",
                tag("summary", tag("h2", f"Worker {worker}")),
                sections.capture_sections(capture, f"{anchor}w{number}", len(run.ready)),
                id=f"{anchor}w{number}",
                open="",
            )
            for number, (worker, capture) in enumerate(shown)
        ),
        tag("p", f"{left} more workers are in the pictures above only: --workers {len(run.ready)}", class_="note")
        if left
        else EMPTY,
        id=anchor,
    )
