# SPDX-License-Identifier: Apache-2.0
"""Rules that need several ranks: who is waited for, and whose work is more than others'."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import polars as pl

from stepscope.analysis.communication.workers import matched_collectives
from stepscope.verdict.case import Case
from stepscope.verdict.finding import Finding, Lack


def across_ranks(cases: Sequence[Case], rules: Collection[str] | None) -> list[Finding]:
    """Findings about the run as a whole."""
    found = []
    if rules is None or "rank-imbalance" in rules:
        found += _imbalance(cases)
    if (rules is None or "peer-wait" in rules) and not any(case.tables.transfers.height for case in cases):
        found += _late_rank(cases)
    return found


def clocks(cases: Sequence[Case]) -> dict[int, Lack]:
    """Ranks whose clock is apart from that of the first, by their place: a collective ends on all ranks of its group at once."""
    key = ["op_type", "group", "turn"]
    ends = []
    for case in cases:
        rows = case.tables.collectives.filter(~pl.col("op_type").cast(pl.String).str.contains("(?i)send|rec|p2p").fill_null(False))
        rows = rows.select(pl.col("op_type", "group").cast(pl.String), "end_ns")
        ends.append(rows.with_columns(turn=pl.int_range(pl.len()).over("op_type", "group")))
    found = {}
    for place, rows in enumerate(ends[1:], 1):
        both = rows.join(ends[0], on=key, how="inner", nulls_equal=True)
        apart = (both["end_ns"] - both["end_ns_right"]).median()
        if isinstance(apart, float) and abs(apart) / 1e6 > cases[place].limit("clocks", "apart_ms"):
            found[place] = Lack("clocks", "clocks", {"ms": abs(apart) / 1e6}, limits=True)
    return found


def _finding(
    case: Case, rule: str, saved_ns: float, share: float, rank: int | None, params: dict[str, object], variant: str = ""
) -> list[Finding]:
    levels = [level for level in ("high", "medium", "low") if share >= case.limit("severity", level)]
    if not levels:
        return []
    return [
        Finding(rule, "communication", levels[0], "medium", saved_ns, share, how="parts", rank=rank, params=params, variant=variant)
    ]


def _imbalance(cases: Sequence[Case]) -> list[Finding]:
    computing = np.array([case.parts.sum_ns("computing") / max(case.count, 1) for case in cases])
    if not computing.any():
        return []
    spread = float((computing.max() - computing.min()) / computing.mean())
    if spread <= cases[0].limit("rank-imbalance", "spread"):
        return []
    most = int(computing.argmax())
    case = cases[most]
    saved = float(computing[most] - np.median(computing))
    rank = case.facts.rank if case.facts.rank >= 0 else most
    params: dict[str, object] = {
        "rank": rank,
        "spread": spread,
        "most_ms": float(computing[most]) / 1e6,
        "median_ms": float(np.median(computing)) / 1e6,
    }
    return _finding(case, "rank-imbalance", saved, saved * case.count / max(case.total_ns, 1), rank, params)


def _late_rank(cases: Sequence[Case]) -> list[Finding]:
    """Who starts the collectives last: the others wait for it from their own start on."""
    matched = matched_collectives({str(number): case.tables for number, case in enumerate(cases)})
    waits = {int(key): float((rows["length"] - rows["shortest"]).sum()) * 1000 for key, rows in matched.items()}
    if len(waits) < 2:
        return []
    late = min(waits, key=waits.__getitem__)
    other = float(np.median([value for key, value in waits.items() if key != late]))
    case = cases[late]
    lost = max(other - waits[late], 0.0) / max(case.count, 1)
    rank = case.facts.rank if case.facts.rank >= 0 else late
    params: dict[str, object] = {"late_rank": rank, "wait_ms": lost / 1e6}
    return _finding(case, "peer-wait", lost, lost * case.count / max(case.total_ns, 1), rank, params, "ranks")
