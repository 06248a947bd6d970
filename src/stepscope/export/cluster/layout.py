# SPDX-License-Identifier: Apache-2.0
"""Which ranks form a pipeline stage, and where a rank stands in the parallel layout, by the rules of msprof-analyze."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Index = tuple[int, int, int]  # of data, pipeline and tensor parallelism


def stage_groups(collective: Mapping[str, set[int]], pipeline: Sequence[set[int]]) -> list[list[int]]:
    """The ranks of each stage; none without groups of the pipeline.

    Ranks belong together when a group joins them that does not reach along a pipeline.

    Args:
        collective: ranks of the groups with collective operators, by name.
        pipeline: ranks of the groups with point-to-point operators that are called pp….
    """
    if not pipeline:
        return []
    chains = _chains(pipeline)
    stages: dict[int, set[int]] = {}
    for ranks in collective.values():
        if any(len(ranks & chain) > 1 for chain in chains):
            continue
        joined: set[int] = set()
        for first in [first for first, stage in stages.items() if ranks & stage]:
            joined = set().union(ranks, stages.pop(first), joined)
        if joined:
            stages[min(joined)] = joined
        else:
            stages[min(ranks)] = ranks
    return [list(stages[first]) for first in sorted(stages)]


def _chains(pipeline: Sequence[set[int]]) -> list[set[int]]:
    left = sorted(pipeline, key=min)
    found = []
    while left:
        chain, taken = set(left[0]), [left[0]]
        for link in left[1:]:
            if link & chain:
                chain |= link
                taken.append(link)
        found.append(chain)
        left = [link for link in left if link not in taken]
    return found


def parallel_indices(arguments: Mapping[str, Any]) -> list[Index | None] | None:
    """Place of each rank by Megatron's order; None when the sizes contradict each other."""
    names = (
        "world_size", "tensor_model_parallel_size", "pipeline_model_parallel_size", "data_parallel_size",
        "context_parallel_size", "expert_model_parallel_size",
    )  # fmt: skip
    sizes = [arguments.get(name, 1) for name in names]
    if not all(isinstance(size, int) and size >= 0 for size in sizes):
        return None
    world, tensor, pipe, data, context, expert = sizes[0], *(size or 1 for size in sizes[1:])
    if data % expert or data * context % expert or world != tensor * pipe * data:
        return None
    indices: list[Index | None] = [None] * world
    # Each list: ranks that differ in their data-parallel place only.
    stride, width = tensor * context, world // pipe
    apart = [range(begin + k, begin + width, stride) for begin in range(0, world, width) for k in range(stride)]
    for place in range(data):
        if any(place >= len(ranks) for ranks in apart):
            return None
        ranks = [ranks[place] for ranks in apart]
        for stage, begin in enumerate(range(0, len(ranks), tensor)):
            for number, rank in enumerate(ranks[begin : begin + tensor]):
                indices[rank] = (place, stage, number)
    return indices
