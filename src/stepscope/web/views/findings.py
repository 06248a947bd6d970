# SPDX-License-Identifier: Apache-2.0
"""The Findings view: what costs time, what would be saved, where to look; and what the capture cannot tell."""

from __future__ import annotations

from typing import Any

from stepscope.verdict import Finding
from stepscope.web.loaded import LoadedCapture
from stepscope.web.views.verdict import verdict_of

# Where the page shows what a family of rules is about.
VIEWS = {"host": "Trace", "device": "Kernel", "communication": "Distributed", "memory": "Memory", "steps": "Overview"}


def findings(capture: LoadedCapture) -> dict[str, Any]:
    """All findings, most worth first."""
    return capture.once("findings", lambda: _findings(capture))


def _findings(capture: LoadedCapture) -> dict[str, Any]:
    found = verdict_of(capture)
    answered = found.as_dict()
    return {
        "answer": answered["answer"],
        "together_ms": answered["together_ms"],
        "partition": answered["ranks"][0]["partition"] if answered["ranks"] else {},
        "findings": [_shown(capture, finding) for finding in found.findings],
        "not_applicable": [
            {"rule": lack.rule, "because": lack.text(), "because_zh": lack.text("zh")}
            for one in found.ranks
            for lack in one.cannot_tell
        ],
    }


def _shown(capture: LoadedCapture, finding: Finding) -> dict[str, Any]:
    """A finding with slices of the timeline as evidence."""
    slices = [capture.trace.id_of(one.table, row) for one in finding.evidence for row in one.rows]
    kernels = "NPU Kernel" if capture.is_npu else "GPU Kernel"
    view = VIEWS.get(finding.family, "Files")
    return {
        **finding.as_dict(),
        "title": finding.text("title"),
        "title_zh": finding.text("title", "zh"),
        "detail": finding.text("detail"),
        "detail_zh": finding.text("detail", "zh"),
        "gain_us": finding.saved_ns / 1000.0,
        "action": finding.text("next"),
        "action_zh": finding.text("next", "zh"),
        "view": kernels if view == "Kernel" else view,
        "slices": [number for number in slices if number is not None],
    }
