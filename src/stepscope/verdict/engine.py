# SPDX-License-Identifier: Apache-2.0
"""Ask all rules about all ranks, rank what they find, fold what explains another, and say what all fixes would save together."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stepscope.analysis import quality
from stepscope.analysis.partition.spans import Spans
from stepscope.tables import Tables
from stepscope.tables.issues import RECORDING_UNFINISHED
from stepscope.verdict.case import Case, Draft
from stepscope.verdict.catalogue import BY_NAME, RULES
from stepscope.verdict.finding import SEVERITIES, CannotTell, Finding, Lack, RankVerdict, Verdict
from stepscope.verdict.ranks import across_ranks, clocks, peer_waits
from stepscope.verdict.rules.communication import left_without_waits
from stepscope.verdict.rules.limits_of_data import lacks, recorded
from stepscope.verdict.settings import Limits, limits, severity_of

LEAST_STEPS = 5  # outliers can be told from then on
_FUNCTION = re.compile(r"(?:void )?([^()<>]+)(?:<.*>)?\(.*\)")  # C++: result, name, template arguments, parameters
LOWER = {"high": "medium", "medium": "low", "low": "low"}


@dataclass(frozen=True)
class Answer:
    """Findings of one rank with the drafts they come from."""

    case: Case
    findings: tuple[Finding, ...]
    drafts: tuple[Draft, ...]
    rank: RankVerdict


def verdict(tables: Tables | Sequence[Tables], *, rules: Collection[str] | None = None, given: Limits | None = None) -> Verdict:
    """The verdict on linked tables of one capture, or of the ranks of a run.

    Args:
        tables: of one rank or of several.
        rules: names of the rules to ask; all when None.
        given: limits instead of the default ones (`settings.limits`).
    """
    ranks = [tables] if isinstance(tables, Tables) else list(tables)
    limit = given if given is not None else limits()
    return conclude([ask(Case(one, limit), rules) for one in ranks], rules)


def conclude(given: Sequence[Answer], rules: Collection[str] | None = None) -> Verdict:
    """The verdict from what the rules answered about each rank."""
    answers = list(given)
    cases = [answer.case for answer in answers]
    waits = peer_waits(cases)
    findings = _merged(
        [finding for answer, waited in zip(answers, waits.spans, strict=True) for finding in _without_waits(answer, waited)]
    )
    if len(answers) > 1:
        common = across_ranks(cases, rules, waits)
        findings += common
        for place, lack in clocks([answer.case for answer in answers]).items():
            rank = answers[place].rank
            answers[place] = replace(answers[place], rank=replace(rank, cannot_tell=(lack, *rank.cannot_tell)))
    together = _together(answers)
    if len(answers) > 1 and common:
        together = max(together or 0.0, *(one.saved_ns for one in common))
    found = Verdict(tuple(answer.rank for answer in answers), tuple(_ranked(findings)), together)
    if len(answers) == 1:
        return found
    weighed_ns = max(case.total_ns / max(case.count, 1) for case in cases)
    told = [_of_step(finding, found.step_ns, weighed_ns, cases[0].limits) for finding in found.findings]
    return replace(found, findings=tuple(told))


def _of_step(finding: Finding, step_ns: float, weighed_ns: float, given: Limits) -> Finding:
    """The finding with its shares of the step whose length the answer tells, and no longer of the mean step of its own rank."""
    if not step_ns or not weighed_ns:
        return finding
    severity, params = finding.severity, dict(finding.params)
    if finding.saved_ns and severity != "info":
        # What was worth telling of a rank stays told.
        severity = max(severity, severity_of(finding.saved_ns / weighed_ns, given) or "low", key=SEVERITIES.index)
    if finding.rule == "exposed-communication":
        params["share"] = params["exposed_ms"] * 1e6 / step_ns
    also = tuple(_of_step(one, step_ns, weighed_ns, given) for one in finding.also)
    return replace(finding, share=finding.saved_ns / step_ns, severity=severity, params=params, also=also)


def _without_waits(answer: Answer, waits: Spans) -> Iterable[Finding]:
    """The findings of a rank; what it waits for other ranks is not communication that could be hidden.

    Collectives that come in a row behind a late rank have nothing to hide behind, and would have if that rank were in time.
    """
    case = answer.case
    for finding in answer.findings:
        if finding.rule != "exposed-communication" or not waits.start.size:
            yield finding
            continue
        left = left_without_waits(case, waits) / max(case.count, 1)
        upper = left if finding.upper_ns is None else min(finding.upper_ns, left)
        saved = min(finding.saved_ns, upper)
        severity = severity_of(case.weight(saved * case.count), case.limits)
        if severity:
            yield replace(finding, saved_ns=saved, share=case.share(saved * case.count), upper_ns=upper, severity=severity)


def ask(case: Case, rules: Collection[str] | None = None) -> Answer:
    """All that the rules find in one rank."""
    drafts: list[Draft] = []
    missing: list[Lack] = []
    for rule in RULES if case.tables.kernels.height or case.tables.ops.height or case.tables.collectives.height else ():
        if rule.ask is None or not _wanted(rule.name, rules):
            continue
        try:
            drafts += rule.ask(case)
        except CannotTell as reason:
            missing.append(_lack(case, rule.name, reason))
    drafts = [draft for draft in drafts if rules is None or draft.rule in rules]
    kept = _after_waits(case, _folded([draft for draft in drafts if _counts(case, draft)]))
    findings = tuple(_finding(case, draft, number) for number, draft in _numbered(kept))
    return Answer(case, findings, tuple(kept), _rank(case, missing))


def _lack(case: Case, rule: str, reason: CannotTell) -> Lack:
    if recorded(case, reason.lack):
        return Lack(rule, "empty", {"what": reason.lack})
    return Lack(rule, reason.lack, reason.params)


def _wanted(name: str, rules: Collection[str] | None) -> bool:
    """Whether a rule's function is to be asked; it may answer for rules without one."""
    if rules is None:
        return True
    partners = {"sync-stall": {"launch-blocking"}, "host-dispatch": {"queue-thread"}, "exposed-communication": {"peer-wait"}}
    return bool(({name} | partners.get(name, set())) & set(rules))


