# SPDX-License-Identifier: Apache-2.0
"""Slow links and slow groups: transfers that take longer than those of the same operator, size and kind of group elsewhere.

Where single transfers were recorded, the link is the pair whose bandwidth is low. Else it is the pair or the rank that all slow
groups have in common, if there is just one. A group that is the whole run has nothing to be compared with but its other steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stepscope.analysis.partition.spans import Ints
from stepscope.cluster.digest import Digests
from stepscope.cluster.finding import Finding
from stepscope.cluster.match import Group
from stepscope.cluster.network.speeds import SlowPair, slow_pairs
from stepscope.cluster.slow import ONE_OFF_SHARE, ONE_STEP, SHARE, Scenarios, pattern_of
from stepscope.cluster.whatif.replay import Floats

RATIO = 1.3  # of the usual transfer
MOST = 4  # groups that are replayed
SAME = 1.15  # a group whose ratio is this close to normal is healthy
STEPS = 3  # fewer do not tell what is usual for a group without peers


@dataclass
class _Calls:
    """Complete calls of a group, or of a pair of ranks.

    Attributes:
        calls: by variant.
        ratio: how many times longer than usual, by time: many small calls do not hide a few large ones.
        world: it is all ranks of the run.
        compared: other groups or pairs have calls of the same kind.
    """

    name: object
    members: list[int]
    group_name: str
    calls: list[Ints]
    ratio: float
    over_ns: float
    world: bool
    compared: bool


def slow_links(scenarios: Scenarios, groups: Sequence[Group], digests: Digests) -> list[Finding]:
    """Groups and pairs whose transfers cost the run time, most expensive first."""
    every = _calls(scenarios, groups)
    slow = [one for one in every if one.ratio > RATIO and one.over_ns > 0]
    slow.sort(key=lambda one: (-one.over_ns, str(one.name)))
    found = []
    for one in slow[:MOST]:
        cost = scenarios.with_transfers([one.calls])[0]
        # A group that is the whole run is slower than in its other steps: every network is now and then.
        least = ONE_OFF_SHARE if one.world else SHARE
        if float(cost.mean()) < least * scenarios.step_ns or (one.world and not _stands_out(cost)):
            continue
        made = _finding(scenarios, one.members, cost, one.calls, [{"what": "transfer", "times_slower": round(one.ratio, 3)}])
        if not one.world:
            made.kind = "slow_link" if len(one.members) == 2 else "slow_group"
            made.link = one.members if len(one.members) == 2 else []
        else:
            made.kind, made.cause = "slow_group", "network"
        made.group, made.group_name = one.members, one.group_name
        made.confidence = "high" if len(set(scenarios.ideal.transfer_class[0].tolist())) > 1 else "medium"
        found.append(made)
    pairs = slow_pairs(digests, groups)
    found = _located(scenarios, found, pairs, every) if pairs else _merged(found, slow, every, scenarios)
    return sorted(found, key=lambda one: (-one.cost_ns, one.ranks))


def _calls(scenarios: Scenarios, groups: Sequence[Group]) -> list[_Calls]:
    graph = scenarios.graph
    calls_of: dict[object, list[list[int]]] = {}
    for number, variant in enumerate(graph.variants):
        for call in range(variant.program.calls):
            if not variant.complete[call]:
                continue
            pair = variant.pairs[call]
            name: object = tuple(sorted(pair)) if pair else int(variant.gid[call])
            calls_of.setdefault(name, [[] for _ in graph.variants])[number].append(call)
    owners: dict[tuple[int, int], set[object]] = {}
    for name, lists in calls_of.items():
        for number, mine in enumerate(lists):
            for kind in np.unique(scenarios.ideal.transfer_class[number][mine]).tolist():
                owners.setdefault((number, kind), set()).add(name)
    compared = {name for names in owners.values() if len(names) > 1 for name in names}
    found = []
    for name, lists in calls_of.items():
        calls = [np.array(one, dtype=np.int64) for one in lists]
        members = list(name) if isinstance(name, tuple) else list(groups[int(name)].members)  # type: ignore[call-overload]
        world = len(members) > 2 and set(graph.ranks) <= set(members)
        usual, spent = _by_step(scenarios, calls)
        ratio = float(spent.sum() / usual.sum()) if usual.sum() > 0 else 1.0
        if world:
            ratio = float((spent / np.maximum(usual, 1.0)).max(initial=1.0)) if len(usual) >= STEPS else 1.0
        title = "" if isinstance(name, tuple) else groups[int(name)].name  # type: ignore[call-overload]
        found.append(_Calls(name, members, title, calls, ratio, float((spent - usual).mean()), world, name in compared))
    return found


def _by_step(scenarios: Scenarios, calls: Sequence[Ints]) -> tuple[Floats, Floats]:
    """Usual and measured time of calls in each step."""
    usual, spent = [], []
    for number, variant in enumerate(scenarios.graph.variants):
        usual.append(scenarios.ideal.transfer[number][:, calls[number]].sum(1))
        spent.append(variant.transfer[:, calls[number]].sum(1))
    return np.concatenate(usual), np.concatenate(spent)


def _stands_out(cost: Floats) -> bool:
    """Whether the most expensive step is far from what the cost varies by otherwise."""
    middle = float(np.median(cost))
    return float(cost.max()) - middle > ONE_STEP * 1.4826 * float(np.median(np.abs(cost - middle)))


def _finding(
    scenarios: Scenarios, ranks: Sequence[int], cost: Floats, calls: Sequence[Ints], evidence: list[dict[str, Any]]
) -> Finding:
    value = float(cost.mean())
    pattern, every, steps = pattern_of(cost, scenarios.graph.steps)
    return Finding(
        "slow_link", list(ranks), value, value / scenarios.step_ns, scenarios.saving_transfers(calls), pattern=pattern, every=every,
        steps=steps, cause="link", explained=1.0, evidence=evidence,
    )  # fmt: skip


def _located(scenarios: Scenarios, found: list[Finding], pairs: Sequence[SlowPair], every: Sequence[_Calls]) -> list[Finding]:
    """Findings about groups with the link inside that is slow, and about slow links whose group has nothing to be compared with."""
    rest = list(pairs)
    for one in found:
        inside = [pair for pair in pairs if set(pair.ranks) <= set(one.group or [])]
        link = _common(inside)
        if not link:
            continue
        rest = [pair for pair in rest if pair not in inside]
        one.kind, one.cause, one.ranks, one.link = "slow_link", "link", link, link
        one.evidence += [_bandwidth(pair) for pair in inside]
    told = []
    for numbers in dict.fromkeys(pair.groups for pair in rest):
        mine = [pair for pair in rest if pair.groups == numbers]
        link = _common(mine)
        uses = [one for one in every if one.name in numbers or one.name == mine[0].ranks]
        if not link or not uses or any(one.compared and one.ratio < SAME for one in uses):
            continue  # groups like this one take no longer
        calls = [np.unique(np.concatenate([one.calls[number] for one in uses])) for number in range(len(uses[0].calls))]
        # What its calls would take at the usual bandwidth.
        healthy = [
            np.minimum(scenarios.ideal.transfer[number], variant.transfer * min(pair.ratio for pair in mine))
            for number, variant in enumerate(scenarios.graph.variants)
        ]
        cost = scenarios.with_transfers([calls])[0] - scenarios.with_transfers([calls], healthy)[0]
        if float(cost.mean()) >= SHARE * scenarios.step_ns:
            made = _finding(scenarios, link, cost, calls, [_bandwidth(pair) for pair in mine])
            made.link, made.group, made.group_name = link, uses[0].members, uses[0].group_name
            made.saving_ns, made.confidence = made.cost_ns, "medium"
            told.append(made)
    return [*found, *told]


def _common(pairs: Sequence[SlowPair]) -> list[int]:
    """The pair, or the rank that several slow pairs have in common; nothing when there is none."""
    if not pairs:
        return []
    shared = set.intersection(*(set(pair.ranks) for pair in pairs))
    return sorted(shared) if len(pairs) == 1 or len(shared) == 1 else []


def _bandwidth(pair: SlowPair) -> dict[str, Any]:
    return {
        "what": "bandwidth", "ranks": list(pair.ranks), "transport": pair.transport, "gbps": round(pair.gbps, 3),
        "usual_gbps": round(pair.usual_gbps, 3),
    }  # fmt: skip


def _merged(found: list[Finding], slow: Sequence[_Calls], every: Sequence[_Calls], scenarios: Scenarios) -> list[Finding]:
    """Several slow groups with one rank or one pair in common are one slow link."""
    if len(found) < 2:
        return found
    members = [set(one.ranks) for one in found]
    common = set.intersection(*members)
    if not 1 <= len(common) <= 2 or len(common) == max(map(len, members)):
        return found
    # Healthy groups that hold the same ranks (and differ in kind) would contradict it.
    if len(common) == 2 and any(one not in slow and common <= set(one.members) and one.ratio < SAME for one in every):
        return found
    together = [
        np.unique(np.concatenate([one.calls[number] for one in slow[:MOST]])) for number in range(len(scenarios.graph.variants))
    ]
    cost = scenarios.with_transfers([together])[0]
    one = _finding(scenarios, sorted(common), cost, together, [row for each in found for row in each.evidence])
    one.link, one.confidence = sorted(common), found[0].confidence
    return [one]
