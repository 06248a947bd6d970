# SPDX-License-Identifier: Apache-2.0
"""What a recording that lacks ranks or steps tells about waiting: for whom nobody recorded, and for whom in the only step."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from stepscope.cluster.digest import Digests
from stepscope.cluster.match import P2P, Group, Matches

LEAST_SHARE = 0.02  # of a step: from where the verdict about single ranks speaks of waiting


def places_of(digests: Digests, group: Group) -> int:
    """How many members a group has at least: as many as were recorded, or as its transfers name."""
    if group.certain:
        return len(group.members)
    ends = digests["cluster_links"].filter(pl.col("group").is_in(group.keys)).select(pl.max_horizontal("src", "dst").max())
    return max(len(group.members), 1 + int(ends.item())) if ends.height and ends.item() is not None else len(group.members)


def members_of(digests: Digests, group: Group) -> set[int]:
    """The ranks of a group as far as they are known.

    Transfers count inside the group; where every recorded rank sends under its own number, the group is the world.
    """
    members = set(group.members)
    if group.certain:
        return members
    own = digests["cluster_links"].filter(pl.col("group").is_in(group.keys) & pl.col("rank").is_in(group.members))
    as_themselves = own.height > 0 and bool((own["src"] == own["rank"]).all())
    return members | set(range(places_of(digests, group))) if as_themselves else members


def wait_outside(digests: Digests, matches: Matches, steps: Sequence[int]) -> float:
    """Time per step that every recorded rank of a call waits in it, for a member that was not recorded, in ns.

    Where all of them wait, none of them is the last. What is hidden behind computing costs nothing.
    """
    present = set(digests.ranks)
    lacking = [
        gid
        for gid, group in enumerate(matches.groups)
        if places_of(digests, group) > len(group.members) or not present.issuperset(group.members)
    ]
    if not lacking or not steps:
        return 0.0
    waits = digests["cluster_calls"].select("rank", "step", "index", pl.col("wait_ns").fill_null(0))
    calls = matches.rows.drop_nulls("call").filter(pl.col("gid").is_in(lacking) & pl.col("step").is_in(list(steps)))
    calls = calls.select("rank", "step", "index", "call").join(waits, on=["rank", "step", "index"])
    least = calls.with_columns(pl.col("wait_ns").min().over("call"))
    # Several ranks wait at the same time, each in a pair or group of its own: the longest wait of a rank counts, not their sum.
    by_rank = least.group_by("step", "rank").agg(pl.col("wait_ns").sum())
    both = by_rank.join(digests["cluster_steps"].select("step", "rank", "exposed_ns"), on=["step", "rank"], how="left")
    by_step = both.group_by("step").agg(pl.min_horizontal("wait_ns", "exposed_ns").max())
    return float(by_step["wait_ns"].sum()) / len(steps)


def latest_rank(matches: Matches, step: int) -> tuple[int, float]:
    """The rank that the others wait for most in one step, and how long the one in the middle of them waits, in ns.

    Who stays in a call the shortest came last, as the verdict has it.
    """
    shared = pl.col("call").is_not_null() & (pl.col("step") == step) & ~pl.col("op").is_in(P2P)
    calls = matches.rows.filter(shared).select("rank", "call", length=pl.col("end_ns") - pl.col("start_ns")).drop_nulls("length")
    calls = calls.with_columns(
        late=pl.col("rank").sort_by("length").first().over("call"), wait=pl.col("length") - pl.col("length").min().over("call")
    )
    ranks = calls["rank"].unique().sort()
    if ranks.len() < 2:
        return -1, 0.0
    waits = calls.filter(pl.col("rank") != pl.col("late")).group_by("late", "rank").agg(pl.col("wait").sum())
    # Of all others: whoever shares no call with it does not wait for it. Pairs of ranks are not made, of which there are 10^8.
    others = ranks.len() - 1
    idle = others - pl.len().cast(pl.Int64)

    def at(place: int) -> pl.Expr:
        waiting = pl.col("wait").sort().get((place - idle).clip(lower_bound=0))
        return pl.when(idle <= place).then(waiting).otherwise(0).cast(pl.Float64)

    middle = (at((others - 1) // 2) + at(others // 2)) / 2
    lost = waits.group_by("late").agg(middle.alias("wait"))
    rank, wait = lost.sort("wait", "late", descending=[True, False]).row(0)
    return int(rank), float(wait)
