# SPDX-License-Identifier: Apache-2.0
"""One clock for all ranks, from the ends of calls: offset and drift of every rank, with uncertainty, or a refusal.

Members of a call that synchronises end together; a receiver ends a constant lag after its sender. Robust least squares over all
calls; nothing but drawing depends on it, and nothing in a capture is rewritten.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl

from stepscope.analysis.partition.spans import Ints
from stepscope.cluster.digest import Digests
from stepscope.cluster.match import Matches
from stepscope.cluster.whatif.replay import Flags, Floats

# Calls whose members end together. Roots of broadcasts end early, and the ends of all-to-all differ by hundreds of µs.
TOGETHER = ("allreduce", "allgather", "reducescatter", "barrier", "send", "recv", "sendrecv", "batchsendrecv")
DRIFT_PRIOR = 20e-6
SYSTEMATIC_NS = 5_000.0  # ends of one kind of call differ between ranks for good by this much
KINDS = 4  # kinds of calls a rank has, about: more calls of one kind do not average the systematic error away
ROUNDS = 4
LEAST_CALLS = 3
MOST_UNCERTAIN_NS = 1e6


@dataclass(frozen=True)
class Clocks:
    """One entry per rank; `offset_ns` is local minus reference at the middle of the run."""

    ranks: list[int]
    offset_ns: Floats
    drift: Floats
    sigma_ns: Floats
    reason: list[str]  # empty when aligned
    middle_ns: int  # moment on the reference clock at which the offsets hold
    residual_ns: float
    lag_ns: float
    calls: int

    def refused(self) -> list[int]:
        return [rank for rank, reason in zip(self.ranks, self.reason, strict=True) if reason]

    def to_reference(self, place: int, times: Ints) -> Ints:
        """Times of a rank on the clock of the reference rank."""
        local = times - self.middle_ns - round(float(self.offset_ns[place]))
        moved = local - np.round(local * float(self.drift[place])).astype(np.int64)
        return np.asarray(moved + self.middle_ns, dtype=np.int64)

    def as_rows(self) -> list[dict[str, object]]:
        return [
            {
                "rank": rank,
                "offset_ns": None if reason else round(float(offset)),
                "drift": None if reason else round(float(drift), 10),
                "sigma_ns": None if not np.isfinite(sigma) else round(float(sigma)),
                "refused": bool(reason),
                "reason": reason or None,
            }
            for rank, offset, drift, sigma, reason in zip(
                self.ranks, self.offset_ns, self.drift, self.sigma_ns, self.reason, strict=True
            )
        ]


def align(digests: Digests, matches: Matches) -> Clocks:
    """The clocks of all ranks against that of the lowest."""
    ranks = digests.ranks
    together = pl.col("op").is_in(list(TOGETHER)) & (pl.col("folded") == 1)
    rows = matches.rows.filter(together & pl.col("call").is_not_null())
    place_of = {rank: place for place, rank in enumerate(ranks)}
    rank = np.array([place_of[one] for one in rows["rank"].to_list()], dtype=np.int64)
    return _solve(rank, rows["call"].to_numpy(), rows["end_ns"].to_numpy(), (rows["op"] == "recv").to_numpy(), ranks)


def _solve(rank: Ints, call: Ints, end: Ints, receives: Flags, ranks: list[int]) -> Clocks:
    count = len(ranks)
    if len(call):
        _, call = np.unique(call, return_inverse=True)
        shared = np.bincount(call)[call] > 1
        rank, call, end, receives = rank[shared], call[shared], end[shared], receives[shared]
    if not len(call):
        reason = ["" if place == 0 else "no call in common with other ranks" for place in range(count)]
        zero = np.zeros(count)
        return Clocks(ranks, zero, zero.copy(), np.where(np.arange(count) == 0, 0.0, np.inf), reason, 0, 0.0, 0.0, 0)
    _, call = np.unique(call, return_inverse=True)
    calls = int(call.max()) + 1
    origin = int(end.min())
    ends = (end - origin).astype(np.float64)
    component, coarse = connected_offsets(rank, call, ends, count)
    ends -= coarse[rank]
    span, middle = max(float(np.ptp(ends)), 1.0), float(ends.max() + ends.min()) / 2
    tau = (ends - middle) / span
    weight = np.ones(len(ends))
    receiver = receives.astype(np.float64)
    solution = np.zeros(2 * count + 1)
    sigma, residual = 10_000.0, np.zeros(len(ends))
    for _ in range(ROUNDS):
        sums: Floats = np.bincount(call, weight, calls).astype(np.float64)

        def centre(values: Floats, weight: Floats = weight, sums: Floats = sums) -> Floats:
            return np.asarray(values - (np.bincount(call, weight * values, calls) / sums)[call])

        def forward(x: Floats, centre: Callable[[Floats], Floats] = centre) -> Floats:
            return centre(x[rank] + x[count + rank] * tau + x[-1] * receiver)

        def backward(values: Floats, weight: Floats = weight, sums: Floats = sums) -> Floats:
            own = weight * values
            own = own - weight * (np.bincount(call, own, calls) / sums)[call]
            return np.concatenate((np.bincount(rank, own, count), np.bincount(rank, own * tau, count), [(own * receiver).sum()]))

        degree = np.bincount(rank, weight, count) + 1e-9
        # Without the prior a difference between kinds of calls looks like a drift in a short capture.
        prior = np.maximum(degree / KINDS, 1) * (max(SYSTEMATIC_NS, sigma) / (DRIFT_PRIOR * span)) ** 2
        ridge = np.concatenate((np.full(count, 1e-6), np.maximum(prior, 1e-9), [1e-9]))
        scale = np.concatenate(
            (degree, np.bincount(rank, weight * tau * tau, count) + ridge[count:-1], [max(float((weight * receiver).sum()), 1e-9)])
        )

        def apply(
            x: Floats,
            forward: Callable[[Floats], Floats] = forward,
            backward: Callable[[Floats], Floats] = backward,
            ridge: Floats = ridge,
        ) -> Floats:
            return np.asarray(backward(forward(x)) + ridge * x)

        solution = _conjugate_gradients(apply, backward(centre(ends)), solution, 1 / scale)
        residual = centre(ends) - forward(solution)
        sigma = max(1.4826 * float(np.median(np.abs(residual))), 200.0)
        weight = np.minimum(1.0, 2.0 * sigma / np.maximum(np.abs(residual), 1e-9))
    offset, drift = solution[:count].copy(), solution[count:-1] / span  # at `middle` of the coarsely shifted clocks
    for one in np.unique(component):
        who = np.flatnonzero(component == one)
        reference = 0 if component[0] == one else int(who[0])
        offset[who] -= offset[reference]
        drift[who] -= drift[reference]
    offset += coarse - coarse[0]
    number: Floats = np.bincount(rank, weight, count).astype(np.float64)
    spread = np.full(count, np.inf)
    order = np.argsort(rank, kind="stable")
    bounds = np.searchsorted(rank[order], np.arange(count + 1))
    for place in range(count):
        own = np.abs(residual[order[bounds[place] : bounds[place + 1]]])
        if len(own):
            spread[place] = 1.4826 * float(np.median(own))
    uncertain = np.sqrt((2.5 * spread / np.sqrt(np.maximum(number, 1))) ** 2 + SYSTEMATIC_NS**2)
    reason = [_reason(place, component, number, uncertain) for place in range(count)]
    middle_ns = origin + round(middle + float(coarse[0]))
    return Clocks(
        ranks, offset, drift, uncertain, reason, middle_ns, float(np.median(np.abs(residual))), float(solution[-1]), calls
    )


def _reason(place: int, component: Ints, number: Floats, uncertain: Floats) -> str:
    if place == 0:
        return ""
    if component[place] != component[0]:
        return "no call in common with other ranks" if not number[place] else "no path of calls to the reference rank"
    if np.ceil(number[place]) < LEAST_CALLS:
        return f"only {int(np.ceil(number[place]))} calls in common"
    return "" if uncertain[place] <= MOST_UNCERTAIN_NS else "uncertain by more than 1 ms"


def connected_offsets(rank: Ints, call: Ints, ends: Floats, count: int) -> tuple[Ints, Floats]:
    """Breadth-first over pairs of ranks that share calls: which are connected, and the middle difference of their ends."""
    order = np.lexsort((rank, call))
    who, which, when = rank[order], call[order], ends[order]
    near = np.flatnonzero(which[1:] == which[:-1])
    pairs = pl.DataFrame({"a": who[near], "b": who[near + 1], "d": when[near + 1] - when[near]})
    edges: dict[int, list[tuple[int, float]]] = {}
    for one, other, difference in pairs.group_by("a", "b").agg(pl.col("d").median()).sort("a", "b").iter_rows():
        edges.setdefault(one, []).append((other, difference))
        edges.setdefault(other, []).append((one, -difference))
    component, offset = np.full(count, -1, dtype=np.int64), np.zeros(count)
    for root in range(count):
        if component[root] >= 0:
            continue
        component[root], todo = root, [root]
        while todo:
            following = []
            for one in todo:
                for other, difference in edges.get(one, ()):
                    if component[other] < 0:
                        component[other], offset[other] = root, offset[one] + difference
                        following.append(other)
            todo = following
    return component, offset


def _conjugate_gradients(apply: Callable[[Floats], Floats], right: Floats, x: Floats, scale: Floats, most: int = 400) -> Floats:
    left = right - apply(x)
    z = scale * left
    along = z.copy()
    size = float(left @ z)
    whole = max(abs(float(right @ (scale * right))) ** 0.5, 1e-30)
    for _ in range(most):
        image = apply(along)
        curve = float(along @ image)
        if curve <= 0:
            break
        step = size / curve
        x = x + step * along
        left = left - step * image
        z = scale * left
        new = float(left @ z)
        if abs(new) ** 0.5 < 1e-9 * whole:
            break
        along = z + (new / size) * along
        size = new
    return x
