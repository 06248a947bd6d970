# SPDX-License-Identifier: Apache-2.0
"""The analysis of a run in at most 25 lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stepscope.cluster.analyse import Analysis
from stepscope.cluster.words import cause_text, line, problem_text, ranges, who, who_text

MOST_LINES = 25
MOST_FINDINGS = 5
MOST_CHANGED = 4  # ranks and findings that are told of a baseline
CHANGED = 0.01  # of a step


def lines(analysis: Analysis, lang: str = "en", files: Sequence[str] = ()) -> list[str]:
    """Run, step time, findings, clocks, problems, files written."""
    head = [_run_line(analysis, lang), *_step_lines(analysis, lang)]
    body = _finding_lines(analysis, lang)
    tail = _clock_lines(analysis, lang)
    if analysis.baseline:
        tail += _baseline_lines(analysis.baseline, lang)
    wrote = [line("wrote", lang, path=path) for path in files[:3]]
    room = MOST_LINES - len(head) - len(body) - len(tail) - len(wrote)
    problems = [line("problem", lang, text=problem_text(problem, lang)) for problem in analysis.problems]
    if len(problems) > room:
        problems = [*problems[: max(room - 1, 0)], line("problems", lang, count=len(analysis.problems) - max(room - 1, 0))]
    return [*head, *body, *tail, *problems, *wrote]


def brief(analyses: Sequence[Analysis], lang: str = "en") -> list[str]:
    """Each of several runs in three lines at most: what it is, how long a step takes, and its first finding."""
    shown = analyses[-((MOST_LINES - 1) // 3) :]
    found = [line("earlier", lang, count=len(analyses) - len(shown))] if len(shown) < len(analyses) else []
    for number, analysis in enumerate(shown, len(analyses) - len(shown) + 1):
        found.append(line("run_number", lang, number=number, text=_run_line(analysis, lang)))
        found += [f"   {text}" for text in (*_step_lines(analysis, lang)[-2:-1], _finding_lines(analysis, lang)[0])]
    return found


def _run_line(analysis: Analysis, lang: str) -> str:
    ranks = analysis.digests["cluster_ranks"]
    hosts = ranks["host"].drop_nulls().n_unique()
    where = line("hosts", lang, count=hosts) if hosts else line("hosts_unknown", lang)
    steps = len(analysis.graph.steps) if analysis.graph else 0
    return line("run", lang, found=ranks.height, expected=analysis.expected, hosts=where, steps=steps)


def _step_lines(analysis: Analysis, lang: str) -> list[str]:
    found = []
    sizes = analysis.layout.sizes
    known = " × ".join(f"{word.upper()}{size}" for word, size in sizes.items() if size)
    if known:
        found.append(line("layout", lang, text=known, source=analysis.layout.source))
    length = analysis.step_ns / 1e6
    if len(length):
        figures = {"median": float(np.median(length)), "p95": float(np.quantile(length, 0.95))}
        if analysis.scenarios is not None and analysis.ranking is not None:
            found.append(line("step", lang, **figures, ideal=float(np.median(analysis.scenarios.ideal_steps)) / 1e6))
        else:
            found.append(line("step_only", lang, **figures))
        steps = analysis.digests["cluster_steps"]
        whole = float((steps["end_ns"] - steps["start_ns"]).sum()) or 1.0
        computing, wait = (float(steps[name].sum() or 0) / whole for name in ("computing_ns", "wait_ns"))
        found.append(line("goes", lang, computing=computing, wait=wait, rest=max(1 - computing - wait, 0.0)))
    return found


def _finding_lines(analysis: Analysis, lang: str) -> list[str]:
    found = []
    if analysis.wait_outside_ns:
        share = analysis.wait_outside_ns / float(np.median(analysis.step_ns))
        found.append(line("outside", lang, wait=analysis.wait_outside_ns / 1e6, share=share))
    if not analysis.findings:
        nothing = "nothing_recorded" if found or analysis.missing else "nothing"
        return [*found, line(nothing if analysis.ranking is not None and not analysis.undecided else "withheld", lang)]
    count = len(analysis.graph.steps) if analysis.graph else 0
    for number, finding in enumerate(analysis.findings[:MOST_FINDINGS], 1):
        steps = len(finding.steps)
        if finding.pattern == "one_off":
            pattern = line("one_off", lang, steps=finding.steps)
        elif finding.pattern == "recurring" and finding.every:
            pattern = line("recurring", lang, every=finding.every)
        else:
            pattern = line("persistent", lang, hit=steps, all=count)
        found.append(
            line(
                "finding",
                lang,
                number=number,
                who=who_text(finding, lang),
                cost=finding.cost_ns / 1e6,
                share=finding.share,
                pattern=pattern,
            )
        )
        waiting = sorted(int(one["rank"]) for one in finding.victims)
        victims = line("victims" if len(waiting) > 1 else "victim", lang, ranks=waiting) if waiting else ""
        found.append(
            line("why", lang, cause=cause_text(finding.cause, lang), explained=min(finding.explained, 1.0), victims=victims)
        )
    if len(analysis.findings) > MOST_FINDINGS:
        found.append(line("more", lang, count=len(analysis.findings) - MOST_FINDINGS))
    return found


def _clock_lines(analysis: Analysis, lang: str) -> list[str]:
    clocks = analysis.clocks
    aligned = [place for place, reason in enumerate(clocks.reason) if not reason]
    if len(aligned) < 2:
        return []
    offset = float(np.abs(clocks.offset_ns[aligned]).max()) / 1e3
    sigma = float(clocks.sigma_ns[aligned[1:]].max()) / 1e3
    return [line("clocks", lang, aligned=len(aligned), reference=clocks.ranks[0], sigma=sigma, offset=offset)]


def _baseline_lines(found: dict[str, Any], lang: str) -> list[str]:
    result = [line("baseline", lang, **{key: found[key] for key in ("path", "before", "after", "change")})]
    changes = {part: figures["change"] for part, figures in found["parts"].items() if figures["change"] is not None}
    if {"computing", "communication", "free"} <= set(changes):
        result.append(line("baseline_parts", lang, **changes))
    limit = CHANGED * found["after"]
    moved = [row for row in found["ranks"] if abs(row["own_change"]) >= limit][:MOST_CHANGED]
    if moved:
        texts = [line("baseline_rank", lang, rank=row["rank"], change=row["own_change"]) for row in moved]
        result.append(line("baseline_ranks", lang, text=", ".join(texts)))
    for state in ("new", "gone"):
        texts = [who(row["kind"], lang, row) for row in found["findings"] if row["state"] == state]
        if texts:
            result.append(line(f"baseline_{state}", lang, text="; ".join(texts[:MOST_CHANGED])))
    return result


def rank_text(ranks: Sequence[int]) -> str:
    return ranges(list(ranks))
