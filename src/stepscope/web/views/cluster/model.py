# SPDX-License-Identifier: Apache-2.0
"""The pipeline over time, and what the step would take if some ranks or causes were healthy."""

from __future__ import annotations

from typing import Any

import polars as pl

from stepscope.cluster.drawing import pipeline_step
from stepscope.cluster.slow import Scenarios
from stepscope.tables.cluster import CAUSES
from stepscope.web.parameters import Query
from stepscope.web.problems import Problem, bad_parameter
from stepscope.web.run_analysis import RunAnalysis


def pipeline(run: RunAnalysis, query: Query) -> dict[str, Any]:
    """Stages of one step over time, each shown by one rank."""
    analysis = run.analysis
    stage = {rank: number for rank, number in analysis.layout.stage.items() if rank in set(analysis.digests.ranks)}
    if not stage:
        raise Problem(404, "missing_data", "no pipeline in this run", hint="stages are known from sends and receives between ranks")
    steps = sorted(analysis.digests["cluster_steps"]["step"].drop_nulls().unique().to_list())
    step = int(query.choice("step", list(map(str, steps)), str(analysis.graph.steps[-1] if analysis.graph else steps[-1])))
    pieces = run.segments.filter(pl.col("step") == step)
    drawn = pipeline_step(analysis.digests, pieces, analysis.clocks, stage, step, query.numbers("ranks") or ())
    spans = drawn.spans
    base = int(spans["start_ns"].min()) if spans.height else 0  # type: ignore[arg-type]
    rows = []
    for place, rank in enumerate(drawn.ranks):
        own = spans.filter(pl.col("rank") == rank).with_columns(pl.col("start_ns", "end_ns") - base)
        worker, span = run.workers.get(rank, (None, None))
        columns = {"kind": "kind", "micro": "micro", "start": "start_ns", "end": "end_ns"}
        rows.append(
            {
                "stage": stage[rank], "rank": rank, "worker": worker, "span": span,
                "idle": round(drawn.idle[place], 6), "bubble": round(drawn.bubble[place], 6),
                **{name: own[column].to_list() for name, column in columns.items()},
            }
        )  # fmt: skip
    length = int(spans["end_ns"].max()) - base if spans.height else 0  # type: ignore[arg-type]
    return {
        "steps": steps, "step": step, "length_ns": length, "micro": drawn.micro, "ideal_bubble": drawn.ideal, "stages": rows,
        "idle": _mean(drawn.idle), "bubble": _mean(drawn.bubble),
    }  # fmt: skip


def _mean(shares: list[float]) -> float | None:
    return round(sum(shares) / len(shares), 6) if shares else None


def _scenarios(run: RunAnalysis) -> Scenarios:
    if run.analysis.scenarios is None or run.analysis.ranking is None:
        problems = [problem.kind for problem in run.analysis.problems]
        raise Problem(
            404, "missing_data", "this run cannot be replayed", detail=", ".join(problems),
            hint="see problems in the answer of cluster",
        )  # fmt: skip
    return run.analysis.scenarios


def what_if(run: RunAnalysis, query: Query) -> dict[str, Any]:
    """The mean step if the work of some ranks (for some causes), or the transfers of some findings, were as on their peers."""
    scenarios = _scenarios(run)
    graph = scenarios.graph
    place_of = {rank: place for place, rank in enumerate(graph.ranks)}
    chosen = query.numbers("ranks") or []
    unknown = [rank for rank in chosen if rank not in place_of]
    if unknown:
        raise bad_parameter("ranks", f"ranks of this run; not {unknown[0]}")
    causes = query.texts("causes")
    if not set(causes) <= set(CAUSES):
        raise bad_parameter("causes", f"of {', '.join(CAUSES)}")
    ranks = chosen if query.optional("ranks") else list(graph.ranks) if causes else []
    now = scenarios.actual_steps
    then = scenarios.repaired(
        [place_of[rank] for rank in ranks], [CAUSES.index(cause) for cause in causes], query.flag("transfers")
    )
    return {
        "now_ms": round(float(now.mean()) / 1e6, 6), "then_ms": round(float(then.mean()) / 1e6, 6),
        "saved_ms": round(float((now - then).mean()) / 1e6, 6), "error": run.analysis.replay_error,
        "ranks": ranks, "causes": causes,
        "steps": [
            {"step": step, "now_ms": round(float(one) / 1e6, 6), "then_ms": round(float(other) / 1e6, 6)}
            for step, one, other in zip(graph.steps, now, then, strict=True)
        ],
    }  # fmt: skip
