# SPDX-License-Identifier: Apache-2.0
"""Which calls of different ranks are the same call.

The key of a call is its group, its step and its turn in the group's program order; of a point-to-point call sender, receiver,
step and turn. Groups are the same when they have the same members and name; where members are not recorded, when ranks hold the
same key. Where counts or signatures disagree (a capture that began later), one shift of a rank's sequence is searched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from stepscope.analysis.partition.spans import Ints
from stepscope.cluster.digest import Digests

P2P = ("send", "recv", "sendrecv")
# Sizes of these differ between the ranks of one call.
VARIABLE = ("alltoall", "alltoallv", "alltoallvc", "gather", "scatter", "send", "recv", "sendrecv", "batchsendrecv")


@dataclass(frozen=True)
class Group:
    """Ranks that communicate with each other."""

    members: tuple[int, ...]
    name: str  # what the program calls it; empty when unknown
    keys: tuple[str, ...]  # how the ranks call it
    certain: bool  # members were recorded, not only seen


@dataclass(frozen=True)
class Matches:
    """The calls of a run.

    Attributes:
        rows: rows of `cluster_calls` without closing rows, in their order: rank, step, index, call (null when unmatched), gid,
            source and target of a point-to-point call, and what the calls are compared by: op, folded, start_ns, end_ns.
        groups: by gid.
        call_group: gid of each call.
        size: ranks seen in each call.
        expected: ranks that the call should have.
    """

    rows: pl.DataFrame
    groups: list[Group]
    call_group: Ints
    size: Ints
    expected: Ints
    shifted: int = 0
    dropped: int = 0
    unmatched: list[str] = field(default_factory=list)  # groups of which nothing could be matched

    @property
    def quality(self) -> dict[str, int]:
        matched = int(self.rows["call"].count())
        alone = int((self.size == 1).sum())
        return {"rows": self.rows.height, "matched": matched - alone, "shifted": self.shifted, "dropped": self.dropped}


def groups_of(digests: Digests) -> tuple[pl.DataFrame, list[Group]]:
    """(rank, group) -> gid, and the groups."""
    listed = digests["cluster_groups"].select("rank", "group", "pg_name", "listed")
    lists = {int(key): tuple(members) for key, members in digests["cluster_members"].iter_rows()}
    holds = {key: frozenset(members) for key, members in lists.items()}
    seen = digests["cluster_calls"].drop_nulls("group").select("rank", "group").unique().sort("group", "rank")
    known = seen.join(listed.unique(["rank", "group"], keep="first", maintain_order=True), on=["rank", "group"], how="left")
    # A key is listed with members on some ranks only: what one rank knows holds for all that use the key, if it is among them.
    named = known.filter(known["listed"].is_in(list(lists))).sort("rank").unique("group", keep="first", maintain_order=True)
    told = known.join(named.select("group", told="listed", told_name="pg_name"), on="group", how="left")
    found: dict[tuple[int | tuple[int, ...], str], int] = {}
    members_of: list[tuple[int, ...]] = []
    keys: list[set[str]] = []
    certain: list[bool] = []
    holders = {str(key): tuple(ranks) for key, ranks in told.group_by("group").agg(pl.col("rank").unique().sort()).iter_rows()}
    gids = []
    for rank, key, name, own, other, other_name in told.select(
        "rank", "group", "pg_name", "listed", "told", "told_name"
    ).iter_rows():
        if other is not None and rank in holds[other]:
            own, name = own if own in lists else other, name or other_name
        members = lists.get(own)
        # The key of a list stands for it: comparing the lists of ten thousand ranks takes long.
        what = own if members is not None else holders[key]
        gid = found.setdefault((what, name or ("" if members is not None else key)), len(found))
        if gid == len(keys):
            keys.append(set())
            certain.append(members is not None)
            members_of.append(members if members is not None else holders[key])
        keys[gid].add(key)
        gids.append(gid)
    groups = [
        Group(members_of[gid], name if certain[gid] else "", tuple(sorted(keys[gid])), certain[gid])
        for (_, name), gid in found.items()
    ]
    return told.select("rank", "group").with_columns(gid=pl.Series(gids, dtype=pl.Int64)), groups


def same_steps(digests: Digests) -> tuple[Digests, dict[int, int]]:
    """Digests in which ranks that count steps from another number have the numbers of the others; by how much they differed.

    A rank is renumbered when it has no step in common with most ranks, as many steps as they have, and the same calls in them as
    a rank that it shares a group with.
    """
    steps = digests["cluster_steps"].drop_nulls("step").select("rank", "step").unique().sort("rank", "step")
    have = {int(rank): tuple(numbers) for rank, numbers in steps.group_by("rank", maintain_order=True).agg("step").iter_rows()}
    if len(set(have.values())) < 2:
        return digests, {}
    usual, count = Counter(have.values()).most_common(1)[0]
    odd = [rank for rank, own in have.items() if len(own) == len(usual) and not set(own) & set(usual)]
    if not odd or 2 * count <= len(have):
        return digests, {}
    known, _ = groups_of(digests)
    calls = digests["cluster_calls"].drop_nulls(["op", "step"]).join(known, on=["rank", "group"]).sort("rank", "step", "index")
    # Who sends and who receives differs between the ranks of a call, as do sizes of some operators.
    sized = pl.concat_str("op", pl.col("bytes").fill_null(-1))
    text = pl.when(pl.col("op").is_in(list(VARIABLE))).then(pl.lit("v")).otherwise(sized)
    per_step = calls.group_by("rank", "gid", "step", maintain_order=True).agg(text.str.join("|"))
    lists = {
        (rank, gid): (tuple(numbers), tuple(texts))
        for rank, gid, numbers, texts in per_step.group_by("rank", "gid", maintain_order=True).agg("step", pl.last()).iter_rows()
    }
    right = {(gid, texts) for (rank, gid), (numbers, texts) in lists.items() if have[rank] == usual and numbers == usual}
    shift = {
        rank: usual[0] - have[rank][0]
        for rank in odd
        if any((gid, texts) in right for (one, gid), (numbers, texts) in lists.items() if one == rank and numbers == have[rank])
    }
    if not shift:
        return digests, {}
    by = pl.col("rank").replace_strict(shift, default=0, return_dtype=pl.Int64)
    frames = {
        name: frame.with_columns(step=pl.col("step") + by) if "step" in frame.columns else frame
        for name, frame in digests.frames.items()
    }
    return Digests(frames), {rank: -by_ for rank, by_ in shift.items()}


def numbered(rows: pl.DataFrame, by: Sequence[str]) -> pl.Series:
    """A number from 0 for each different combination of the columns, in the order of their values."""
    known = rows.select(by).unique().sort(by).with_row_index("number")
    numbers: pl.Series = rows.select(by).join(known, on=list(by), how="left", nulls_equal=True, maintain_order="left")["number"]
    whole: pl.Series = numbers.cast(pl.Int64)
    return whole


def match(digests: Digests) -> Matches:
    """Number the calls of a run."""
    of_rank, groups = groups_of(digests)
    calls = digests["cluster_calls"].filter(pl.col("op").is_not_null())
    rows = calls.join(of_rank, on=["rank", "group"], how="left", maintain_order="left")
    sizes = pl.Series([len(group.members) for group in groups], dtype=pl.Int64)
    size = sizes.gather(rows["gid"]).alias("size") if groups else pl.Series("size", [], dtype=pl.Int64)
    rows = rows.with_columns(size)
    op = pl.col("op")
    partner = pl.col("peer")
    direct = op.is_in(["send", "recv"]) & partner.is_not_null()
    source = pl.when(direct).then(pl.when(op == "send").then("rank").otherwise(partner))
    target = pl.when(direct).then(pl.when(op == "send").then(partner).otherwise("rank"))
    signature = pl.when(op.is_in(["send", "recv"])).then(pl.lit("p2p")).otherwise(op)
    fixed = ~op.is_in(list(VARIABLE)) & ~pl.col("variable").fill_null(False)
    rows = rows.select(
        "rank",
        "step",
        "index",
        "op",
        "gid",
        "size",
        source.alias("src"),
        target.alias("dst"),
        "seq",
        "folded",
        "start_ns",
        "end_ns",
        pl.concat_str(signature, pl.when(fixed).then(pl.col("bytes")).cast(pl.String).fill_null("?"), separator=" ").alias("sig"),
    )
    # A pair is the same pair in whatever group it is used.
    rows = rows.with_columns(gid_key=pl.when(pl.col("src").is_not_null()).then(-1).otherwise("gid"))
    key = ["gid_key", "src", "dst", "step"]
    rows = rows.with_columns(numbered(rows, key).alias("key"))
    rows = rows.with_columns(turn=pl.int_range(pl.len()).over("key", "rank"))
    sequence = rows.group_by("key", "rank").agg(pl.len().alias("n"), pl.col("sig").str.join("|").hash().alias("all"))
    uneven = sequence.group_by("key").agg(pl.col("n").n_unique().alias("counts"), pl.col("all").n_unique().alias("signatures"))
    odd = uneven.filter((pl.col("counts") > 1) | (pl.col("signatures") > 1))["key"]
    shifts, dropped, unmatched = _shifts(rows.filter(pl.col("key").is_in(odd.implode())), groups)
    if odd.len():
        shift_of = pl.DataFrame(shifts, schema={"key": pl.Int64, "rank": pl.Int64, "shift": pl.Int64}, orient="row")
        rows = rows.join(shift_of, on=["key", "rank"], how="left", maintain_order="left")
        is_odd = pl.col("key").is_in(odd.implode())
        rows = rows.with_columns(turn=pl.when(is_odd).then(pl.col("turn") + pl.col("shift")).otherwise("turn")).drop("shift")
    usable = (pl.col("turn").is_not_null() & (pl.col("size") > 1)).fill_null(False)
    turns = rows.select("key", turn=pl.when(usable).then("turn"))
    number = numbered(turns.drop_nulls("turn"), ["key", "turn"])
    place = pl.when(pl.col("turn").is_not_null()).then(pl.col("turn").is_not_null().cum_sum().cast(pl.Int64) - 1)
    rows = rows.with_columns(number.gather(turns.select(place).to_series()).alias("call"))
    calls_seen = (
        rows.drop_nulls("call")
        .group_by("call")
        .agg(pl.col("gid").first(), pl.col("rank").n_unique().alias("seen"), pl.col("src").first())
        .sort("call")
    )
    call_group = calls_seen["gid"].to_numpy()
    pairs = calls_seen["src"].is_not_null().to_numpy()
    sizes_of = sizes.to_numpy()[call_group] if groups and len(call_group) else np.empty(0, dtype=np.int64)
    expected = np.where(pairs, 2, sizes_of)
    return Matches(
        rows.select("rank", "step", "index", "call", "gid", "src", "dst", "op", "folded", "start_ns", "end_ns"),
        groups,
        call_group,
        calls_seen["seen"].to_numpy().astype(np.int64),
        expected.astype(np.int64),
        sum(1 for _, _, shift in shifts if shift),
        dropped,
        unmatched,
    )


def _shifts(rows: pl.DataFrame, groups: Sequence[Group]) -> tuple[list[tuple[int, int, int]], int, list[str]]:
    """Shift of each rank's sequence against the others', for keys whose sequences differ; those that fit nowhere are left out."""
    found: list[tuple[int, int, int]] = []
    dropped, unmatched = 0, []
    for (key,), part in rows.group_by("key", maintain_order=True):
        lists = {int(rank): sigs for rank, sigs in part.group_by("rank", maintain_order=True).agg("sig").iter_rows()}
        lengths = Counter(len(sigs) for sigs in lists.values())
        usual = lengths.most_common(1)[0][0]
        longest = max(lists.values(), key=len)
        most = sum(len(sigs) == usual for sigs in lists.values())
        reference = (
            longest if len(longest) > usual and 2 * most <= len(lists) else next(s for s in lists.values() if len(s) == usual)
        )
        fitted = 0
        for rank, sigs in lists.items():
            shift = _shift(sigs, reference)
            if shift is None:
                dropped += len(sigs)
            else:
                fitted += 1
                found.append((int(key), rank, shift))
        if fitted < 2 and len(lists) > 1:
            gid = part["gid"][0]
            unmatched.append(", ".join(groups[gid].keys) if gid is not None else "?")
    return found, dropped, unmatched


def _shift(sigs: list[str], reference: list[str]) -> int | None:
    if sigs == reference:
        return 0
    fits = [by for by in range(-len(sigs) + 1, len(reference)) if _agree(sigs, reference, by)]
    # A capture begins late (its end fits) or ends early (its begin fits); anything else must be the only way.
    for wanted in (len(reference) - len(sigs), 0):
        if wanted in fits:
            return wanted
    return fits[0] if len(fits) == 1 else None


def _agree(sigs: list[str], reference: list[str], by: int) -> bool:
    low, high = max(0, -by), min(len(sigs), len(reference) - by)
    enough = max(1, min(len(sigs), len(reference)) // 2)
    return high - low >= enough and sigs[low:high] == reference[low + by : high + by]
