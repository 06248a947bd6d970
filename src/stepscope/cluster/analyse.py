# SPDX-License-Identifier: Apache-2.0
"""From the digests of a run to its findings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stepscope.cluster.causes import explain, frequencies, is_mere_pause
from stepscope.cluster.clocks import Clocks, align
from stepscope.cluster.digest import Digests
from stepscope.cluster.finding import Finding, Problem
from stepscope.cluster.layout import Layout, layout_of
from stepscope.cluster.match import Matches, match, same_steps
from stepscope.cluster.network.bandwidth import bandwidths
from stepscope.cluster.network.links import slow_links
from stepscope.cluster.outside import LEAST_SHARE, latest_rank, members_of, places_of, wait_outside
from stepscope.cluster.pipeline import moving_imbalance, stage_imbalance
from stepscope.cluster.slow import Ranking, Scenarios, Suspect, find_slow, finding_of
from stepscope.cluster.whatif.graph import Graph, build_graph
from stepscope.cluster.whatif.ideal import ideal_of, pace_of

SCHEMA = "stepscope.cluster/1"
REPLAY_ERROR = 0.02  # between replayed and measured step time; above, nothing is concluded


@dataclass
class Analysis:
    """What is known about a run."""

    digests: Digests
    matches: Matches
    clocks: Clocks
    layout: Layout
    graph: Graph | None
    findings: list[Finding]
    problems: list[Problem]
    expected: int
    missing: list[int]
    scenarios: Scenarios | None = None
    ranking: Ranking | None = None
    replay_error: float | None = None
    joint_saving_ns: float = 0.0
    wait_outside_ns: float = 0.0  # per step, for ranks that were not recorded
    baseline: dict[str, Any] = field(default_factory=dict)

    @property
    def undecided(self) -> bool:
        """A rank is waited for, but one step is too few to call it slow."""
        return any(problem.kind == "one_step" for problem in self.problems)

    @property
    def step_ns(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        return self.graph.step_ns if self.graph else np.empty(0)

    def as_dict(self) -> dict[str, Any]:
        ranks = self.digests["cluster_ranks"]
        length = self.step_ns
        ideal = self.scenarios.ideal_steps if self.scenarios else np.empty(0)
        lost = float((self.scenarios.actual_steps - self.scenarios.ideal_steps).mean()) if self.scenarios else None
        result: dict[str, Any] = {
            "schema": SCHEMA,
            "run": {
                "ranks": ranks["rank"].to_list(),
                "expected": self.expected,
                "missing": self.missing,
                "steps": self.graph.steps if self.graph else [],
                "hosts": sorted(ranks["host"].drop_nulls().unique().to_list()),
            },
            "step_ms": {
                "median": _ms(np.median(length)) if len(length) else None,
                "p95": _ms(np.quantile(length, 0.95)) if len(length) else None,
                "ideal": _ms(np.median(ideal)) if len(ideal) else None,
            },
            "lost_ms": None if lost is None else _ms(lost),
            "saving_ms": _ms(self.joint_saving_ns),
            "wait_outside_ms": _ms(self.wait_outside_ns),
            "replay_error": None if self.replay_error is None else round(self.replay_error, 6),
            "layout": self.layout.as_dict(),
            "clocks": self.clocks.as_rows(),
            "findings": [finding.as_dict() for finding in self.findings],
            "bandwidth": bandwidths(self.digests, self.matches),
            "matching": self.matches.quality,
            "problems": [problem.as_dict() for problem in self.problems],
        }
        if self.baseline:
            result["baseline"] = self.baseline
        return result


def _ms(value: Any) -> float:
    return round(float(value) / 1e6, 6)


Closer = Callable[[Sequence[tuple[Finding, Suspect]], Scenarios], None]


def analyse(
    digests: Digests, problems: list[Problem] | None = None, expected: int | None = None, closer: Closer | None = None
) -> Analysis:
    """Everything about a run that its digests tell.

    Args:
        closer: may know more about the causes of findings.
    """
    problems = list(problems or [])
    digests, shifts = same_steps(digests)
    problems += [Problem("shifted_steps", {"shift": shift}, rank) for rank, shift in sorted(shifts.items())]
    matches = match(digests)
    graph = build_graph(digests, matches)
    layout = layout_of(digests, matches, graph)
    clocks = align(digests, matches)
    world, missing = _missing(digests, matches, expected)
    problems += _input_problems(digests, matches, graph, clocks, layout, missing)
    analysis = Analysis(digests, matches, clocks, layout, graph, [], problems, world, missing)
    if graph is not None and len(graph.step_ns):
        waited = wait_outside(digests, matches, graph.steps)
        analysis.wait_outside_ns = waited if waited >= LEAST_SHARE * float(np.median(graph.step_ns)) else 0.0
    if graph is None or len(graph.ranks) < 2 or not any(variant.program.calls for variant in graph.variants):
        if graph is not None and len(graph.ranks) > 1:
            problems.append(Problem("no_calls", {}))
        elif graph is None and len(digests.ranks) > 1:
            problems.append(Problem("no_common_steps", {}))
        return analysis
    stuck = sum(variant.program.stuck for variant in graph.variants)
    if stuck:
        problems.append(Problem("cycle", {"ranks": stuck}))
        return analysis
    hosts = _hosts(digests, graph)
    pace = pace_of(digests["cluster_kernels"], graph.ranks, frequencies(digests))
    ideal = ideal_of(graph, pace, hosts, matches.groups)
    scenarios = analysis.scenarios = Scenarios(graph, ideal)
    count = len(graph.order)
    replayed, measured = float(scenarios.actual_spans.mean()) / count, float(graph.rank_ns.mean()) / count
    analysis.replay_error = abs(replayed - measured) / max(measured, 1.0)
    if analysis.replay_error > REPLAY_ERROR:
        problems.append(
            Problem("replay", {"error": analysis.replay_error, "replayed_ms": replayed / 1e6, "measured_ms": measured / 1e6})
        )
        return analysis
    ranking = analysis.ranking = find_slow(scenarios, hosts)
    told = [(finding_of(suspect, scenarios), suspect) for suspect in ranking.suspects]
    for finding, suspect in told:
        explain(finding, suspect, scenarios, digests)
    if closer is not None and told:
        closer(told, scenarios)
    told = [(finding, suspect) for finding, suspect in told if not is_mere_pause(finding, suspect, scenarios)]
    findings, ranking.suspects = [finding for finding, _ in told], [suspect for _, suspect in told]
    findings += slow_links(scenarios, matches.groups, digests)
    findings += stage_imbalance(scenarios, layout)
    explained = sum(finding.saving_ns for finding in findings if finding.kind != "pipeline_imbalance")
    # Nor is a rank that was not recorded, for which all others wait, an imbalance among them.
    findings += moving_imbalance(scenarios, ranking, explained + analysis.wait_outside_ns)
    # What somebody can repair first; that the model is cut unevenly, or that imbalance moves, holds for the run as a whole.
    rest = {"pipeline_imbalance": 1, "imbalance": 2}
    analysis.findings = sorted(findings, key=lambda one: (rest.get(one.kind, 0), -one.cost_ns, one.kind, one.ranks))
    if not findings and count == 1 and not analysis.wait_outside_ns:
        late, wait = latest_rank(matches, graph.steps[0])
        if wait >= LEAST_SHARE * float(np.median(graph.step_ns)):
            problems.append(Problem("one_step", {"wait_ms": wait / 1e6, "share": wait / float(np.median(graph.step_ns))}, late))
    places = {place for suspect in ranking.suspects for place in suspect.places}
    analysis.joint_saving_ns = scenarios.saving(sorted(places)) if places else 0.0
    return analysis


def _hosts(digests: Digests, graph: Graph) -> list[str | None]:
    known = dict(digests["cluster_ranks"].select("rank", "host").iter_rows())
    if not any(known.values()):
        known = hosts_by_device(digests)
    return [known.get(rank) for rank in graph.ranks]


def hosts_by_device(digests: Digests) -> dict[int, str | None]:
    """Where no capture names its host: ranks whose device numbers rise are on one. Nothing when every rank has the same device."""
    ranks = digests["cluster_ranks"].sort("rank").select("rank", "device").rows()
    blocks: list[list[int]] = []
    before = None
    for rank, device in ranks:
        if device is None:
            return {}
        if before is None or device <= before:
            blocks.append([])
        blocks[-1].append(rank)
        before = device
    if len(blocks) < 2 or max(map(len, blocks)) < 2:
        return {}
    return {rank: f"ranks {block[0]}-{block[-1]}" for block in blocks for rank in block}


def _missing(digests: Digests, matches: Matches, expected: int | None) -> tuple[int, list[int]]:
    present = set(digests.ranks)
    said = digests["cluster_ranks"]["world_size"].drop_nulls()
    world = expected or (int(said.max()) if said.len() else 0)  # type: ignore[arg-type]
    wanted = set(range(world)).union(*(members_of(digests, group) for group in matches.groups))
    least = max((places_of(digests, group) for group in matches.groups), default=0)
    return max(world, len(present | wanted), least), sorted(wanted - present)


def _input_problems(
    digests: Digests, matches: Matches, graph: Graph | None, clocks: Clocks, layout: Layout, missing: list[int]
) -> list[Problem]:
    problems = []
    if missing:
        problems.append(Problem("missing_ranks", {"ranks": missing[:64], "count": len(missing)}))
    if graph is not None:
        problems += [Problem("other_steps", {}, rank) for rank in graph.partial_ranks]
        if graph.left_out:
            problems.append(Problem("steps_left_out", {"steps": graph.left_out[:64], "count": len(graph.left_out)}))
    problems += [Problem("unmatched_group", {"group": name}) for name in sorted(set(matches.unmatched))]
    if matches.dropped:
        problems.append(Problem("unmatched_calls", {"count": matches.dropped, "rows": matches.rows.height}))
    partial = int((matches.size < matches.expected).sum())
    if partial:
        problems.append(Problem("partial_calls", {"count": partial, "calls": len(matches.size)}))
    if len(clocks.ranks) > 1:
        reasons: dict[str, list[int]] = {}
        for rank, reason in zip(clocks.ranks, clocks.reason, strict=True):
            if reason:
                reasons.setdefault(reason, []).append(rank)
        problems += [
            Problem("clock_refused", {"reason": reason, "ranks": ranks[:64], "count": len(ranks)})
            for reason, ranks in sorted(reasons.items())
        ]
    problems += [Problem("layout", {"text": text}) for text in layout.contradictions]
    losses = digests["cluster_ranks"].filter((digests["cluster_ranks"]["losses"] > 0).fill_null(False))
    problems += [Problem("losses", {"count": count}, rank) for rank, count in losses.select("rank", "losses").iter_rows()]
    return problems
