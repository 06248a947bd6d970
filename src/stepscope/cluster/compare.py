# SPDX-License-Identifier: Apache-2.0
"""Two runs beside each other: where the time of a step went, on which ranks, and which findings are new or gone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from stepscope.cluster.analyse import Analysis
from stepscope.cluster.finding import Finding

# Computing, communication that nothing hides and free time are the whole step; the others are parts of these.
PARTS = {"computing": "computing_ns", "communication": "exposed_ns", "free": "free_ns", "wait": "wait_ns", "bubble": "bubble_ns"}
MOST_RANKS = 64


def compare(before: Analysis, after: Analysis, path: str) -> dict[str, Any]:
    """What changed between two runs, times in ms per step; nothing when one of them has no step to compare.

    Args:
        path: of the run before.
    """
    if not len(before.step_ns) or not len(after.step_ns):
        return {}
    old, new = (float(np.median(one.step_ns)) / 1e6 for one in (before, after))
    then, now = _by_rank(before), _by_rank(after)
    both = then.join(now, on="rank", suffix="_after").sort("rank")
    return {
        "path": path,
        "before": round(old, 6),
        "after": round(new, 6),
        "change": round(new / old - 1, 6),
        "parts": {part: _change(_mean(then, part), _mean(now, part)) for part in PARTS},
        "ranks": _ranks(both),
        "ranks_only_before": sorted(set(then["rank"]) - set(now["rank"])),
        "ranks_only_after": sorted(set(now["rank"]) - set(then["rank"])),
        "findings": _findings(before.findings, after.findings),
    }


def _by_rank(analysis: Analysis) -> pl.DataFrame:
    """Mean of each part over the steps of a rank that are compared, ms."""
    steps = analysis.digests["cluster_steps"]
    if analysis.graph is not None:
        steps = steps.filter(pl.col("step").is_in(analysis.graph.steps) & pl.col("rank").is_in(analysis.graph.ranks))
    return steps.group_by("rank").agg((pl.col(column).mean() / 1e6).alias(part) for part, column in PARTS.items()).sort("rank")


def _mean(frame: pl.DataFrame, part: str) -> float | None:
    value = frame[part].mean()
    return None if value is None else float(value)  # type: ignore[arg-type]


def _change(before: float | None, after: float | None) -> dict[str, float | None]:
    change = None if before is None or after is None else round(after - before, 6)
    return {
        "before": None if before is None else round(before, 6),
        "after": None if after is None else round(after, 6),
        "change": change,
    }


def _ranks(both: pl.DataFrame) -> list[dict[str, Any]]:
    """Parts of the ranks in both runs; of many ranks those whose own time, which is not waiting for others, changed most."""
    own = (pl.col("computing_after") + pl.col("free_after") - pl.col("computing") - pl.col("free")).fill_null(0.0)
    most = both.with_columns(own=own).sort([pl.col("own").abs(), "rank"], descending=[True, False]).head(MOST_RANKS)
    return [
        {
            "rank": row["rank"],
            "own_change": round(row["own"], 6),
            **{part: _change(row[part], row[f"{part}_after"]) for part in PARTS},
        }
        for row in most.iter_rows(named=True)
    ]


def _findings(before: Sequence[Finding], after: Sequence[Finding]) -> list[dict[str, Any]]:
    """Findings of both runs: new, gone, or in both."""
    then, now = ({(one.kind, tuple(one.ranks)): one for one in findings} for findings in (before, after))
    rows = []
    for key in [*now, *(key for key in then if key not in now)]:
        old, new = then.get(key), now.get(key)
        known = new or old
        assert known is not None
        rows.append(
            {
                "state": "kept" if old and new else "new" if new else "gone",
                "kind": known.kind,
                "ranks": known.ranks,
                "host": known.host,
                "stage": known.stage,
                "group_name": known.group_name or None,
                "cause": known.cause,
                "cost_ms_before": round(old.cost_ns / 1e6, 6) if old else None,
                "cost_ms_after": round(new.cost_ns / 1e6, 6) if new else None,
            }
        )
    return rows
