# SPDX-License-Identifier: Apache-2.0
"""The shape of a verdict: findings ranked by what they would save, and what the capture cannot tell."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stepscope.language import language
from stepscope.verdict import words

SEVERITIES = ("high", "medium", "low", "info")
CONFIDENCE = {"high": 1.0, "medium": 0.8, "low": 0.5}  # how much a saving counts in the ranking
SCHEMA = "stepscope.verdict/1"


class CannotTell(Exception):
    """A rule could not be asked: the capture lacks what it needs."""

    def __init__(self, lack: str, **params: Any):
        super().__init__(lack)
        self.lack, self.params = lack, params


@dataclass(frozen=True)
class Evidence:
    """Rows of a table that show a finding."""

    table: str
    rows: tuple[int, ...]
    why: str = "longest"
    start_ns: int | None = None  # the window to look at, on the host's epoch clock
    end_ns: int | None = None

    def link(self, rank: int | None) -> str:
        """Where the page shows it: the timeline of the rank, at that time, with the first row selected."""
        asked = {
            "rank": rank,
            "from": self.start_ns,
            "to": self.end_ns,
            "select": f"{self.table}:{self.rows[0]}" if self.rows else None,
        }
        return "#/trace?" + "&".join(f"{name}={value}" for name, value in asked.items() if value is not None)


@dataclass(frozen=True)
class Place:
    """Where in the program a finding comes from; empty where unknown."""

    op: str = ""
    module: str = ""
    stack: str = ""  # file(line): function
    saved_ns: float = 0.0  # per step


@dataclass(frozen=True)
class Finding:
    """One result of a rule. Times are ns per mean step."""

    rule: str
    family: str
    severity: str
    confidence: str
    saved_ns: float
    share: float  # of the mean step of the slowest rank: `Verdict.step_ns`
    bound: str = "estimate"  # or upper: at most this
    upper_ns: float | None = None  # a bound beside an estimate
    how: str = "replay"  # or parts, model
    steps: tuple[int, ...] = ()
    rank: int | None = None
    evidence: tuple[Evidence, ...] = ()
    where: tuple[Place, ...] = ()
    explains: tuple[str, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    variant: str = ""  # which of a rule's texts it uses
    number: int = 1  # among the findings of its rule
    also: tuple[Finding, ...] = ()  # the same on other ranks, worst first

    @property
    def id(self) -> str:
        return f"{self.rule}:{self.number}"

    @property
    def saved_ms(self) -> float:
        return self.saved_ns / 1e6

    @property
    def weight(self) -> float:
        """What findings are ranked by."""
        return self.saved_ns * CONFIDENCE[self.confidence]

    @property
    def ranks(self) -> tuple[int, ...]:
        found = {one.rank for one in (self, *self.also) if one.rank is not None}
        return tuple(sorted(found))

    def text(self, part: str, lang: str = "en") -> str:
        """Title, detail or next step in a language."""
        return words.finding_text(self.rule, part, lang, self.params, self.variant)

    @property
    def title(self) -> str:
        return self.text("title")

    @property
    def next(self) -> str:
        return self.text("next")

    def as_dict(self) -> dict[str, Any]:
        both = {part: {lang: self.text(part, lang) for lang in words.LANGUAGES} for part in ("title", "detail", "next")}
        return {
            "id": self.id,
            "rule": self.rule,
            "family": self.family,
            "severity": self.severity,
            "confidence": self.confidence,
            **both,
            "saved_ms": _ms(self.saved_ns),
            "share": round(self.share, 6),
            "bound": self.bound,
            "upper_ms": None if self.upper_ns is None else _ms(self.upper_ns),
            "how": self.how,
            "steps": list(self.steps),
            "rank": self.rank,
            "ranks": list(self.ranks),
            "evidence": [
                {
                    "table": one.table,
                    "rows": list(one.rows),
                    "why": one.why,
                    "start_ns": one.start_ns,
                    "end_ns": one.end_ns,
                    "link": one.link(self.rank),
                }
                for one in self.evidence
            ],
            "where": [
                {"op": one.op, "module": one.module, "stack": one.stack, "saved_ms": _ms(one.saved_ns)} for one in self.where
            ],
            "explains": list(self.explains),
            "doc": f"docs/rules/{self.rule}.md",
            "params": {name: tidy(value) for name, value in self.params.items()},
        }


@dataclass(frozen=True)
class Lack:
    """Something that a capture cannot tell, and the switch that would record it."""

    rule: str
    lack: str
    params: Mapping[str, Any] = field(default_factory=dict)
    limits: bool = False  # it limits all answers; else it only keeps some rules from being asked

    def text(self, lang: str = "en") -> str:
        return words.lack_text(self.lack, lang, self.params)

    def as_dict(self) -> dict[str, Any]:
        return {"rule": self.rule, "lack": self.lack, "text": {lang: self.text(lang) for lang in words.LANGUAGES}}


@dataclass(frozen=True)
class RankVerdict:
    """What one rank contributes: its steps, its partition and what its capture cannot tell."""

    rank: int | None
    steps: tuple[int | None, ...]
    partition: Mapping[str, float]  # ns per mean step by part, with "total"
    by_step: tuple[Mapping[str, int], ...]  # ns by part for each step
    cannot_tell: tuple[Lack, ...]
    replay_error: float | None
    complete: bool = True
    simulated: bool = False

    def as_dict(self) -> dict[str, Any]:
        return {
            "rank": self.rank,
            "steps": list(self.steps),
            "partition": {part: _ms(ns) for part, ns in self.partition.items()},
            "by_step": [{part: _ms(ns) for part, ns in row.items()} for row in self.by_step],
            "cannot_tell": [lack.as_dict() for lack in self.cannot_tell],
            "replay_error": tidy(self.replay_error),
            "complete": self.complete,
            "simulated": self.simulated,
        }


@dataclass(frozen=True)
class Verdict:
    """The answer about one or more ranks: findings, most worth first."""

    ranks: tuple[RankVerdict, ...]
    findings: tuple[Finding, ...]
    together_ns: float | None = None  # saved per step by removing the causes of all findings at once

    @property
    def partition(self) -> list[dict[str, Any]]:
        """Per rank and step, ms by part; the parts sum to `total`."""
        return [
            {"rank": one.rank, "step": step, **{part: ns / 1e6 for part, ns in row.items()}}
            for one in self.ranks
            for step, row in zip(one.steps, one.by_step, strict=True)
        ]

    @property
    def complete(self) -> bool:
        return all(one.complete for one in self.ranks)

    @property
    def step_ns(self) -> float:
        """Mean length of a step, of the rank that takes longest: the one figure for it, wherever it is shown."""
        return max((one.partition.get("total", 0.0) for one in self.ranks), default=0.0)

    @property
    def has_steps(self) -> bool:
        """Whether any step is marked; else `step_ns` is the time from the first to the last task."""
        return any(step is not None for one in self.ranks for step in one.steps)

    def _repr_html_(self) -> str:
        from stepscope.verdict.html import block

        return block(self, language())

    def _repr_markdown_(self) -> str:
        from stepscope.verdict.text import markdown

        return "\n".join(markdown(self, language()))

    def worst(self) -> str:
        """The highest severity; `info` when nothing was found."""
        return min((one.severity for one in self.findings), key=SEVERITIES.index, default="info")

    def as_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "complete": self.complete,
            "answer": {lang: words.answer(self, lang) for lang in words.LANGUAGES},
            "ranks": [one.as_dict() for one in self.ranks],
            "findings": [one.as_dict() for one in self.findings],
            "together_ms": None if self.together_ns is None else _ms(self.together_ns),
        }


def tidy(value: Any) -> Any:
    """A figure without what the arithmetic of floats adds to it: six decimals, more only where it would vanish."""
    if not isinstance(value, float) or not math.isfinite(value):
        return value
    return round(value, 6) if abs(value) >= 0.001 else float(f"{value:.4g}")


def _ms(ns: float) -> float:
    return round(ns / 1e6, 6)
