# SPDX-License-Identifier: Apache-2.0
"""Who is slow and what it costs: replays in which one rank is as measured and everything else ideal.

That charges two equally slow ranks both, where "what if only this one were healthy" would charge none. What random other ranks
cost in the same way is jitter, and is subtracted. Nobody is named unless the cost stands out of that noise and the excess of
the rank's own work stands out of its variation from step to step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stepscope.analysis.partition.spans import Ints
from stepscope.cluster.finding import Finding
from stepscope.cluster.whatif.graph import Graph
from stepscope.cluster.whatif.ideal import FEW, Ideal
from stepscope.cluster.whatif.replay import Floats

SHARE = 0.01  # of the step: findings below cost too little to mention
ONE_OFF_SHARE = 0.02  # of the mean step, for what stands out in single steps only: every host pauses now and then
TIMES_NOISE = 6.0
TIMES_ERROR = 6.0
TIMES_ERROR_FEW = 7.0  # with fewer than 5 steps
ONE_STEP = 8.0  # times the variation: a single step that stands out
NOISE_FLOOR = 0.0005  # of the step
OTHERS = 24  # random ranks that measure the cost of jitter
HIDDEN = 0.5  # of the cost beside ideal ranks
BATCH_BYTES = 192 << 20
MOST_VICTIMS = 8


class Scenarios:
    """Replays of one graph against its ideal."""

    def __init__(self, graph: Graph, ideal: Ideal):
        self.graph, self.ideal = graph, ideal
        self.measured = [variant.work.sum(2) for variant in graph.variants]
        self.rows = [[np.flatnonzero(variant.rank == place) for place in range(len(graph.ranks))] for variant in graph.variants]
        ideal_steps, self.ideal_wait, _ = self._run(1)
        self.ideal_steps = ideal_steps[0]
        transfer = [variant.transfer for variant in graph.variants]
        actual, _, _ = self._run(1, self.measured, transfer)
        self.actual_steps = actual[0]
        _, _, spans = self._run(1, self.measured, transfer, graph.skew_ns)
        self.actual_spans = spans[0]  # from begin to end, by rank
        self.step_ns = float(np.median(self.actual_steps))

    def _run(
        self, count: int, work: list[Floats] | None = None, transfer: list[Floats] | None = None, begin: Floats | None = None
    ) -> tuple[Floats, Floats, Floats]:
        work = self.ideal.total if work is None else work
        transfer = self.ideal.transfer if transfer is None else transfer
        return self.graph.times(
            [[np.repeat(one[None], count, 0) for one in steps] for steps in work],
            [[np.repeat(one[None], count, 0) for one in steps] for steps in transfer],
            begin,
        )

    def alone(self, sets: Sequence[Sequence[int]], drop: Sequence[Sequence[int]] | None = None) -> tuple[Floats, Floats]:
        """Each set of ranks as measured, the rest ideal: added length (sets × steps) and added waiting (sets × ranks).

        Args:
            drop: causes that are set to the peers' middle, per set.
        """
        lengths, waits = [], []
        biggest = max(variant.program.rows for variant in self.graph.variants)
        batch = max(1, int(BATCH_BYTES // (24 * max(biggest, 1))))
        for begin in range(0, len(sets), batch):
            part = sets[begin : begin + batch]
            left_out = drop[begin : begin + batch] if drop else [()] * len(part)
            work = []
            for number, variant in enumerate(self.graph.variants):
                steps = []
                for at in range(len(variant.steps)):
                    own = np.repeat(self.ideal.total[number][at][None], len(part), 0)
                    for scenario, (places, causes) in enumerate(zip(part, left_out, strict=True)):
                        for place in places:
                            rows = self.rows[number][place]
                            mine = variant.work[at, rows]
                            if len(causes):
                                mine = mine.copy()
                                mine[:, list(causes)] = self.ideal.causes[number][at, rows][:, list(causes)]
                            own[scenario, rows] = mine.sum(1)
                    steps.append(own)
                work.append(steps)
            transfer = [[np.repeat(one[None], len(part), 0) for one in steps] for steps in self.ideal.transfer]
            times, waited, _ = self.graph.times(work, transfer)
            lengths.append(times - self.ideal_steps)
            waits.append(waited - self.ideal_wait)
        return np.concatenate(lengths), np.concatenate(waits)

    def with_transfers(self, sets: Sequence[Sequence[Ints]], times: Sequence[Floats] | None = None) -> Floats:
        """Ideal work; the calls of each set (by variant) take as long as measured: added length, sets × steps.

        Args:
            times: of all calls by variant, steps × calls, instead of those measured.
        """
        lengths = []
        for calls in sets:
            transfer = []
            for number, variant in enumerate(self.graph.variants):
                own = self.ideal.transfer[number].copy()
                taken = variant.transfer if times is None else times[number]
                own[:, calls[number]] = taken[:, calls[number]]
                transfer.append([one[None] for one in own])
            work = [[one[None] for one in steps] for steps in self.ideal.total]
            ended, _, _ = self.graph.times(work, transfer)
            lengths.append(ended[0] - self.ideal_steps)
        return np.array(lengths)

    def with_work(self, work: list[Floats]) -> Floats:
        """Length of the steps with other work and ideal transfers."""
        lengths, _, _ = self._run(1, work=work)
        return np.asarray(lengths[0])

    def saving(self, places: Sequence[int]) -> float:
        """What a mean step would be shorter if these ranks were ideal and all else as measured."""
        return float((self.actual_steps - self.repaired(places)).mean())

    def costs_beside(self, sets: Sequence[Sequence[int]]) -> Floats:
        """What each set of ranks adds to a mean step, everybody else in no set as measured: with the jitter that is really there.

        Where all ranks wait for each other often, some of them are late anyway, and a slow one costs less than beside ideal ones.
        """
        everyone = sorted({place for places in sets for place in places})
        chosen = np.zeros((len(sets) + 1, len(self.graph.ranks)), dtype=np.bool_)  # ranks that are made ideal
        chosen[:, everyone] = True
        for number, places in enumerate(sets):
            chosen[number, list(places)] = False
        lengths = []
        for ideal_ranks in chosen:
            work = [
                np.where(ideal_ranks[variant.rank], self.ideal.total[number], self.measured[number])
                for number, variant in enumerate(self.graph.variants)
            ]
            times, _, _ = self._run(1, work, [variant.transfer for variant in self.graph.variants])
            lengths.append(float(times[0].mean()))
        return np.array(lengths[:-1]) - lengths[-1]

    def repaired(self, places: Sequence[int], causes: Sequence[int] = (), transfers: bool = False) -> Floats:
        """Length of the steps if ranks did no more than their peers, for some causes only if any are given, all else as measured.

        Args:
            transfers: all transfers take no longer than usual, too.
        """
        work, moved = [], []
        chosen = np.zeros(len(self.graph.ranks), dtype=np.bool_)
        chosen[list(places)] = True
        for number, variant in enumerate(self.graph.variants):
            own = self.measured[number].copy()
            rows = np.flatnonzero(chosen[variant.rank])
            if len(causes):
                over = variant.work[:, rows][..., list(causes)] - self.ideal.causes[number][:, rows][..., list(causes)]
                own[:, rows] -= np.maximum(over, 0.0).sum(2)
            else:
                own[:, rows] = np.minimum(own[:, rows], self.ideal.total[number][:, rows])
            work.append(own)
            moved.append(np.minimum(variant.transfer, self.ideal.transfer[number]) if transfers else variant.transfer)
        times, _, _ = self._run(1, work, moved)
        return np.asarray(times[0])

    def saving_transfers(self, calls: Sequence[Ints]) -> float:
        transfer = []
        for number, variant in enumerate(self.graph.variants):
            own = variant.transfer.copy()
            own[:, calls[number]] = np.minimum(own[:, calls[number]], self.ideal.transfer[number][:, calls[number]])
            transfer.append(own)
        times, _, _ = self._run(1, self.measured, transfer)
        return float((self.actual_steps - times[0]).mean())

    def excess(self) -> Floats:
        """Local work above the peers': steps × ranks, ns."""
        graph = self.graph
        result = np.zeros((len(graph.order), len(graph.ranks)))
        for at, (number, place) in enumerate(graph.order):
            variant = graph.variants[number]
            over = self.measured[number][place] - self.ideal.total[number][place]
            result[at] = np.bincount(variant.rank, over, len(graph.ranks))
        return result


