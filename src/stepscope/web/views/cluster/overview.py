# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a run, and its ranks by steps as a heat map."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from stepscope.cluster.drawing import aligned
from stepscope.cluster.report import lines
from stepscope.cluster.words import cause_text, problem_text, who_text
from stepscope.verdict.settings import limits, severity_of
from stepscope.web.parameters import Query
from stepscope.web.run_analysis import RunAnalysis
from stepscope.web.views.cluster.links import links_of

VALUES = ("excess", "step", "wait", "exposed", "free", "computing")
_COLUMNS = {"wait": "wait_ns", "exposed": "exposed_ns", "free": "free_ns", "computing": "computing_ns"}
GROUPS = ("rank", "host", "stage")
LANGUAGES = ("en", "zh")


def overview(run: RunAnalysis) -> dict[str, Any]:
    """The analysis as `stepscope cluster --json` writes it, with sentences in each language and the worker of each rank."""
    analysis = run.analysis
    answer = analysis.as_dict()
    for shown, finding in zip(answer["findings"], analysis.findings, strict=True):
        shown["who"] = {lang: who_text(finding, lang) for lang in LANGUAGES}
        shown["why"] = {lang: cause_text(finding.cause, lang) for lang in LANGUAGES}
        shown["severity"] = severity_of(finding.share, limits()) or "low"
    for text, problem in zip(answer["problems"], analysis.problems, strict=True):
        text["text"] = {lang: problem_text(problem, lang) for lang in LANGUAGES}
    # What the page asks for next: a question without an answer would be an error in its log.
    has = {"links": links_of(run).height > 0, "clock": _on_a_clock(run)}
    return {**answer, "has": has, "lines": {lang: lines(analysis, lang) for lang in LANGUAGES}, "ranks": _ranks(run)}


def _on_a_clock(run: RunAnalysis) -> bool:
    steps = run.analysis.digests["cluster_steps"].select("rank", "start_ns", "end_ns")
    return aligned(steps, run.analysis.clocks).height > 0


def _ranks(run: RunAnalysis) -> list[dict[str, Any]]:
    rows = run.analysis.digests["cluster_ranks"].select("rank", "host", "device", "device_name", "path").to_dicts()
    stage = run.analysis.layout.stage
    nobody = (None, None)
    return [
        {**row, "stage": stage.get(row["rank"]), **dict(zip(("worker", "span"), run.workers.get(row["rank"], nobody), strict=True))}
        for row in rows
    ]


def heat(run: RunAnalysis, query: Query) -> dict[str, Any]:
    """A value of every rank in every step, in µs; null where a rank does not have the step."""
    value, group = query.choice("value", VALUES), query.choice("group", GROUPS)
    analysis = run.analysis
    ranks = _ranks(run)
    if group != "rank":
        ranks.sort(key=lambda row: (row[group] is None, row[group] or 0 if group == "stage" else row[group] or "", row["rank"]))
    steps = sorted(analysis.digests["cluster_steps"]["step"].drop_nulls().unique().to_list())
    order = [row["rank"] for row in ranks]
    cells = _cells(run, value, order, steps)
    known = cells[np.isfinite(cells)]
    bands: list[dict[str, Any]] = []
    for place, row in enumerate(ranks):
        name = row[group]
        if not bands or bands[-1]["name"] != name:
            bands.append({"name": name, "first": place, "count": 0})
        bands[-1]["count"] += 1
    rows = [[None if not np.isfinite(one) else round(float(one) / 1e3) for one in line] for line in cells]
    return {
        "value": value, "values": list(VALUES), "group": group, "unit": "us", "ranks": order, "steps": steps, "rows": rows,
        "bands": bands if group != "rank" else [],
        "least": round(float(known.min()) / 1e3) if known.size else None,
        "median": round(float(np.median(known)) / 1e3) if known.size else None,
        "most": round(float(known.max()) / 1e3) if known.size else None,
    }  # fmt: skip


def _cells(run: RunAnalysis, value: str, ranks: list[int], steps: list[int]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Ranks × steps, ns."""
    analysis = run.analysis
    cells = np.full((len(ranks), len(steps)), np.nan)
    row_of, column_of = {rank: place for place, rank in enumerate(ranks)}, {step: place for place, step in enumerate(steps)}
    if value == "excess":
        if analysis.scenarios is None or analysis.graph is None:
            return cells
        scenarios, graph = analysis.scenarios, analysis.graph
        excess = run.once("excess", scenarios.excess)
        rows = [row_of[rank] for rank in graph.ranks]
        for at, step in enumerate(graph.steps):
            cells[rows, column_of[step]] = excess[at]
        return cells
    length = pl.col("end_ns") - pl.col("start_ns") if value == "step" else pl.col(_COLUMNS[value])
    frame = analysis.digests["cluster_steps"].drop_nulls("step").select("rank", "step", length.cast(pl.Float64).alias("value"))
    frame = frame.drop_nulls("value")
    rows = [row_of[rank] for rank in frame["rank"].to_list()]
    cells[rows, [column_of[step] for step in frame["step"].to_list()]] = frame["value"].to_numpy()
    return cells
