# SPDX-License-Identifier: Apache-2.0
"""What is in a capture."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from stepscope.analysis import quality
from stepscope.analysis_queue import AnalysisState, describe, state_of
from stepscope.capture import Capture
from stepscope.tables import Facts, Tables
from stepscope.tables.facts import evidence_text

SWITCHES = (
    "record_shapes",
    "profile_memory",
    "with_stack",
    "with_modules",
    "with_flops",
    "l2_cache",
    "mstx",
    "sys_io",
    "sys_interconnection",
)


@dataclass(frozen=True)
class Overview:
    """One capture in a few lines."""

    path: str
    source: str
    facts: Facts
    steps: pl.DataFrame
    rows: dict[str, int]
    source_bytes: int
    source_files: int
    quality: pl.DataFrame
    tables: Tables = field(repr=False)
    analysis: AnalysisState | None = None  # in the background

    def lines(self) -> Iterable[tuple[str, str]]:
        facts = self.facts
        devices = ", ".join(
            f"{number} ({facts.device_names[str(number)]})" if str(number) in facts.device_names else str(number)
            for number in facts.device_ids
        )
        yield "rank", str(facts.rank) if facts.rank >= 0 else "none"
        yield "read from", self.source
        yield "device", " ".join(part for part in (facts.device_kind, devices) if part) or "none"
        if facts.evidence:
            yield "reader", evidence_text(facts.evidence)
        if facts.modelled:
            yield "modelled", f"{', '.join(facts.modelled)}; all other times are measured"
        if self.analysis is not None and (said := describe(self.analysis)):
            yield "analysis", said
        yield "steps", self.steps_text()
        yield "switches", ", ".join(switches(facts)) or "none known"
        versions = [
            f"{name} {value}" for name, value in (("torch_npu", facts.torch_npu_version), ("CANN", facts.cann_version)) if value
        ]
        if versions:
            yield "versions", ", ".join(versions)

    def steps_text(self) -> str:
        if not self.steps.height:
            return "none marked"
        spans = (self.steps["end_ns"] - self.steps["start_ns"]) / 1e6
        first, last = self.steps["step"].item(0), self.steps["step"].item(-1)
        numbers = str(first) if first == last else f"{first}–{last}"
        return f"{self.steps.height} ({numbers}), host {spans.mean():.3f} ms on average, {spans.min():.3f} to {spans.max():.3f}"

    def as_dict(self) -> dict[str, Any]:
        # Only here: the few lines of `info` need neither.
        from stepscope.analysis.step_time import device_time
        from stepscope.verdict.engine import verdict

        facts = self.facts
        return {
            "path": self.path,
            "complete": quality.complete(self.quality),
            "rank": facts.rank if facts.rank >= 0 else None,
            "source": self.source,
            "analysis": None if self.analysis is None else self.analysis.state,
            "device_kind": facts.device_kind,
            "devices": list(facts.device_ids),
            "modelled": list(facts.modelled),
            "evidence": dict(facts.evidence),
            "level": facts.level or None,
            "switches": switches(facts),
            "steps": self.steps.select("step", "start_ns", "end_ns", "inflated").to_dicts(),
            "rows": self.rows,
            "source_bytes": self.source_bytes,
            "source_files": self.source_files,
            "device_time": device_time(self.tables).as_dict(),
            "verdict": verdict(self.tables).as_dict(),
            "quality": quality.as_dict(self.quality),
        }


def overview(capture: Capture) -> Overview:
    tables = capture.tables
    files = capture.source_files()
    return Overview(
        path=str(capture.path),
        source=tables.facts.source or capture.source,
        facts=tables.facts,
        steps=tables.steps,
        rows={name: tables[name].height for name in tables.filled() if name not in ("meta", "quality")},
        source_bytes=sum(path.stat().st_size for path in files),
        source_files=len(files),
        quality=tables.quality,
        tables=tables,
        analysis=state_of(capture.path),
    )


def switches(facts: Facts) -> list[str]:
    named = [name for name in SWITCHES if getattr(facts, name)]
    return [*([facts.level] if facts.level else []), *facts.activities, *named]


def same_ranks(overviews: Iterable[Overview]) -> dict[int, list[str]]:
    """Ranks that occur more than once, with their captures."""
    by_rank: dict[int, list[str]] = {}
    for item in overviews:
        if item.facts.rank >= 0:
            by_rank.setdefault(item.facts.rank, []).append(item.path)
    return {rank: paths for rank, paths in by_rank.items() if len(paths) > 1}
