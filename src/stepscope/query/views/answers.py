# SPDX-License-Identifier: Apache-2.0
"""What the verdict found, and what each capture says about itself, as rows."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from stepscope.analysis.quality import complete
from stepscope.query.views.columns import FACTS, FINDINGS
from stepscope.query.views.view import RankTables, View, per_rank
from stepscope.verdict.engine import verdict


def _findings(ranks: Sequence[RankTables]) -> list[pl.DataFrame]:
    found = verdict([rank.tables for rank in ranks]).findings
    numbers = {rank.rank: number for number, rank in reversed(list(enumerate(ranks)))}
    rows: list[list[tuple[object, ...]]] = [[] for _ in ranks]
    for one in found:
        place = one.where[0] if one.where else None
        look = next((evidence for evidence in one.evidence if evidence.start_ns is not None), None)
        rows[numbers.get(one.rank, 0)].append(
            (
                one.id,
                one.rule,
                one.family,
                one.severity,
                one.confidence,
                one.saved_ms,
                one.share,
                one.title,
                one.next,
                place.op or None if place else None,
                place.module or None if place else None,
                place.stack or None if place else None,
                look.start_ns if look else None,
                look.end_ns if look else None,
            )
        )
    return [pl.DataFrame(part, schema=FINDINGS.schema, orient="row") for part in rows]


def _facts(rank: RankTables) -> pl.DataFrame:
    tables, known = rank.tables, rank.tables.facts
    starts = [tables[name]["start_ns"].min() for name in ("steps", "ops", "kernels")]
    ends = [tables[name]["end_ns"].max() for name in ("steps", "ops", "kernels")]
    row = (
        rank.path, known.source, known.framework, tables.device_kind, ", ".join(sorted(set(known.device_names.values()))),
        known.host_name, known.level, tables.steps.height, tables.ops.height, tables.kernels.height,
        min((time for time in starts if isinstance(time, int)), default=None),
        max((time for time in ends if isinstance(time, int)), default=None),
        complete(tables.quality),
    )  # fmt: skip
    return pl.DataFrame([row], schema=FACTS.schema, orient="row")


ANSWER_VIEWS = (
    View(FINDINGS, _findings, "SELECT rank, severity, saved_ms, title FROM findings ORDER BY saved_ms DESC"),
    View(FACTS, per_rank(_facts), "SELECT rank, device_kind, steps, ops, kernels, complete FROM facts ORDER BY rank"),
)
