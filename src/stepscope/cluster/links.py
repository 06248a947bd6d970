# SPDX-License-Identifier: Apache-2.0
"""Slow links and slow groups: transfers that take longer than those of the same operator, size and kind of group elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stepscope.analysis.partition.spans import Ints
from stepscope.cluster.finding import Finding
from stepscope.cluster.match import Group
from stepscope.cluster.slow import SHARE, Scenarios, pattern_of

RATIO = 1.3  # of the usual transfer
MOST = 4  # groups that are replayed
SAME = 1.15  # a group whose ratio is this close to normal is healthy


def slow_links(scenarios: Scenarios, groups: Sequence[Group]) -> list[Finding]:
    """Groups and pairs whose transfers cost the run time, most expensive first."""
    graph, ideal = scenarios.graph, scenarios.ideal
    calls_of: dict[object, list[list[int]]] = {}
    for number, variant in enumerate(graph.variants):
        for call in range(variant.program.calls):
            if not variant.complete[call]:
                continue
            pair = variant.pairs[call]
            name: object = tuple(sorted(pair)) if pair else int(variant.gid[call])
            calls_of.setdefault(name, [[] for _ in graph.variants])[number].append(call)
    sets = {name: [np.array(calls, dtype=np.int64) for calls in lists] for name, lists in calls_of.items()}
    over = {name: _over(scenarios, calls) for name, calls in sets.items()}
    ratios = {name: _ratio(scenarios, calls) for name, calls in sets.items()}
    slow = [name for name in sets if ratios[name] > RATIO and over[name] > 0]
    slow.sort(key=lambda name: (-over[name], str(name)))
    found = []
    if not slow:
        return []
    costs = scenarios.with_transfers([sets[name] for name in slow[:MOST]])
    for name, cost in zip(slow[:MOST], costs, strict=True):
        value = float(cost.mean())
        if value < SHARE * scenarios.step_ns:
            continue
        members = list(name) if isinstance(name, tuple) else list(groups[int(name)].members)  # type: ignore[call-overload]
        pattern, every, steps = pattern_of(cost, graph.steps)
        found.append(
            Finding(
                "slow_link" if isinstance(name, tuple) or len(members) == 2 else "slow_group",
                members,
                value,
                value / scenarios.step_ns,
                scenarios.saving_transfers(sets[name]),
                link=members if len(members) == 2 else [],
                group=members,
                group_name="" if isinstance(name, tuple) else groups[int(name)].name,  # type: ignore[call-overload]
                pattern=pattern,
                every=every,
                steps=steps,
                cause="link",
                explained=1.0,
                confidence="high" if len(set(ideal.transfer_class[0].tolist())) > 1 else "medium",
                evidence=[{"what": "transfer", "times_slower": round(ratios[name], 3)}],
            )
        )
    return sorted(_merged(found, slow, sets, ratios, groups, scenarios), key=lambda one: (-one.cost_ns, one.ranks))


def _merged(
    found: list[Finding],
    slow: list[object],
    sets: dict[object, list[Ints]],
    ratios: dict[object, float],
    groups: Sequence[Group],
    scenarios: Scenarios,
) -> list[Finding]:
    """Several slow groups with one rank or one pair in common are one slow link."""
    if len(found) < 2:
        return found
    members = [set(one.ranks) for one in found]
    common = set.intersection(*members)
    if not 1 <= len(common) <= 2 or len(common) == max(map(len, members)):
        return found
    # Healthy groups that hold the same ranks (and differ in kind) would contradict it.
    for name in sets:
        ranks = set(name) if isinstance(name, tuple) else set(groups[int(name)].members)  # type: ignore[call-overload]
        if name not in slow and common <= ranks and ratios[name] < SAME and len(common) == 2:
            return found
    together = [
        np.unique(np.concatenate([sets[name][number] for name in slow[:MOST]])) for number in range(len(scenarios.graph.variants))
    ]
    cost = scenarios.with_transfers([together])[0]
    best = found[0]
    pattern, every, steps = pattern_of(cost, scenarios.graph.steps)
    value = float(cost.mean())
    one = Finding(
        "slow_link",
        sorted(common),
        value,
        value / scenarios.step_ns,
        scenarios.saving_transfers(together),
        link=sorted(common),
        group=None,
        pattern=pattern,
        every=every,
        steps=steps,
        cause="link",
        explained=1.0,
        confidence=best.confidence,
        evidence=[row for each in found for row in each.evidence],
    )
    return [one]


def _over(scenarios: Scenarios, calls: Sequence[Ints]) -> float:
    spent = [
        (variant.transfer[:, calls[number]] - scenarios.ideal.transfer[number][:, calls[number]]).sum(1)
        for number, variant in enumerate(scenarios.graph.variants)
    ]
    return float(np.concatenate(spent).mean())


def _ratio(scenarios: Scenarios, calls: Sequence[Ints]) -> float:
    """How many times longer than usual, by time: many small calls do not hide a few large ones."""
    usual = sum(float(scenarios.ideal.transfer[number][:, calls[number]].sum()) for number in range(len(calls)))
    spent = sum(float(variant.transfer[:, calls[number]].sum()) for number, variant in enumerate(scenarios.graph.variants))
    return spent / usual if usual > 0 else 1.0
