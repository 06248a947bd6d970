# SPDX-License-Identifier: Apache-2.0
"""The Findings view: rules that hit, what they cost, where to look; and rules that could not be asked."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from stepscope.verdict import Finding, verdict
from stepscope.web.loaded import LoadedCapture


def findings(opened: LoadedCapture) -> dict[str, Any]:
    """All hits, the most serious and costly first."""
    return opened.once("findings", lambda: _findings(opened))


def _findings(opened: LoadedCapture) -> dict[str, Any]:
    found = verdict(opened.tables)
    return {
        "findings": [_shown(opened, finding) for finding in found.findings],
        "not_applicable": [asdict(silent) for silent in found.not_applicable],
    }


def _shown(opened: LoadedCapture, finding: Finding) -> dict[str, Any]:
    """A finding with slices of the timeline as evidence."""
    slices = [opened.trace.id_of(finding.table, row) for row in finding.rows]
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "title": finding.title,
        "detail": finding.detail,
        "gain_us": finding.gain_us,
        "action": finding.action,
        "view": finding.view,
        "slices": [number for number in slices if number is not None],
    }
