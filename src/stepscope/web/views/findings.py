# SPDX-License-Identifier: Apache-2.0
"""The Findings view: rules that hit, what they cost, where to look; and rules that do not apply."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from stepscope.verdict import Finding, verdict
from stepscope.web.loaded import LoadedCapture


def findings(capture: LoadedCapture) -> dict[str, Any]:
    """All hits, the most serious and costly first."""
    return capture.once("findings", lambda: _findings(capture))


def _findings(capture: LoadedCapture) -> dict[str, Any]:
    result = verdict(capture.tables)
    return {
        "findings": [_shown(capture, finding) for finding in result.findings],
        "not_applicable": [asdict(rule) for rule in result.not_applicable],
    }


def _shown(capture: LoadedCapture, finding: Finding) -> dict[str, Any]:
    """A finding with slices of the timeline as evidence."""
    slices = [capture.trace.id_of(finding.table, row) for row in finding.rows]
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
