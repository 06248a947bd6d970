# SPDX-License-Identifier: Apache-2.0
"""A capture in a few lines of words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import polars as pl

from stepscope.analysis import quality
from stepscope.analysis.operators import operator_summary
from stepscope.analysis.step_time import device_time
from stepscope.tables import Tables
from stepscope.verdict.finding import percent
from stepscope.verdict.rules import verdict


def summary(tables: Tables) -> pl.DataFrame:
    """What a person wants to know first: steps, heaviest operators, device, memory, findings, quality. Columns: what, finding."""
    found = [
        *_about_recording(tables),
        *_about_steps(tables),
        *_about_operators(tables),
        *_about_device(tables),
        *_about_memory(tables),
        *_about_findings(tables),
        *_about_quality(tables),
    ]
    return pl.DataFrame(found, schema={"what": pl.String, "finding": pl.String}, orient="row")


def _about_recording(tables: Tables) -> Iterable[tuple[str, str]]:
    if headline := quality.headline(tables.quality):
        yield "recording", headline


def _about_steps(tables: Tables) -> Iterable[tuple[str, str]]:
    steady = tables.steps.filter(~pl.col("inflated").fill_null(False))
    if not steady.height:
        return
    spans = (steady["end_ns"] - steady["start_ns"]) / 1e6
    left_out = tables.steps.height - steady.height
    aside = f" ({left_out} inflated ones left out)" if left_out else ""
    yield "step", f"{spans.mean():.1f} ms on average over {steady.height} steps{aside}"
    slowest = int(spans.arg_max() or 0)
    yield (
        "slowest step",
        f"#{steady['step'][slowest]}: {spans[slowest]:.1f} ms, {spans[slowest] / _number(spans.median()):.2f}× the median",
    )


def _about_operators(tables: Tables) -> Iterable[tuple[str, str]]:
    summary = operator_summary(tables)
    if not summary.height:
        return
    for side, label in (("device", "most device time"), ("host", "most host time")):
        if _number(summary[f"{side}_self_ns"].sum()):
            row = summary.sort(f"{side}_self_ns", descending=True).row(0, named=True)
            yield label, f"{row['name']}: {row[f'{side}_share']:.0%} in {row['calls']:,} calls"


def _about_device(tables: Tables) -> Iterable[tuple[str, str]]:
    took = device_time(tables)
    if took.whole_ns:
        parts = {"computing": took.computing_ns, "exposed communication": took.exposed_ns, "free": took.free_ns}
        yield "device", ", ".join(f"{name} {percent(took.share(part))}" for name, part in parts.items())


def _about_findings(tables: Tables) -> Iterable[tuple[str, str]]:
    for finding in verdict(tables).findings:
        if finding.severity != "info":
            yield finding.severity, f"{finding.title}; {finding.action}"


def _about_memory(tables: Tables) -> Iterable[tuple[str, str]]:
    peaks = tables.memory_events.drop_nulls("total_allocated").group_by("device_type").agg(pl.col("total_allocated").max())
    for kind, peak in peaks.sort("total_allocated", descending=True).iter_rows():
        size = f"{peak / 2**20:,.1f} MiB" if peak >= 2**20 else f"{peak / 2**10:,.1f} KiB"
        yield f"memory ({kind})", f"peak {size} allocated"
    if tables.gc_pauses.height:
        pauses = (tables.gc_pauses["end_ns"] - tables.gc_pauses["start_ns"]) / 1e6
        yield "garbage collection", f"{tables.gc_pauses.height} pauses, {pauses.sum():.1f} ms"


def _about_quality(tables: Tables) -> Iterable[tuple[str, str]]:
    first = next((one for one in quality.occurrences(tables.quality) if one.issue.severity == "loss"), None)
    why = f": {first.sentence()}; see `stepscope info`" if first else ""
    yield "quality", f"{quality.summary(tables.quality)}{why}"


def _number(value: Any) -> float:
    return float(value or 0)
