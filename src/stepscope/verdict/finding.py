# SPDX-License-Identifier: Apache-2.0
"""The shape of a verdict: findings, and rules that had nothing to go by."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

SEVERITIES = ("high", "medium", "low", "info")


class NotApplicable(Exception):
    """The capture lacks what a rule needs."""


@dataclass(frozen=True)
class Finding:
    """One result of a rule."""

    severity: str  # one of SEVERITIES
    title: str
    detail: str
    gain_us: float  # what could be won at most
    action: str
    view: str  # of the page, where to look
    table: str = ""  # that the evidence is in
    rows: tuple[int, ...] = ()  # there
    rule: str = ""


@dataclass(frozen=True)
class Silent:
    """A rule that does not apply, and why."""

    rule: str
    because: str


@dataclass(frozen=True)
class Verdict:
    """All findings, the most serious and costly first."""

    findings: tuple[Finding, ...]
    not_applicable: tuple[Silent, ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "findings": [asdict(finding) for finding in self.findings],
            "not_applicable": [asdict(silent) for silent in self.not_applicable],
        }


def severity(share: float) -> str:
    """How serious a loss of this share of the time is."""
    return "high" if share >= 0.3 else "medium" if share >= 0.1 else "low"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"
