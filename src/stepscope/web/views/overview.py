# SPDX-License-Identifier: Apache-2.0
"""The Overview: what was captured, where the time went, step by step, and what to look at first (docs/reference/viewer.md 4.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import polars as pl

from stepscope.analysis import quality
from stepscope.analysis.kernels.device_summary import gpu_summary, npu_summary
from stepscope.analysis.step_summary import StepSummary, step_summary
from stepscope.report import switches
from stepscope.tables import device_word
from stepscope.web.loaded import LoadedCapture
from stepscope.web.views.findings import findings
from stepscope.web.views.steps import NPU, NPU_BAR, OTHER, npu_bars, npu_steps, other_steps
from stepscope.web.views.verdict import verdict_of

SIMULATED = "recorded on the simulated NPU: what ran and how long it took is real; modelled, not measured, are "
NO_STEPS = "no steps in this capture: use a schedule and call prof.step() after every step"
OUTSIDE_STEPS = "none of the recorded tasks belongs to a marked step: the figures are of the whole capture"
SHOWN_US = 0.0005  # less is the same figure where three decimals are shown
COUNTERS = ("counters of cores and caches",)


def overview(capture: LoadedCapture, workers: int = 1) -> dict[str, Any]:
    npu = capture.is_npu
    parts, rows = (NPU, npu_steps(capture)) if npu else (OTHER, other_steps(capture))
    summary = step_summary(rows, parts)
    on_gpu = capture.kind not in ("npu", "cpu") and capture.has_device
    notes = []
    if not rows["step"].drop_nulls().len():
        notes.append(OUTSIDE_STEPS if capture.tables.steps.height else NO_STEPS)
    return {
        "complete": quality.complete(capture.tables.quality),
        "headline": quality.as_dict(capture.tables.quality)["headline"],
        "configuration": _configuration(capture, workers),
        "device_summary": [_without(asdict(figure), "device") for figure in npu_summary(capture.tables)] if npu else [],
        "gpu_summary": [asdict(figure) for figure in gpu_summary(capture.tables)] if on_gpu else [],
        "execution": {"columns": ["Category", "Time Duration (us)", "Percentage (%)"], "rows": _execution(summary, npu)},
        "step": _mean_step(capture, summary),
        "average_step_us": summary.average,
        "steps": _steps(npu_bars(capture), NPU_BAR, summary) if npu else _steps(rows, parts, summary),
        "findings": findings(capture)["findings"][:3],
        "notes": notes,
    }


def _mean_step(capture: LoadedCapture, summary: StepSummary) -> dict[str, Any]:
    """The mean step as the verdict has it, and whether the marks of all steps give another figure."""
    found = verdict_of(capture)
    length = found.step_ns / 1000.0
    counted = len(found.ranks[0].steps)
    differs = summary.average is not None and abs(summary.average - length) >= SHOWN_US
    return {"us": length, "count": counted, "marked": found.has_steps, "differs": differs}


def simulated(capture: LoadedCapture) -> str:
    """What a reader of the report of a simulated capture has to know; the page says it itself, in its language."""
    return SIMULATED + ", ".join(capture.facts.modelled or COUNTERS)


def _configuration(capture: LoadedCapture, workers: int) -> list[dict[str, Any]]:
    facts, tables = capture.facts, capture.tables
    named = Counter(facts.device_names.values())
    devices = ", ".join(f"{count} × {name}" if count > 1 else name for name, count in named.items())
    devices = devices or ", ".join(map(str, facts.device_ids))
    steps = tables.steps["step"].drop_nulls().to_list()
    values = {
        "Number of Worker(s)": workers,
        "Device Type": "GPU (ROCm)" if capture.kind == "rocm" else device_word(capture.kind),
        "Device": devices or None,
        "Rank": facts.rank if facts.rank >= 0 else None,
        "Framework": facts.framework,
        "torch_npu": facts.torch_npu_version or None,
        "CANN": facts.cann_version or None,
        "Profiler Level": facts.level or None,
        "AI Core Metrics": facts.aic_metrics or None,
        "Switches": ", ".join(switches(facts)) or None,
        "Steps": ", ".join(map(str, steps[:20])) + (" …" if len(steps) > 20 else "") if steps else None,
        "Captured (ms)": capture.trace.length_ns / 1e6,
        "Read from": facts.source or None,
    }
    return [{"name": name, "value": value} for name, value in values.items() if value is not None]


def _execution(summary: StepSummary, npu: bool) -> list[list[Any]]:
    """Means over the steps."""
    if summary.average is None:
        return []
    table = [] if npu else [["Average Step Time", summary.average, 100.0 if summary.average else 0.0]]
    return table + [list(row) for row in summary.parts.iter_rows()]


def _steps(rows: pl.DataFrame, parts: Sequence[str], summary: StepSummary) -> dict[str, Any]:
    shown = [
        {
            "step": row["step"], "device": row.get("device"), "values": [row[part] for part in parts], "total": row["total"],
            "slow": slow,
        }
        for row, slow in zip(rows.iter_rows(named=True), summary.slow, strict=True)
    ]  # fmt: skip
    return {"categories": list(parts), "rows": shown, "median_us": summary.median, "mad_us": summary.deviation}


def _without(values: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != key}