def _severity(case: Case, draft: Draft) -> str:
    return draft.severity or severity_of(case.weight(draft.saved_ns), case.limits)


def _counts(case: Case, draft: Draft) -> bool:
    """Whether a draft is shown: what saves less than steps vary by cannot be checked."""
    return bool(_severity(case, draft))


def _folded(drafts: list[Draft]) -> list[Draft]:
    """Without findings whose time a greater one names as its own."""
    drafts = _as_notes(drafts)
    named = {rule: draft.saved_ns for draft in drafts for rule in draft.explains if draft.severity != "info"}
    kept = [
        draft for draft in drafts if draft.rule not in named or draft.saved_ns > 1.2 * named[draft.rule] or draft.severity == "info"
    ]
    causes = {draft.rule: draft.saved_ns for draft in kept if draft.rule in _CAUSES_OF_SLOW_STEPS}
    # A pause in few steps is a slow step too: the cause is shown, the slow step is not.
    most = max(causes.values(), default=0.0)
    return [draft for draft in kept if draft.rule != "slow-steps" or draft.saved_ns > 1.5 * most]


def _as_notes(drafts: list[Draft]) -> list[Draft]:
    """A recurring sequence is idle time of issuing: beside a greater finding about that it is a hint, not one more cause."""
    issuing = max((draft.saved_ns for draft in drafts if draft.rule == "host-dispatch"), default=0.0)
    return [
        replace(draft, severity="info") if draft.rule == "repeated-sequence" and draft.saved_ns < issuing else draft
        for draft in drafts
    ]


def _after_waits(case: Case, drafts: list[Draft]) -> list[Draft]:
    """Without what the host is late with only because it waited: a device that has run dry idles until the next task comes.

    A lesser finding about issuing stays when it still saves something once the waits are gone.
    """
    waits = next((draft for draft in drafts if draft.without_waits is not None and draft.severity != "info"), None)
    if waits is None or case.schedule is None:
        return drafts
    schedule = case.schedule
    alone = schedule.saved(without_waits=waits.without_waits)
    least = case.limit("severity", "low") * case.total_ns
    kept: list[Draft] = []
    folded: list[Draft] = []
    for draft in drafts:
        lesser = draft.rule in _AFTER_WAITS and draft.saved_ns <= waits.saved_ns
        if lesser and draft.host_layers:
            host = schedule.without_layers(*draft.host_layers)
            lesser = schedule.saved(without_waits=waits.without_waits, host=host) - alone < least
        (folded if lesser else kept).append(draft)
    explains = (*waits.explains, *(draft.rule for draft in folded))
    return [replace(draft, explains=explains) if draft is waits else draft for draft in kept]


_AFTER_WAITS = {"host-dispatch", "host-python", "queue-thread"}
_CAUSES_OF_SLOW_STEPS = {"gc-pause", "checkpoint", "data-wait", "compile", "allocator"}


def _numbered(drafts: Iterable[Draft]) -> Iterable[tuple[int, Draft]]:
    seen: dict[str, int] = {}
    for draft in drafts:
        seen[draft.rule] = seen.get(draft.rule, 0) + 1
        yield seen[draft.rule], draft


