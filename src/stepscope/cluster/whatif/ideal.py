# SPDX-License-Identifier: Apache-2.0
"""What each rank's work and each transfer would take if nobody were slow: the middle of its peers.

Work is compared with ranks of the same role at the same position of the same step; the middle of the totals, not the sum of
the middles of the causes, because causes trade places. Transfers are compared with calls of the same operator, size and kind of
group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl

from stepscope.analysis.partition.spans import Ints
from stepscope.cluster.match import Group
from stepscope.cluster.whatif.graph import Graph, Variant
from stepscope.cluster.whatif.replay import Flags, Floats

COMPUTE = 0
SLOW_PACE = 1.03  # a role is slow as a whole when its kernels take this much longer than everywhere else
FEW = 3  # peers below this are no measure
HOST_GAP = 0.03  # hosts of one role that differ by more than this may be slow as a whole
HEALTHY = 0.35  # quantile of a kernel's times over ranks that counts as normal: half of the ranks may be on a slow host


@dataclass
class Ideal:
    """By variant and step: rows (and rows × causes) of ideal work, calls of ideal transfer."""

    total: list[Floats]  # steps × rows
    causes: list[Floats]  # steps × rows × causes
    transfer: list[Floats]  # steps × calls
    transfer_class: list[Ints]
    peers: Ints  # of each rank
    pace: Floats  # of each rank: how much slower all its kernels are, 1 when not


def ideal_of(graph: Graph, pace: Floats, hosts: Sequence[str | None], groups: Sequence[Group]) -> Ideal:
    """The ideal of every step."""
    totals, parts, transfers, classes = [], [], [], []
    peers = np.bincount(graph.variants[0].role)[graph.variants[0].role]
    for variant in graph.variants:
        total, causes = _work(variant, pace, hosts)
        transfer, kind = _transfers(variant, graph.ranks, hosts, groups)
        totals.append(total)
        parts.append(causes)
        transfers.append(transfer)
        classes.append(kind)
    return Ideal(totals, parts, transfers, classes, peers, pace)


def _work(variant: Variant, pace: Floats, hosts: Sequence[str | None]) -> tuple[Floats, Floats]:
    rank, role = variant.rank, variant.role
    even = variant.work.copy()
    roles = int(role.max()) + 1
    whole = np.array([np.median(pace[role == one]) for one in range(roles)])
    even[..., COMPUTE] /= np.where(whole[role] > SLOW_PACE, pace, 1.0)[rank]
    members = np.bincount(role)[role][rank]
    measure = _measure(even.sum(2), variant, hosts)[rank]
    causes = np.stack([peers_median(variant.key, even[..., cause], measure) for cause in range(even.shape[2])], -1)
    total = peers_median(variant.key, even.sum(2), measure)
    pair = members == 2
    if pair.any():
        # Of two peers the faster one is the measure.
        spent = np.bincount(rank, even.sum(2).sum(0), len(role))
        for one in np.flatnonzero(np.bincount(role) == 2):
            first, second = np.flatnonzero(role == one)
            fast = first if spent[first] <= spent[second] else second
            for other in (first, second):
                causes[:, rank == other] = even[:, rank == fast]
                total[:, rank == other] = even[:, rank == fast].sum(2)
    lone = members == 1
    if lone.any():
        own = even[:, lone]
        usual = np.median(own, axis=0, keepdims=True)
        causes[:, lone] = usual
        total[:, lone] = np.median(own.sum(2), axis=0, keepdims=True)
        _borrow(variant, even, causes, total, lone)
    return total, causes


def _borrow(variant: Variant, even: Floats, causes: Floats, total: Floats, lone: Flags) -> None:
    """Ranks without peers are compared with all ranks where a cause does not depend on the role: nobody has to collect garbage."""
    rank, ranks = variant.rank, len(variant.role)
    if ranks < FEW:
        return
    for cause in (2, 3, 4):  # gc, allocation, checkpoint
        spent = np.stack([np.bincount(rank, even[at, :, cause], ranks) for at in range(len(even))])
        usual = np.median(spent)
        for one in np.unique(rank[lone]):
            mine = float(np.median(spent[:, one]))
            if mine > usual:
                rows = rank == one
                less = causes[:, rows, cause] * (1 - usual / mine)
                causes[:, rows, cause] -= less
                total[:, rows] -= less


def _measure(spent: Floats, variant: Variant, hosts: Sequence[str | None]) -> Flags:
    """Ranks that the middle is taken of: where about half of a role is on hosts that are clearly slower, only the other half."""
    role, ranks = variant.role, len(variant.role)
    use = np.ones(ranks, dtype=np.bool_)
    if any(host is None for host in hosts) or len(set(hosts)) < 2:
        return use
    total = np.bincount(variant.rank, spent.mean(0), ranks)
    where = np.array([str(host) for host in hosts])
    for one in range(int(role.max()) + 1):
        mine = np.flatnonzero(role == one)
        names = np.unique(where[mine])
        if len(names) < 2 or len(mine) < 4:
            continue
        middle = np.array([np.median(total[mine[where[mine] == name]]) for name in names])
        within = np.median([abs(total[place] - middle[np.flatnonzero(names == where[place])[0]]) for place in mine])
        order = np.argsort(middle)
        gaps = np.diff(middle[order])
        cut = int(gaps.argmax())
        slow = np.isin(where[mine], names[order[cut + 1 :]])
        if gaps[cut] > max(HOST_GAP * middle[order[cut]], 5 * within) and 0.4 <= slow.mean() <= 0.6:
            use[mine[slow]] = False
    return use


def peers_median(key: Ints, values: Floats, use: Flags | None = None) -> Floats:
    """Middle over rows of the same key, steps apart; rows that `use` leaves out get it too, and do not count for it."""
    order = np.argsort(key, kind="stable")
    start = np.searchsorted(key[order], np.arange(int(key.max()) + 2))
    sizes = np.diff(start)
    result = np.empty_like(values)
    if use is not None and not use.all():
        values = np.where(use, values, np.nan)
    for size in np.unique(sizes):
        which = np.flatnonzero(sizes == size)
        rows = order[start[which][:, None] + np.arange(size)]
        middle = np.median if use is None or use.all() else np.nanmedian
        result[..., rows] = middle(values[..., rows], axis=-1, keepdims=True)
    return result


def _transfers(variant: Variant, ranks: Sequence[int], hosts: Sequence[str | None], groups: Sequence[Group]) -> tuple[Floats, Ints]:
    """Middle by operator, bytes and kind of group, over calls whose members are all there where there are such."""
    calls = variant.program.calls
    host_of = _with_missing(ranks, hosts, groups)
    shapes: dict[object, tuple[object, ...]] = {}
    kinds: dict[tuple[object, ...], int] = {}
    kind = np.empty(calls, dtype=np.int64)
    names: dict[object, int] = {}
    for call in range(calls):
        pair = variant.pairs[call]
        group: object = pair or int(variant.gid[call])
        if group not in shapes:
            members = pair or groups[int(variant.gid[call])].members
            shapes[group] = _group_shape(members, host_of, "" if pair else groups[int(variant.gid[call])].name)
        what = (variant.ops[call], int(variant.bytes[call]), shapes[group])
        kind[call] = kinds.setdefault(what, len(kinds))
    ideal = np.empty_like(variant.transfer)
    owner = np.array([names.setdefault(pair or int(gid), len(names)) for pair, gid in zip(variant.pairs, variant.gid, strict=True)])
    usual = np.median(variant.transfer, axis=0)
    frame = pl.DataFrame({"kind": kind, "owner": owner, "usual": usual, "whole": variant.complete})
    # The middle of the groups, not of the calls; of two groups the faster one. A transfer takes no longer than a call that lacks a
    # member, so that a group of which some is missing may be the faster one. Where no call of a kind has all its members, some of
    # what looks like transfer is waiting for the missing one: the shortest is the measure.
    frame = frame.with_columns(known=pl.col("whole").any().over("kind"))
    frame = frame.with_columns(usual=pl.when("known").then("usual").otherwise(pl.col("usual").min().over("kind")))
    by_group = frame.group_by("kind", "owner").agg(pl.col("usual").median(), (pl.col("whole") | ~pl.col("known")).any())
    slowest = pl.col("usual").filter("whole").max().over("kind")
    by_group = by_group.filter(pl.col("whole") | (pl.col("usual") < slowest))
    middle = by_group.group_by("kind").agg(pl.col("usual").quantile(0.5, "lower")).sort("kind")
    ideal[:] = middle["usual"].to_numpy()[kind] if calls else 0.0
    return ideal, kind


def _with_missing(ranks: Sequence[int], hosts: Sequence[str | None], groups: Sequence[Group]) -> dict[int, str | None]:
    """Host by rank; that of a rank without a capture by its neighbours, if hosts hold blocks of as many ranks."""
    known = dict(zip(ranks, hosts, strict=True))
    sizes = Counter(host for host in hosts if host is not None)
    block = max(sizes.values(), default=0)
    if not block:
        return known
    inside: dict[int, set[str | None]] = {}
    for rank, host in zip(ranks, hosts, strict=True):
        inside.setdefault(rank // block, set()).add(host)
    for rank in {member for group in groups for member in group.members} - set(ranks):
        there = inside.get(rank // block, set())
        known[rank] = next(iter(there)) if len(there) == 1 else None
    return known


def _group_shape(members: Sequence[int], host_of: dict[int, str | None], name: str) -> tuple[object, ...]:
    """What groups must share to be compared: size, stride, hosts that they span, name unless it is but a number."""
    strides = {abs(after - before) for before, after in pairwise(members)}
    known = {host_of.get(one) for one in members}
    spans = 0 if None in known else len(known)
    return len(members), (strides.pop() if len(strides) == 1 else -1), spans, "" if name.isdigit() else name


def pace_of(kernels: pl.DataFrame, ranks: Sequence[int], frequency: Mapping[int, float]) -> Floats:
    """Per rank: by how much all kernels of the same name and shapes are slower than on other ranks, when they agree on it.

    Args:
        frequency: of the cores, by rank. It decides where ranks with a lower one have no kernel in common with the others.
    """
    pace = np.ones(len(ranks))
    if not kernels.height:
        return pace
    mean = kernels.filter((pl.col("count") > 0) & (pl.col("total_ns") > 0)).with_columns(mean=pl.col("total_ns") / pl.col("count"))
    # What makes up nine tenths of a rank's time; the rest is noise.
    mean = mean.sort(["rank", "total_ns"], descending=[False, True]).with_columns(
        before=(pl.col("total_ns").cum_sum() - pl.col("total_ns")).over("rank") / pl.col("total_ns").sum().over("rank")
    )
    usual = mean.group_by("name", "shapes").agg(pl.col("mean").quantile(HEALTHY, "lower").alias("usual"), pl.len().alias("on"))
    ratio = mean.filter(pl.col("before") < 0.9).join(usual.filter(pl.col("on") > 1), on=["name", "shapes"], nulls_equal=True)
    ratio = ratio.with_columns(ratio=pl.col("mean") / pl.col("usual"))
    found = ratio.group_by("rank").agg(
        pl.col("ratio").quantile(0.1).alias("low"), pl.col("ratio").median().alias("middle"),
        pl.col("ratio").quantile(0.9).alias("high"), pl.len().alias("n"),
    )  # fmt: skip
    place = {rank: number for number, rank in enumerate(ranks)}
    for rank, low, middle, high, count in found.iter_rows():
        if rank in place and count >= 3 and middle > 1.02 and high - low < 0.25 * (middle - 1):
            pace[place[rank]] = middle
    if len(frequency) < len(ranks):
        return pace
    usual_clock = float(np.quantile([frequency[rank] for rank in ranks], 1 - HEALTHY))
    low = [rank for rank in ranks if usual_clock > SLOW_PACE * frequency[rank] > 0]
    elsewhere = usual.select("name", "shapes").join(
        kernels.filter(~pl.col("rank").is_in(low)).select("name", "shapes"), on=["name", "shapes"], how="semi", nulls_equal=True
    )
    shared = mean.filter(pl.col("before") < 0.9).join(elsewhere, on=["name", "shapes"], how="semi", nulls_equal=True)
    for rank in set(low) - set(shared["rank"].to_list()):
        pace[place[rank]] = usual_clock / frequency[rank]
    return pace
