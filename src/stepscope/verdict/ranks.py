# SPDX-License-Identifier: Apache-2.0
"""Rules that need several ranks: who is waited for, and whose work is more than others'."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.analysis.partition.spans import EMPTY, Spans, minus, spans_of
from stepscope.analysis.replay.joined import BETWEEN_TWO
from stepscope.verdict.case import Case
from stepscope.verdict.finding import Finding, Lack
from stepscope.verdict.settings import severity_of


def across_ranks(cases: Sequence[Case], rules: Collection[str] | None, waits: PeerWaits) -> list[Finding]:
    """Findings about the run as a whole."""
    found = []
    if rules is None or "rank-imbalance" in rules:
        found += _imbalance(cases)
    if rules is None or "peer-wait" in rules:
        found += _late_rank(cases, waits)
    return found


@dataclass(frozen=True)
class PeerWaits:
    """How long ranks stood inside collectives that others had not reached yet, with nothing computed meanwhile; ns.

    Attributes:
        by_late: [rank that waits, rank that came last], places among the ranks.
        spans: when each rank stood so, whether or not it computed.
    """

    by_late: npt.NDArray[np.int64]
    spans: list[Spans]


def peer_waits(cases: Sequence[Case]) -> PeerWaits:
    """Waits by the collectives that the ranks have in common: who stays in one the shortest came last.

    Captures with transfers tell it themselves, also about ranks that were not recorded: then nothing is said here.
    """
    count = len(cases)
    found = PeerWaits(np.zeros((count, count), dtype=np.int64), [EMPTY] * count)
    if count < 2 or any(case.tables.transfers.height for case in cases):
        return found
    key = ["op_type", "group", "turn"]
    every = pl.concat([rows.with_columns(place=pl.lit(place)) for place, rows in enumerate(map(_in_turn, cases))])
    length = pl.col("end_ns") - pl.col("start_ns")
    every = every.with_columns(
        wait=length - length.min().over(key), late=pl.col("place").sort_by(length).first().over(key), ranks=pl.len().over(key)
    ).filter((pl.col("ranks") > 1) & (pl.col("wait") > 0))
    every = every.select("place", "late", "start_ns", end_ns=pl.col("start_ns") + pl.col("wait"))
    for place, case in enumerate(cases):
        rows = every.filter(pl.col("place") == place)
        found.spans[place] = spans_of(rows)
        for late in rows["late"].unique().to_list():
            idle = minus(spans_of(rows.filter(pl.col("late") == late)), case.model.busy[0])
            found.by_late[place, late] = idle.within(case.model.windows[:1], case.model.windows[-1:])[0]
    return found


def _in_turn(case: Case) -> pl.DataFrame:
    """Collectives of more than two ranks with their turn among those of their type and group."""
    rows = case.tables.collectives.filter(~pl.col("op_type").cast(pl.String).str.contains(BETWEEN_TWO).fill_null(False))
    rows = rows.select(pl.col("op_type", "group").cast(pl.String), "start_ns", "end_ns")
    return rows.with_columns(turn=pl.int_range(pl.len()).over("op_type", "group"))


def clocks(cases: Sequence[Case]) -> dict[int, Lack]:
    """Ranks whose clock is apart from that of the first, by their place: a collective ends on all ranks of its group at once."""
    key = ["op_type", "group", "turn"]
    ends = [_in_turn(case).drop("start_ns") for case in cases]
    found = {}
    for place, rows in enumerate(ends[1:], 1):
        both = rows.join(ends[0], on=key, how="inner", nulls_equal=True)
        apart = (both["end_ns"] - both["end_ns_right"]).median()
        if isinstance(apart, float) and abs(apart) / 1e6 > cases[place].limit("clocks", "apart_ms"):
            found[place] = Lack("clocks", "clocks", {"ms": abs(apart) / 1e6}, limits=True)
    return found


def _finding(
    case: Case, rule: str, saved_ns: float, rank: int | None, params: dict[str, object], variant: str = ""
) -> list[Finding]:
    severity = severity_of(case.weight(saved_ns * case.count), case.limits)
    if not severity:
        return []
    share = case.share(saved_ns * case.count)
    return [
        Finding(rule, "communication", severity, "medium", saved_ns, share, how="parts", rank=rank, params=params, variant=variant)
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
    return _finding(case, "rank-imbalance", saved, rank, params)


def _late_rank(cases: Sequence[Case], waits: PeerWaits) -> list[Finding]:
    """The rank that costs the others most: they wait for it, and have nothing to compute meanwhile."""
    per_step = waits.by_late / np.array([[max(case.count, 1)] for case in cases])
    lost = [float(np.median(np.delete(per_step[:, late], late))) for late in range(len(cases))]
    late = int(np.argmax(lost))
    case = cases[late]
    rank = case.facts.rank if case.facts.rank >= 0 else late
    params: dict[str, object] = {"late_rank": rank, "wait_ms": lost[late] / 1e6}
    return _finding(case, "peer-wait", lost[late], rank, params, "ranks")