@dataclass
class Suspect:
    """A rank (or several, of one host) that costs more than noise."""

    places: list[int]
    cost: Floats  # by step
    mean_ns: float
    victims: Floats  # added waiting by rank
    confidence: str
    host: str | None = None
    least_ns: float = 0.0  # cost below which nothing is said


@dataclass
class Ranking:
    suspects: list[Suspect]
    noise_ns: float
    excess: Floats
    moving_ns: float


def find_slow(scenarios: Scenarios, hosts: Sequence[str | None]) -> Ranking:
    """Ranks and hosts that hold the others up, the most expensive first."""
    graph = scenarios.graph
    count, steps = len(graph.ranks), len(graph.order)
    excess = scenarios.excess()
    mean = excess.mean(0)
    own = excess - mean  # not the middle: of three steps it makes one zero
    if steps > 1:
        moving = 1.4826 * float(np.median(np.abs(own))) * (steps / (steps - 1)) ** 0.5
    else:
        moving = 1.4826 * float(np.median(np.abs(excess - np.median(excess))))
    chosen = list(dict.fromkeys([*np.argsort(-mean)[:12].tolist(), *np.argsort(-excess.max(0))[:6].tolist()]))
    units: list[tuple[list[int], str | None]] = [*(([place], None) for place in chosen)]
    units += [(places, host) for host, places in _slow_hosts(mean, hosts, moving, steps, scenarios.step_ns)]
    random = np.random.default_rng(0).permutation(count)[:OTHERS].tolist()
    null = [place for place in random if place not in chosen]
    lengths, waits = scenarios.alone([*(places for places, _ in units), *([place] for place in null)])
    base = lengths[len(units) :].mean(1) if null else np.zeros(1)
    floor = NOISE_FLOOR * scenarios.step_ns
    noise = max(1.4826 * float(np.median(np.abs(base - np.median(base)))), floor)
    jitter = max(float(np.median(base)), 0.0)
    found = []
    for unit, (places, host) in enumerate(units):
        cost = lengths[unit]
        value = float(cost.mean()) - jitter
        error = max(moving / steps**0.5, 1.0)
        # Few steps that stand out are no habit: a single long pause moves the mean, too.
        hit = int((excess[:, places].mean(1) > 2 * moving).sum())
        often = 2 * hit >= steps if steps >= 5 else 2 * hit > steps
        steady = float(mean[places].mean()) / error if often else 0.0
        limit = TIMES_ERROR if steps >= 5 else TIMES_ERROR_FEW
        sudden = float(cost.max()) > ONE_STEP * moving and float(excess[:, places].max()) > ONE_STEP * moving
        needed = SHARE if steady >= limit else ONE_OFF_SHARE
        if value >= needed * scenarios.step_ns and value >= TIMES_NOISE * noise and (steady >= limit or sudden):
            few = min(int(scenarios.ideal.peers[place]) for place in places) < FEW
            found.append(
                Suspect(
                    places,
                    cost,
                    value,
                    waits[unit],
                    "low" if few else "high" if steady >= 2 * limit else "medium",
                    host,
                    needed * scenarios.step_ns,
                )
            )
    hosts_found = {place for one in found if one.host is not None for place in one.places}
    found = [one for one in found if one.host is not None or not set(one.places) & hosts_found]
    for one, beside in zip(found, scenarios.costs_beside([one.places for one in found]) if found else (), strict=True):
        # Hidden behind something else that is slow, too: then what it costs by itself.
        one.mean_ns = float(beside) if beside > HIDDEN * one.mean_ns else one.mean_ns
    found = [one for one in found if one.mean_ns >= one.least_ns]
    found.sort(key=lambda one: (-one.mean_ns, one.places))
    return Ranking(found, noise, excess, moving)


