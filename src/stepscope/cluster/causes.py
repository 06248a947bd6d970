# SPDX-License-Identifier: Apache-2.0
"""Why a rank is slow: the replay with one cause set to the peers' middle says how much of the cost that cause explains.

A cause is named only when it (or the best two together) explains at least 80 %; computing is then looked at kernel by kernel.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from stepscope.cluster.digest import Digests
from stepscope.cluster.finding import Finding
from stepscope.cluster.slow import Scenarios, Suspect
from stepscope.tables.cluster import CAUSES

ENOUGH = 0.8
_EXPERT = r"(?i)grouped_?matmul|grouped_?gemm|expert|moe"
SLOWER_CLOCK = 0.98
_PAUSES = {"other", "dispatch", "unexplained"}


def explain(finding: Finding, suspect: Suspect, scenarios: Scenarios, digests: Digests) -> None:
    """Set cause, explained share, shares by cause and evidence of a finding."""
    over = _excess_by_cause(suspect, scenarios)
    top = [int(cause) for cause in np.argsort(-over)[:3] if over[cause] > 0]
    total = float(suspect.cost.mean())
    if total <= 0 or not top:
        return
    sets = [(cause,) for cause in top] + ([tuple(top[:2])] if len(top) > 1 else [])
    left, _ = scenarios.alone([suspect.places] * len(sets), sets)
    shares = [float((suspect.cost - one).mean()) / total for one in left]
    finding.causes = {CAUSES[cause]: shares[place] for place, cause in enumerate(top)}
    best = int(np.argmax(shares[: len(top)]))
    finding.explained = shares[best]
    if shares[best] >= ENOUGH:
        finding.cause = CAUSES[top[best]]
        if top[best] == 0:
            finding.cause, finding.evidence = _computing(suspect, scenarios, digests)
        else:
            per_step = float(over[top[best]]) / len(scenarios.graph.order)
            finding.evidence = [{"what": finding.cause, "ms_per_step_above_peers": round(per_step / 1e6, 4)}]
    elif len(top) > 1 and shares[-1] >= ENOUGH:
        finding.cause, finding.explained = "+".join(CAUSES[cause] for cause in top[:2]), shares[-1]


def is_mere_pause(finding: Finding, suspect: Suspect, scenarios: Scenarios) -> bool:
    """Whether a rank stood still once and nothing says why: every host does now and then, unless it is as long as a step."""
    unknown = finding.cause.split("+")[0] in _PAUSES  # of two causes, the one with most time
    return finding.pattern == "one_off" and unknown and float(suspect.cost.max()) < scenarios.step_ns


def _excess_by_cause(suspect: Suspect, scenarios: Scenarios) -> np.ndarray[Any, np.dtype[np.float64]]:
    over = np.zeros(len(CAUSES))
    for number, variant in enumerate(scenarios.graph.variants):
        rows = np.isin(variant.rank, suspect.places)
        over += (variant.work[:, rows] - scenarios.ideal.causes[number][:, rows]).sum((0, 1))
    return over


def _computing(suspect: Suspect, scenarios: Scenarios, digests: Digests) -> tuple[str, list[dict[str, Any]]]:
    ranks = scenarios.graph.ranks
    rank = ranks[suspect.places[0]]
    role = scenarios.graph.variants[0].role
    kernels = digests["cluster_kernels"]
    if scenarios.ideal.pace[suspect.places].min() > 1:
        pace = float(np.median(scenarios.ideal.pace[suspect.places]))
        evidence: list[dict[str, Any]] = [{"what": "all kernels", "times_slower": round(pace, 4)}]
        clock = frequencies(digests)
        own, usual = clock.get(rank), _middle([value for other, value in clock.items() if other != rank])
        if own is not None and usual is not None and own < SLOWER_CLOCK * usual:
            evidence.append({"what": "frequency", "mhz": round(own, 1), "peers_mhz": round(usual, 1)})
            return "frequency", evidence
        return "compute_all_kernels", evidence
    peers = [ranks[place] for place in np.flatnonzero(role == role[suspect.places[0]]) if place not in suspect.places] or [
        other for other in ranks if other != rank
    ]
    mine = kernels.filter(pl.col("rank") == rank)
    if not mine.height:
        return "compute", []
    theirs = kernels.filter(pl.col("rank").is_in(peers)).with_columns(mean=pl.col("total_ns") / pl.col("count"))
    usual_of = theirs.group_by("name", "shapes").agg(
        pl.col("mean").median(), pl.col("count").median().alias("usual_count"), pl.len().alias("on")
    )
    both = mine.join(usual_of, on=["name", "shapes"], how="left", nulls_equal=True)
    same = (pl.col("on") > 0) & ((pl.col("count") - pl.col("usual_count")).abs() <= 0.01 * pl.col("usual_count"))
    slower = pl.when(same.fill_null(False)).then(pl.col("total_ns") - pl.col("mean") * pl.col("count")).otherwise(0.0)
    more = pl.when(same.fill_null(False)).then(0.0).otherwise(
        pl.col("total_ns") - pl.col("mean").fill_null(0.0) * pl.col("usual_count").fill_null(0.0)
    )  # fmt: skip
    both = both.with_columns(slower=slower, more=more).sort(["slower", "name"], descending=[True, False])
    # What the peers run and this rank does not, or under other shapes, is work that it was spared.
    absent = usual_of.join(mine, on=["name", "shapes"], how="anti", nulls_equal=True)
    typical = absent.filter(pl.col("on") * 2 > len(peers))
    spared = float((typical["mean"] * typical["usual_count"]).sum()) if typical.height else 0.0
    slow_sum = float(both["slower"].clip(lower_bound=0).sum())
    more_sum = float(both["more"].sum()) - spared
    evidence = [
        {"what": "kernel", "name": row["name"], "shapes": row["shapes"], "ms_above_peers": round(row["slower"] / 1e6, 4)}
        for row in both.head(3).iter_rows(named=True)
        if row["slower"] > 0
    ]
    if more_sum > slow_sum:
        extra = both.sort(["more", "name"], descending=[True, False])
        evidence = [
            {
                "what": "more work",
                "name": row["name"],
                "shapes": row["shapes"],
                "count": row["count"],
                "peers_count": row["usual_count"],
            }
            for row in extra.head(3).iter_rows(named=True)
        ]
        worst = extra.filter(pl.col("more") > 0)
        expert = worst.filter(pl.col("name").str.contains(_EXPERT))["more"].sum()
        if worst.height and float(expert or 0) >= 0.5 * float(worst["more"].sum() or 0):
            return "expert_imbalance", evidence
        return "more_work", evidence
    if slow_sum > 0 and float(both["slower"].head(3).clip(lower_bound=0).sum()) >= ENOUGH * slow_sum:
        return "kernel", evidence
    return "compute", evidence


def frequencies(digests: Digests) -> dict[int, float]:
    """Of the cores of each rank of which it is known, MHz."""
    known = digests["cluster_steps"].drop_nulls("frequency_mhz").group_by("rank").agg(pl.col("frequency_mhz").mean())
    return dict(known.sort("rank").iter_rows())


def _middle(values: list[float]) -> float | None:
    return float(np.median(values)) if values else None
