# SPDX-License-Identifier: Apache-2.0
"""What the analysis of a run says: one object per finding."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

KINDS = ("slow_rank", "slow_host", "slow_link", "slow_group", "pipeline_imbalance", "imbalance", "clock", "quality")
PATTERNS = ("persistent", "recurring", "one_off")


@dataclass(frozen=True)
class Problem:
    """Something about the input that the reader must know; the rest of the analysis is complete."""

    kind: str  # key of the texts
    params: dict[str, Any] = field(default_factory=dict)
    rank: int | None = None

    def as_dict(self) -> dict[str, Any]:
        from stepscope.cluster.words import problem_text

        text = problem_text(self, "en")
        params = {name: round(value, 6) if isinstance(value, float) else value for name, value in self.params.items()}
        return {"kind": self.kind, "rank": self.rank, "text": text, **params}


@dataclass
class Finding:
    """Who or what makes the run slower than it could be."""

    kind: str
    ranks: list[int]
    cost_ns: float
    share: float  # of a step
    saving_ns: float = 0.0
    host: str | None = None
    link: list[int] = field(default_factory=list)
    group: list[int] | None = None
    group_name: str = ""
    stage: int | None = None
    pattern: str = "persistent"
    every: int | None = None
    steps: list[int] = field(default_factory=list)
    cause: str = "unexplained"
    explained: float = 0.0
    causes: dict[str, float] = field(default_factory=dict)
    victims: list[dict[str, float]] = field(default_factory=list)
    confidence: str = "high"
    evidence: list[dict[str, Any]] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "ranks": self.ranks,
            "host": self.host,
            "link": self.link,
            "group": self.group,
            "group_name": self.group_name or None,
            "stage": self.stage,
            "cost_ms": round(self.cost_ns / 1e6, 6),
            "share": round(self.share, 6),
            "saving_ms": round(self.saving_ns / 1e6, 6),
            "pattern": self.pattern,
            "every": self.every,
            "steps": self.steps,
            "cause": self.cause,
            "explained": round(self.explained, 4),
            "causes": {name: round(value, 4) for name, value in self.causes.items()},
            "victims": self.victims,
            "confidence": self.confidence,
            "evidence": self.evidence,
        }
