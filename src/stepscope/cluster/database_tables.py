# SPDX-License-Identifier: Apache-2.0
"""What we found, as tables of a run's database; other readers ignore them."""

from __future__ import annotations

from collections.abc import Sequence

import orjson
import polars as pl

from stepscope.cluster.analyse import Analysis
from stepscope.export.cluster.database import table
from stepscope.render.sqlite_table import DbTable

_FINDINGS = table(
    "StepscopeFindings",
    "kind:T ranks:T host:T groupName:T stage:I costMs:R share:R savingMs:R pattern:T steps:T cause:T explained:R confidence:T",
)
_CLOCKS = table("StepscopeClocks", "rankId:I offsetNs:I drift:R sigmaNs:I refused:T")
_MATCHES = table("StepscopeMatches", "rankId:I step:I callIndex:I call:I groupRanks:T")


def own_tables(analysis: Analysis) -> dict[DbTable, pl.DataFrame]:
    """Findings, clocks, and which calls are the same."""
    findings = [one.as_dict() for one in analysis.findings]
    shown = [
        (
            one["kind"], orjson.dumps(one["ranks"]).decode(), one["host"], one["group_name"], one["stage"], one["cost_ms"],
            one["share"], one["saving_ms"], one["pattern"], orjson.dumps(one["steps"]).decode(), one["cause"], one["explained"],
            one["confidence"],
        )
        for one in findings
    ]  # fmt: skip
    clocks = [
        (row["rank"], row["offset_ns"], row["drift"], row["sigma_ns"], row["reason"] or None) for row in analysis.clocks.as_rows()
    ]
    members = [str(tuple(group.members)) for group in analysis.matches.groups]
    rows = analysis.matches.rows.drop_nulls("call").select(
        pl.col("rank").alias("rankId"), "step", pl.col("index").alias("callIndex").cast(pl.Int64), pl.col("call").cast(pl.Int64),
        pl.Series("groupRanks", members, dtype=pl.String).gather(analysis.matches.rows.drop_nulls("call")["gid"]),
    )  # fmt: skip
    return {_FINDINGS: _frame(_FINDINGS, shown), _CLOCKS: _frame(_CLOCKS, clocks), _MATCHES: rows}


def _frame(of: DbTable, rows: Sequence[tuple[object, ...]]) -> pl.DataFrame:
    types = {"T": pl.String, "R": pl.Float64, "I": pl.Int64}
    return pl.DataFrame(rows, schema={column.name: types[column.kind] for column in of.columns}, orient="row", strict=False)
