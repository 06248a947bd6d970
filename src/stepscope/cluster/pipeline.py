# SPDX-License-Identifier: Apache-2.0
"""Stages of a pipeline that have more to do than the others, and imbalance that nobody is to blame for."""

from __future__ import annotations

import numpy as np

from stepscope.analysis.partition.spans import Ints
from stepscope.cluster.finding import Finding
from stepscope.cluster.layout import Layout
from stepscope.cluster.slow import Ranking, Scenarios
from stepscope.cluster.whatif.replay import Floats

UNEVEN = 0.05  # a stage counts as uneven when its work is this much above that of the others
STAGE_SHARE = 0.01  # of the step
SHARE = 0.02


def stage_imbalance(scenarios: Scenarios, layout: Layout) -> list[Finding]:
    """What the stage with most work costs against the middle of the others, and what is saved by spreading its work evenly."""
    graph, ideal = scenarios.graph, scenarios.ideal
    stage = np.array([layout.stage.get(rank, -1) for rank in graph.ranks])
    if not layout.stage or (stage < 0).any():
        return []
    count = int(stage.max()) + 1
    if count < 2 or len(np.unique(stage)) < count:
        return []
    spent = [_by_stage(variant.rank, ideal.total[number], stage, count) for number, variant in enumerate(graph.variants)]
    total = np.concatenate(spent).sum(0)
    worst = int(total.argmax())
    others = np.arange(count) != worst
    if total[worst] < (1 + UNEVEN) * np.median(total[others]):
        return []
    healthy, even = [], []
    for number, variant in enumerate(graph.variants):
        factor = np.ones_like(spent[number])
        factor[:, worst] = np.median(spent[number][:, others], axis=1) / np.maximum(spent[number][:, worst], 1.0)
        healthy.append(ideal.total[number] * np.minimum(factor, 1.0)[:, stage[variant.rank]])
        mean = spent[number].mean(1, keepdims=True) / np.maximum(spent[number], 1.0)
        even.append(ideal.total[number] * mean[:, stage[variant.rank]])
    cost = float((scenarios.ideal_steps - scenarios.with_work(healthy)).mean())
    saving = float((scenarios.ideal_steps - scenarios.with_work(even)).mean())
    if cost < STAGE_SHARE * scenarios.step_ns:
        return []
    steps = len(graph.order)
    return [
        Finding(
            "pipeline_imbalance",
            [rank for rank, one in zip(graph.ranks, stage, strict=True) if one == worst],
            cost,
            cost / scenarios.step_ns,
            saving,
            stage=worst,
            steps=graph.steps,
            cause="pipeline_imbalance",
            explained=1.0,
            evidence=[
                {"what": "stage", "stage": one, "work_ms": round(float(total[one]) / steps / 1e6, 4)} for one in range(count)
            ],
        )
    ]


def _by_stage(rank: Ints, total: Floats, stage: Ints, count: int) -> Floats:
    """Middle work of the ranks of a stage: steps × stages."""
    by_rank = np.stack([np.bincount(rank, one, len(stage)) for one in total])
    return np.stack([np.median(by_rank[:, stage == one], axis=1) for one in range(count)], 1)


def moving_imbalance(scenarios: Scenarios, ranking: Ranking, explained_ns: float) -> list[Finding]:
    """Imbalance that moves from rank to rank: said once for the run."""
    lost = float((scenarios.actual_steps - scenarios.ideal_steps).mean()) - explained_ns
    if len(scenarios.graph.order) < 2 or lost < SHARE * scenarios.step_ns or lost < 6 * ranking.noise_ns:
        return []
    return [
        Finding(
            "imbalance", [], lost, lost / scenarios.step_ns, lost, steps=scenarios.graph.steps, cause="imbalance", explained=1.0
        )
    ]