def _slow_hosts(
    mean: Floats, hosts: Sequence[str | None], moving: float, steps: int, step_ns: float
) -> list[tuple[str, list[int]]]:
    """Hosts of which every rank does clearly more than its peers."""
    error = max(moving / max(steps, 1) ** 0.5, 1.0)
    found = []
    names = sorted({host for host in hosts if host is not None})
    for name in names:
        places = [place for place, host in enumerate(hosts) if host == name]
        if len(places) < 2 or len(names) < 2:
            continue
        slow = mean[places]
        if (slow >= TIMES_ERROR * error).all() and slow.min() >= 0.4 * slow.max() and np.median(slow) >= 0.5 * SHARE * step_ns:
            found.append((name, places))
    return found


def pattern_of(cost: Floats, steps: Sequence[int]) -> tuple[str, int | None, list[int]]:
    """How a cost is spread over the steps: pattern, period, the steps that it hits."""
    hit = np.flatnonzero(cost > 0.3 * cost.max()) if cost.max() > 0 else np.empty(0, dtype=np.int64)
    named = [steps[place] for place in hit.tolist()]
    if len(hit) >= 2 and len(hit) >= 0.3 * len(cost):
        gaps = np.unique(np.diff(hit))
        every = int(gaps[0]) if len(gaps) == 1 and gaps[0] > 1 and len(hit) > 2 else None
        return "persistent", every, named
    if len(hit) >= 2 and len(np.unique(np.diff(hit))) == 1:
        return "recurring", int(np.diff(hit)[0]), named
    return "one_off", None, named


def victims_of(waits: Floats, places: Sequence[int], ranks: Sequence[int], steps: int, step_ns: float) -> list[dict[str, float]]:
    """Ranks that wait longer because of a suspect, with ms per step, most first."""
    per_step = waits / max(steps, 1)
    order = sorted((place for place in range(len(ranks)) if place not in places), key=lambda place: (-per_step[place], place))
    return [
        {"rank": ranks[place], "ms": round(float(per_step[place]) / 1e6, 4)}
        for place in order[:MOST_VICTIMS]
        if per_step[place] > 0.001 * step_ns
    ]


def finding_of(suspect: Suspect, scenarios: Scenarios) -> Finding:
    """The finding about a suspect, without its cause."""
    graph = scenarios.graph
    pattern, every, steps = pattern_of(suspect.cost, graph.steps)
    return Finding(
        "slow_rank" if suspect.host is None else "slow_host",
        [graph.ranks[place] for place in suspect.places],
        suspect.mean_ns,
        suspect.mean_ns / scenarios.step_ns,
        scenarios.saving(suspect.places),
        host=suspect.host,
        pattern=pattern,
        every=every,
        steps=steps,
        victims=victims_of(suspect.victims, suspect.places, graph.ranks, len(graph.order), scenarios.step_ns),
        confidence=suspect.confidence,
    )
