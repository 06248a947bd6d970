# SPDX-License-Identifier: Apache-2.0
"""How the ranks share the model: tensor, pipeline, data, context and expert parallelism, as given or as the groups show."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from stepscope.cluster.digest import Digests
from stepscope.cluster.match import Matches
from stepscope.cluster.whatif.graph import Graph

WORDS = ("tp", "pp", "dp", "cp", "ep")
_NAMES = {
    "tp": "tp", "tensor": "tp", "tensor_model_parallel": "tp", "pp": "pp", "pipeline": "pp", "pipeline_model_parallel": "pp",
    "dp": "dp", "dp_cp": "dp", "data_parallel": "dp", "cp": "cp", "context_parallel": "cp", "ep": "ep", "expert": "ep", "exp": "ep",
}  # fmt: skip


@dataclass
class Layout:
    """Sizes by word; None where unknown. `stage` is the pipeline stage of each rank, None without a pipeline."""

    sizes: dict[str, int | None]
    source: str  # given, groups, or unknown
    stage: dict[int, int] = field(default_factory=dict)
    contradictions: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return {**self.sizes, "source": self.source}


def layout_of(digests: Digests, matches: Matches, graph: Graph | None) -> Layout:
    """The layout of a run."""
    ranks = digests["cluster_ranks"]
    given = {word: _one_value(ranks[word]) for word in WORDS}
    stage = graph.variants[0].stage if graph else {}
    inferred = _inferred(digests, matches, stage)
    if not any(value is not None for value in given.values()):
        return Layout(inferred, "groups" if any(value is not None for value in inferred.values()) else "unknown", stage)
    contradictions = [
        f"{word}: the captures say {given[word]}, the groups show {inferred[word]}"
        for word in ("tp", "pp")
        if given[word] is not None and inferred[word] is not None and given[word] != inferred[word]
    ]
    sizes = {word: inferred[word] if word in {text[:2] for text in contradictions} else given[word] for word in WORDS}
    return Layout(
        {word: sizes[word] if sizes[word] is not None else inferred[word] for word in WORDS}, "given", stage, contradictions
    )


def _one_value(column: pl.Series) -> int | None:
    known = column.drop_nulls().unique()
    return int(known[0]) if known.len() == 1 else None


def _inferred(digests: Digests, matches: Matches, stage: dict[int, int]) -> dict[str, int | None]:
    sizes: dict[str, int | None] = dict.fromkeys(WORDS)
    world = len(digests.ranks)
    if stage:
        sizes["pp"] = max(stage.values()) + 1
    named = {gid: _NAMES[group.name.lower()] for gid, group in enumerate(matches.groups) if group.name.lower() in _NAMES}
    for gid, word in named.items():
        if word != "pp":
            sizes[word] = max(sizes[word] or 1, len(matches.groups[gid].members))
    use = matches.rows.group_by("gid", "op").agg(pl.len().alias("calls"))
    traffic: dict[int, int] = {}
    to_all = set()
    for gid, op, calls in use.sort("gid", "op").iter_rows():
        if gid is None or op in ("send", "recv"):
            continue
        traffic[gid] = traffic.get(gid, 0) + calls
        if str(op).startswith("alltoall"):
            to_all.add(gid)
    families: dict[tuple[int, int], list[int]] = {}
    for gid in traffic:
        members = matches.groups[gid].members
        if gid in named or not 1 < len(members) < max(world, 2):
            continue
        strides = set(np.diff(members).tolist())
        if len(strides) == 1:
            families.setdefault((len(members), int(strides.pop())), []).append(gid)
    for (size, stride), gids in sorted(families.items(), key=lambda one: (one[0][1], -sum(traffic[gid] for gid in one[1]))):
        per_rank = sum(traffic[gid] for gid in gids) / max(size * len(gids), 1)
        if to_all & set(gids):
            sizes["ep"] = sizes["ep"] or size
        elif stride == 1 and sizes["tp"] is None and per_rank > 1 and len(families) + bool(stage) > 1:
            sizes["tp"] = size
        else:
            sizes["dp"] = max(sizes["dp"] or 1, size)
    if sizes["dp"] is None and world > 1:
        left = world // ((sizes["tp"] or 1) * (sizes["pp"] or 1) * (sizes["cp"] or 1))
        whole = any(len(matches.groups[gid].members) == world for gid in traffic)
        if whole and sizes["pp"] is None and sizes["tp"] is None and left > 0:
            sizes["dp"] = left
    return sizes
