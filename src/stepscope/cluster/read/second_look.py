# SPDX-License-Identifier: Apache-2.0
"""A second look at suspects of which only small files were read: these ranks and a few of their peers are read in full.

Small files lack what the host did and the frequency of the cores. What a suspect spends above its peers, cause by cause, is the
share of its excess that the cause explains.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from stepscope.cluster.causes import ENOUGH, SLOWER_CLOCK, frequencies
from stepscope.cluster.digest import Digests
from stepscope.cluster.finding import Finding
from stepscope.cluster.read import store
from stepscope.cluster.read.reading import Outcome
from stepscope.cluster.slow import Scenarios, Suspect
from stepscope.tables.cluster import CAUSES

MOST = 8  # ranks that are read in full
NAMED = 4  # of them, at most, are suspects
OF_ONE = 2  # ranks of one finding
_KNOWN = {"kernel", "more_work", "expert_imbalance", "frequency"}  # kernels are in the small files

Reader = Callable[[Sequence[str]], Iterable[Outcome]]


class SecondLook:
    """Names the causes of findings from captures that are read in full.

    Args:
        captures: of each rank.
        shallow: ranks of which only small files were read.
        read: reads captures in full.
    """

    def __init__(self, captures: Mapping[int, Sequence[str]], shallow: Collection[int], read: Reader):
        self._captures, self._shallow, self._read = captures, shallow, read

    def __call__(self, told: Sequence[tuple[Finding, Suspect]], scenarios: Scenarios) -> None:
        """Set cause, explained share, shares by cause and evidence of the findings that need it."""
        ranks = scenarios.graph.ranks
        asked = [
            (finding, named)
            for finding, suspect in told
            if finding.cause not in _KNOWN
            and (named := [rank for rank in (ranks[place] for place in suspect.places) if rank in self._shallow][:OF_ONE])
        ][: NAMED // OF_ONE]
        blamed = {ranks[place] for _, suspect in told for place in suspect.places}
        peers = [self._peers(named, blamed, scenarios, (MOST - NAMED) // len(asked)) for _, named in asked]
        wanted = list(dict.fromkeys(rank for one in [*(named for _, named in asked), *peers] for rank in one))
        digests = self._in_full(wanted) if wanted else {}
        for (finding, named), others in zip(asked, peers, strict=True):
            mine, theirs = ([digests[rank] for rank in several if rank in digests] for several in (named, others))
            if mine and theirs:
                _explain(finding, mine, theirs, scenarios.graph.steps)

    def _peers(self, named: Sequence[int], blamed: Collection[int], scenarios: Scenarios, most: int) -> list[int]:
        """Ranks of the same role that nobody blames, the nearest ones."""
        graph = scenarios.graph
        role = graph.variants[0].role
        own = role[graph.ranks.index(named[0])]
        alike = [rank for place, rank in enumerate(graph.ranks) if role[place] == own and rank not in blamed]
        return sorted(alike, key=lambda rank: (abs(rank - named[0]), rank))[:most]

    def _in_full(self, ranks: Sequence[int]) -> dict[int, Digests]:
        """The digests of ranks with one capture; what cannot be read in full stays as it is."""
        paths = {self._captures[rank][0]: rank for rank in ranks if len(self._captures.get(rank, ())) == 1}
        found = {}
        for outcome in self._read(sorted(paths)):
            digests = store.from_bytes(outcome.data) if isinstance(outcome.data, bytes) else outcome.data
            if digests is not None and outcome.path in paths:
                found[paths[outcome.path]] = digests
        return found


def _explain(finding: Finding, mine: Sequence[Digests], theirs: Sequence[Digests], steps: Sequence[int]) -> None:
    own = np.mean([_spent(one, steps) for one in mine], axis=0)
    over = own - np.median([_spent(one, steps) for one in theirs], axis=0)
    total = float(over.sum())
    if total <= 0:
        return
    order = [int(cause) for cause in np.argsort(-over) if over[cause] > 0]
    shares = {CAUSES[cause]: float(over[cause]) / total for cause in order}
    first, *rest = shares
    one, two = shares[first], shares[first] + (shares[rest[0]] if rest else 0.0)
    clock = _low_clock(mine, theirs) if first == "compute" else []
    if (one < ENOUGH and two < ENOUGH) or first in ("other", *["compute"] * (not clock)):
        return  # nothing that the small files did not tell
    finding.causes = dict(list(shares.items())[:3])
    finding.cause = first if one >= ENOUGH else f"{first}+{rest[0]}"
    finding.explained = one if one >= ENOUGH else two
    if first == "compute":
        finding.cause = "frequency" if one >= ENOUGH else finding.cause
    ranks = sorted(int(one["cluster_ranks"]["rank"][0]) for one in [*mine, *theirs])
    told = [] if clock else [{"what": first, "ms_per_step_above_peers": round(float(over[CAUSES.index(first)]) / 1e6, 4)}]
    finding.evidence = [*finding.evidence, *clock, *told, {"what": "second look", "ranks": ranks}]


def _spent(digests: Digests, steps: Sequence[int]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Local time of a step by cause, ns; of all that was recorded where a capture counts other steps in full."""
    calls = digests["cluster_calls"]
    if set(steps) <= set(calls["step"].to_list()):
        calls = calls.filter(pl.col("step").is_in(list(steps)))
    spent = calls.select(pl.col(f"w_{cause}").sum() for cause in CAUSES).row(0)
    return np.array(spent, dtype=np.float64) / max(len(steps), 1)


def _low_clock(mine: Sequence[Digests], theirs: Sequence[Digests]) -> list[dict[str, Any]]:
    own, usual = ([value for one in several for value in frequencies(one).values()] for several in (mine, theirs))
    if not own or not usual or np.mean(own) >= SLOWER_CLOCK * np.median(usual):
        return []
    return [{"what": "frequency", "mhz": round(float(np.mean(own)), 1), "peers_mhz": round(float(np.median(usual)), 1)}]
