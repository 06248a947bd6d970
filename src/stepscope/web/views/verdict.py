# SPDX-License-Identifier: Apache-2.0
"""The Verdict view: the answer in a sentence, where each step goes, what would save time, and what the capture cannot tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from stepscope.analysis.overlap import FREE
from stepscope.analysis.partition.model import COMMUNICATION, COMPUTE, COPY, FROM
from stepscope.errors import CaptureError
from stepscope.verdict import Finding, Verdict, words
from stepscope.verdict.case import Case, Draft
from stepscope.verdict.catalogue import RULES
from stepscope.verdict.engine import Answer, ask, conclude
from stepscope.verdict.settings import limits
from stepscope.verdict.text import together_line
from stepscope.verdict.what_if import can_be_removed, remove_causes
from stepscope.web.loaded import LoadedCapture
from stepscope.web.parameters import Query
from stepscope.web.problems import Problem, bad_parameter

MOST_RANKS = 8  # asked together; of larger runs the one that is looked at
MOST_STEPS = 200
MOST_GAPS = 20  # tried for one that the timeline has as free time
MOST_LINKS = 12  # steps whose parts lead into the timeline

# Parts of a bar by who is the reason; what is in none of them was not recorded.
FAMILIES: Mapping[str, tuple[str, ...]] = {
    "computing": ("computing",),
    "wait": ("wait",),
    "communication": ("communication",),
    "copy": ("copy",),
    "dispatch": tuple(
        f"{side}.{layer}" for side in ("idle", "host") for layer in ("operator", "api", "queue", "launch", "alloc", "compile")
    ),
    "python": tuple(f"{side}.{layer}" for side in ("idle", "host") for layer in ("python", "data", "checkpoint", "gc")),
    "sync": ("idle.sync", "host.sync"),
    "preparing": ("preparing",),
}
_FAMILY = {part: family for family, parts in FAMILIES.items() for part in parts}
UNKNOWN = "unknown"
_KINDS = {"computing": COMPUTE, "communication": COMMUNICATION, "wait": COMMUNICATION, "copy": COPY}


def family_of(part: str) -> str:
    """Family of bars that a part of the step belongs to."""
    return _FAMILY.get(part, UNKNOWN)


def answer_of(capture: LoadedCapture) -> Answer:
    """What the rules say about one rank."""
    return capture.once("answer", lambda: ask(Case(capture.tables, limits())))


def verdict_of(capture: LoadedCapture) -> Verdict:
    """The verdict about one rank alone."""
    return capture.once("verdict", lambda: conclude([answer_of(capture)]))


def verdict_page(workers: Mapping[str, LoadedCapture], missing: list[dict[str, Any]]) -> dict[str, Any]:
    """All that the view shows, about the given workers together."""
    answers = {worker: answer_of(capture) for worker, capture in workers.items()}
    found = conclude(list(answers.values()))
    limiting, absent = zip(*(words.lacks(found, lang) for lang in words.LANGUAGES), strict=True)
    return {
        "answer": _texts(lambda lang: words.answer(found, lang)),
        "together": _texts(lambda lang: together_line(found, lang)),
        "step_ms": found.step_ns / 1e6,
        "has_steps": found.has_steps,
        "saved_ms": None if found.together_ns is None else found.together_ns / 1e6,
        "complete": found.complete,
        "unfinished": _texts(lambda lang: words.line("unfinished", lang)),
        "missing": missing,
        "ranks": [_rank(worker, workers[worker], answer, found, alone=len(answers) == 1) for worker, answer in answers.items()],
        "findings": [_finding(finding, workers, answers) for finding in found.findings],
        "limits": _paired(limiting),
        "absent": _paired(absent),
        "rules": _rules(found),
        "replay_error": max((one.replay_error for one in found.ranks if one.replay_error is not None), default=None),
    }


def what_if_page(capture: LoadedCapture, query: Query) -> dict[str, Any]:
    """The step with the causes of some findings gone: `remove` is `id:percent`, several with commas."""
    answer = answer_of(capture)
    by_id = removable(answer)
    wanted = _removed(query.text("remove"), by_id)
    try:
        result = remove_causes(answer.case, [by_id[name] for name in wanted], list(wanted.values()))
    except CaptureError as problem:
        raise Problem(422, "missing_data", str(problem), hint=problem.fix or "") from None
    return result.as_dict()


def _removed(text: str, known: Mapping[str, Any]) -> dict[str, float]:
    wanted: dict[str, float] = {}
    for item in filter(None, text.split(",")):
        name, _, percent = item.rpartition(":")
        if name not in known or not percent.isdigit() or int(percent) > 100:
            raise bad_parameter("remove", f"finding:percent with one of {', '.join(known) or 'no findings'}")
        wanted[name] = int(percent) / 100
    return wanted


def _rules(found: Verdict) -> dict[str, int]:
    """How many rules had the data that they need, of some rank at least, and how many had not."""
    lacking = [{lack.rule for lack in one.cannot_tell} for one in found.ranks]
    not_asked = len(set.intersection(*lacking) & {rule.name for rule in RULES}) if lacking else 0
    return {"asked": len(RULES) - not_asked, "not_asked": not_asked}


def _texts(text: Any) -> dict[str, str]:
    return {lang: text(lang) for lang in words.LANGUAGES}


def _paired(by_language: tuple[list[str], ...]) -> list[dict[str, str]]:
    return [dict(zip(words.LANGUAGES, texts, strict=True)) for texts in zip(*by_language, strict=True)]


# --- bars


def _rank(worker: str, capture: LoadedCapture, answer: Answer, found: Verdict, *, alone: bool) -> dict[str, Any]:
    windows = answer.case.parts.windows
    waits = _waits(found, answer, alone=alone) if windows.height == 1 else 0.0
    shown = range(min(windows.height, MOST_STEPS))
    return {
        "worker": worker,
        "rank": answer.rank.rank,
        "simulated": answer.rank.simulated,
        "steps": [_step(capture, answer, at, waits, linked=windows.height <= MOST_LINKS) for at in shown],
        "left_out": windows.height - len(shown),
    }


def _waits(found: Verdict, answer: Answer, *, alone: bool) -> float:
    """Time per step in which communication waits for a late rank, as the finding of this rank says."""
    own = [one for finding in found.findings if finding.rule == "peer-wait" for one in (finding, *finding.also)]
    return sum(one.saved_ns for one in own if alone or one.rank == answer.rank.rank)


def _step(capture: LoadedCapture, answer: Answer, at: int, waits: float, *, linked: bool) -> dict[str, Any]:
    row = answer.case.parts.windows.row(at, named=True)
    total = row.pop("total")
    step = row.pop("step")
    if waits and row.get("communication"):
        waiting = min(int(waits), row["communication"])
        row = {**row, "wait": waiting, "communication": row["communication"] - waiting}
    on_host = not answer.case.has_device
    device = [] if on_host else _bar(row)
    if linked:
        for piece in device:
            piece["link"] = _link(capture, answer, at, piece["family"])
    return {
        "step": step,
        "total_ms": total / 1e6,
        "device": device,
        "host": _bar(row if on_host else _host_parts(answer.case, at), first="preparing"),
        "window": _window(capture, answer.case, at),
    }


def _bar(parts: Mapping[str, int], first: str = "") -> list[dict[str, Any]]:
    """Pieces of a bar in the order of the families, with the parts that each consists of; they sum to the whole."""
    pieces: dict[str, dict[str, Any]] = {}
    for part, ns in parts.items():
        if ns:
            piece = pieces.setdefault(family_of(part), {"ns": 0, "parts": []})
            piece["ns"] += ns
            piece["parts"].append({"name": _texts(lambda lang, part=part: words.part_name(part, lang)), "ms": ns / 1e6})
    order = sorted([*FAMILIES, UNKNOWN], key=lambda family: family != first)
    return [
        {"family": family, "ms": pieces[family]["ns"] / 1e6, "parts": pieces[family]["parts"]}
        for family in order
        if family in pieces
    ]


def _host_span(case: Case, at: int) -> tuple[int, int]:
    """When the step was on the host; the window of the device where no step is marked."""
    step = case.model.steps[at]
    rows = case.tables.steps.filter(pl.col("step") == step) if step is not None else case.tables.steps.clear()
    if not rows.height:
        return int(case.model.windows[at]), int(case.model.windows[at + 1])
    return int(rows["start_ns"][0]), int(rows["end_ns"][0])


def _host_parts(case: Case, at: int) -> dict[str, int]:
    """What the main thread did in a step; before the first task of the step it prepares."""
    start, end = _host_span(case, at)
    begins = case.model.tasks["start_ns"].to_numpy()
    place = np.searchsorted(begins, case.model.windows[at])
    first = int(np.clip(begins[place] if place < begins.size else end, start, end))
    main = case.model.main_tid
    edges = np.array([first]), np.array([end])
    layers = case.model.layers(main) if main is not None else {}
    parts = {f"host.{layer}": int(spans.within(*edges)[0]) for layer, spans in layers.items()}
    rest = end - first - sum(parts.values())
    return {"preparing": first - start, **parts, "host.other": rest}


def _window(capture: LoadedCapture, case: Case, at: int) -> list[int]:
    """The step as the timeline is to show it: its host and its device side."""
    start, end = _host_span(case, at)
    borders = case.model.windows[at], case.model.windows[at + 1]
    return [min(start, int(borders[0])) - capture.base_ns, max(end, int(borders[1])) - capture.base_ns]


def _link(capture: LoadedCapture, answer: Answer, at: int, family: str) -> dict[str, str] | None:
    """Where the timeline shows the longest piece of a part in a step."""
    case = answer.case
    low, high = int(case.model.windows[at]), int(case.model.windows[at + 1])
    if family in _KINDS:
        tasks = case.model.tasks.filter(
            (pl.col("kind") == _KINDS[family]) & pl.col("start_ns").is_between(low, high, closed="left")
        )
        if not tasks.height:
            return None
        longest = tasks.row(int((tasks["end_ns"] - tasks["start_ns"]).arg_max() or 0), named=True)
        found = capture.trace.id_of(FROM[longest["table"]], longest["row"])
        return None if found is None else {"slice": str(found)}
    columns = [name for name in case.parts.gaps.columns if name.startswith("idle.") and family_of(name) == family]
    gaps = case.parts.gaps.filter(pl.col("window") == at) if columns else case.parts.gaps.clear()
    if not gaps.height:
        return None
    candidates = gaps.select("start_ns", "end_ns", ns=pl.sum_horizontal(columns)).sort("ns", descending=True).head(MOST_GAPS)
    # A gap before the first computing task, or after the last, is not free time of the timeline: it has no slice to select.
    for start, end, ns in candidates.iter_rows():
        found = free_slice(capture, case, start, end) if ns else None
        if found is not None:
            return {"slice": str(found)}
    return _fitted(capture, candidates["start_ns"][0], candidates["end_ns"][0])


def free_slice(capture: LoadedCapture, case: Case, start: int, end: int) -> int | None:
    """The slice of free time in the timeline that a gap lies in."""
    free = capture.once("free time", lambda: _free(capture))
    middle = (start + end) // 2
    own = free.filter((pl.col("device") == case.model.device) & (pl.col("start_ns") <= middle) & (pl.col("end_ns") > middle))
    return capture.trace.id_of("overlap", int(own["row"][0])) if own.height else None


def _free(capture: LoadedCapture) -> pl.DataFrame:
    return capture.tables.overlap.with_row_index("row").filter(pl.col("layer").cast(pl.String) == FREE)


def _fitted(capture: LoadedCapture, start: int, end: int) -> dict[str, str]:
    margin = max((end - start) // 5, 1)
    low, high = start - capture.base_ns, end - capture.base_ns
    return {"t": f"{low - margin}_{high + margin}", "range": f"{low}_{high}"}


# --- findings


def _finding(finding: Finding, workers: Mapping[str, LoadedCapture], answers: Mapping[str, Answer]) -> dict[str, Any]:
    worker = next((name for name, answer in answers.items() if answer.rank.rank == finding.rank), next(iter(workers)))
    return {
        **finding.as_dict(),
        "worker": worker,
        "confidence_text": _texts(lambda lang: words.line("confidence", lang, level=words.line(finding.confidence, lang))),
        "severity_text": _texts(lambda lang: words.line(finding.severity, lang)),
        "short": _texts(lambda lang: words.short_name(finding, lang)),
        "chips": _chips(finding, worker, workers[worker]),
        "removable": [name for name, answer in answers.items() if finding.id in removable(answer)],
    }


def removable(answer: Answer) -> dict[str, Draft]:
    """Causes that a replay of this rank can do without, by the finding that names them."""
    if answer.case.schedule is None or not answer.case.has_device:
        return {}
    return {finding.id: draft for finding, draft in zip(answer.findings, answer.drafts, strict=True) if can_be_removed(draft)}


def _chips(finding: Finding, worker: str, capture: LoadedCapture) -> list[dict[str, Any]]:
    """Rows of evidence as slices of the timeline, longest first."""
    found: list[dict[str, Any]] = []
    for one in finding.evidence:
        for row in one.rows[:4]:
            number = capture.trace.id_of(one.table, row)
            if number is not None:
                name, length = capture.trace.name_and_length(number)
                found.append({"worker": worker, "slice": number, "name": name, "ms": length / 1e6})
    shown = sorted(found, key=lambda chip: chip["ms"], reverse=True)[:4]
    tracks = [_track(capture, chip["slice"]) for chip in shown]
    for chip, track in zip(shown, tracks, strict=True):
        # Chips of one name are told apart by their tracks.
        alike = {other for one, other in zip(shown, tracks, strict=True) if one["name"] == chip["name"]}
        chip["track"] = track if len(alike) > 1 else ""
    return shown


def _track(capture: LoadedCapture, number: int) -> str:
    index = capture.trace
    return str(index.tracks[index.row_track[int(index.row_of(number))]]["label"])