def _finding(case: Case, draft: Draft, number: int) -> Finding:
    confidence = draft.confidence
    by_replay = draft.how == "replay" and case.schedule is not None
    if by_replay and case.schedule is not None and case.schedule.error > case.limit("general", "replay_error"):
        confidence = LOWER[confidence]
    if case.incomplete:
        confidence = LOWER[confidence]
    count = max(case.count, 1)
    facts = case.facts
    return Finding(
        rule=draft.rule,
        family=BY_NAME[draft.rule].family,
        severity=_severity(case, draft),
        confidence=confidence,
        saved_ns=draft.saved_ns / count,
        share=case.share(draft.saved_ns),
        bound=draft.bound,
        upper_ns=None if draft.upper_ns is None else draft.upper_ns / count,
        how=draft.how,
        steps=draft.steps,
        rank=facts.rank if facts.rank >= 0 else None,
        evidence=draft.evidence,
        where=draft.where,
        explains=draft.explains,
        params={name: _readable(value) for name, value in draft.params.items()},
        variant=draft.variant,
        number=number,
    )


def _readable(value: Any) -> Any:
    """Names of C++ kernels without template arguments and parameters, which are longer than all that tells them apart."""
    if not isinstance(value, str):
        return value
    plain = value.replace("(anonymous namespace)::", "")
    parts = [(name, _FUNCTION.fullmatch(name)) for name in plain.split(" → ")]
    return " → ".join(found[1] if found else name for name, found in parts)


def _rank(case: Case, missing: list[Lack]) -> RankVerdict:
    windows = case.parts.windows
    count = max(case.count, 1)
    columns = ["total", *case.parts.parts]
    known = lacks(case)
    said = {lack.lack for lack in known}
    short_of_steps = "steps" in said or "unsteady" in said
    missing = [lack for lack in missing if not _beside_the_point(lack, missing)]
    unique = {
        (lack.lack, lack.params.get("what")): lack
        for lack in missing
        if lack.lack not in said and not (short_of_steps and lack.lack == "few-steps")
    }
    return RankVerdict(
        rank=case.facts.rank if case.facts.rank >= 0 else None,
        steps=case.model.steps,
        partition={name: int(windows[name].sum()) / count for name in columns},
        by_step=tuple(windows.select(columns).to_dicts()),
        cannot_tell=(*known, *unique.values()),
        replay_error=case.schedule.error if case.schedule is not None else None,
        complete=not any(one.issue == RECORDING_UNFINISHED for one in quality.occurrences(case.tables.quality)),
        simulated=case.simulated,
    )


def _beside_the_point(lack: Lack, every: list[Lack]) -> bool:
    """What nobody misses: details of communication where there is none, and steps for trends, which few captures have."""
    alone = any(one.lack == "communication" for one in every)
    about = lack.params["what"] if lack.lack == "empty" else lack.lack
    if about in ("packets", "transfers", "links", "collective-bytes"):
        return alone
    return lack.lack == "few-steps" and lack.params["least"] > LEAST_STEPS


def _merged(findings: list[Finding]) -> list[Finding]:
    """One finding per rule and place; the rank that loses most stands for the others."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        key = (finding.rule, finding.number, finding.params.get("pattern"), finding.params.get("late_rank"))
        groups.setdefault(key, []).append(finding)
    merged = []
    for group in groups.values():
        worst, *rest = sorted(group, key=lambda one: -one.weight)
        merged.append(replace(worst, also=tuple(rest)))
    return merged


def _ranked(findings: Iterable[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda one: (one.severity == "info", -one.weight, one.rule))


def _together(answers: Sequence[Answer]) -> float | None:
    """Saved per step by removing the causes of all findings at once, on the rank where that is most; savings overlap."""
    best: float | None = None
    for answer in answers:
        schedule = answer.case.schedule
        drafts = [
            draft for draft in answer.drafts if (draft.severity != "info" and draft.how == "replay") or draft.rule == "peer-wait"
        ]
        if schedule is None or not drafts:
            continue
        layers = {layer for draft in drafts for layer in draft.host_layers}
        duration = schedule.duration
        waits = np.zeros(schedule.target.size, dtype=np.bool_)
        for draft in drafts:
            if draft.duration is not None:
                duration = np.minimum(duration, draft.duration)
            if draft.without_waits is not None:
                waits |= draft.without_waits
        saved = schedule.saved(host=schedule.without_layers(*layers), duration=duration, without_waits=waits) / answer.case.count
        # What one fix cannot reach, as a collective that has nothing left to hide behind, all of them cannot reach either.
        saved -= sum(max(draft.replayed_ns - draft.saved_ns, 0) for draft in drafts if draft.replayed_ns) / answer.case.count
        # A saving that the replay does not see, such as that of a late rank, is not less because others come to it.
        saved = max(saved, *(draft.saved_ns / answer.case.count for draft in drafts))
        best = saved if best is None else max(best, saved)
    return best
