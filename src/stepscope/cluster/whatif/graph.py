# SPDX-License-Identifier: Apache-2.0
"""The steps of all ranks as programs that can be replayed, and who is whose peer.

Steps in which every rank has the same calls share one program. What a rank stands still for belongs to the program: it holds for
a position when some of the peers show it, since a slow rank never waits and would look independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from stepscope.analysis.partition.spans import Ints
from stepscope.cluster.clocks import TOGETHER, connected_offsets
from stepscope.cluster.digest import Digests
from stepscope.cluster.match import Matches, numbered
from stepscope.cluster.whatif.replay import Flags, Floats, Program
from stepscope.tables.cluster import CAUSES

VOTES = 0.1  # share of peers × steps that makes a wait part of the program
MOST_VARIANTS = 4
INFLATED = 1.3  # times the usual work of the middle rank: the profiler itself slowed the step
LEAST_INNER = 2  # steps between the first and the last that tell what is usual


@dataclass
class Variant:
    """Steps with one program.

    Attributes:
        work: steps × rows × causes, ns.
        transfer: steps × calls, ns: the shortest duration over the members.
        key: number of (role, position) of each row.
        call_row: one row of each call.
        complete: whether all members of a call were captured.
        stage: of the pipeline, by rank; empty without one.
    """

    program: Program
    steps: list[int]
    work: Floats
    transfer: Floats
    role: Ints
    key: Ints
    position: Ints
    ops: list[str]
    bytes: Ints
    gid: Ints
    pairs: list[tuple[int, int] | None]
    size: Ints
    complete: Flags
    stage: dict[int, int]

    @property
    def rank(self) -> Ints:
        return self.program.rank


@dataclass
class Graph:
    """All steps that can be replayed, in order of time."""

    ranks: list[int]
    variants: list[Variant]
    order: list[tuple[int, int]]  # (variant, place of the step in it), by time
    step_ns: Floats  # measured length of each step of `order`, median over ranks
    rank_ns: Floats  # measured length of all steps, by rank
    skew_ns: Floats  # when each rank entered the first step, after the first of them
    left_out: list[int] = field(default_factory=list)  # steps with a program of their own
    partial_ranks: list[int] = field(default_factory=list)  # ranks without common steps

    @property
    def steps(self) -> list[int]:
        return [self.variants[variant].steps[place] for variant, place in self.order]

    def times(
        self, work: list[list[Floats]], transfer: list[list[Floats]], begin: Floats | None = None
    ) -> tuple[Floats, Floats, Floats]:
        """Replay all steps one after the other.

        Args:
            work: by variant, by step: scenarios × rows.
            transfer: likewise, scenarios × calls.
            begin: when each rank enters the first step; all at once when absent.

        Returns:
            Length of each step (scenarios × steps), time each rank waited in all and time from its begin to its end (scenarios ×
            ranks).
        """
        count = len(work[self.order[0][0]][self.order[0][1]])
        first = np.zeros(len(self.ranks)) if begin is None else begin
        clock: Floats = np.repeat(first[None], count, 0)
        lengths = np.zeros((count, len(self.order)))
        waited = np.zeros((count, len(self.ranks)))
        before = np.zeros(count)
        for at, (variant, place) in enumerate(self.order):
            program = self.variants[variant].program
            own = work[variant][place]
            after, _, _ = program.run(own, transfer[variant][place], clock)
            busy = np.add.reduceat(own, program.first[:-1], axis=1)
            waited += after - clock - busy
            clock = after
            lengths[:, at] = clock.max(1) - before
            before = clock.max(1)
        return lengths, waited, clock - first


def build_graph(digests: Digests, matches: Matches) -> Graph | None:
    """The graph of the steps that all ranks have; None when there are none."""
    calls = digests["cluster_calls"]
    steps = digests["cluster_steps"].with_columns(length=pl.col("end_ns") - pl.col("start_ns"))
    steps = _without_inflated(steps, calls)
    ranks, partial, common = _common_steps(steps)
    if not ranks or not common:
        return None
    calls = calls.filter(pl.col("rank").is_in(ranks) & pl.col("step").is_in(common))
    keys = ["rank", "step", "index"]
    # A call that nobody else has (a group of one) is local work.
    expected = pl.Series("expected", matches.expected, dtype=pl.Int64).gather(matches.rows["call"])
    sized = matches.rows.select(*keys, "call", "gid", "src", "dst", expected)
    rows = calls.join(sized, on=keys, how="left", maintain_order="left")
    rows = rows.with_columns(
        pl.concat_str(
            pl.col("op").fill_null("end"),
            pl.col("gid").cast(pl.String).fill_null("-"),
            pl.col("peer").cast(pl.String).fill_null("-"),
            separator=":",
        ).alias("sig")
    )
    each = rows.group_by("rank", "step", maintain_order=True).agg(pl.col("sig").str.join(",").hash().alias("program"))
    per_step = (
        each.sort("rank").group_by("step").agg(pl.col("program").cast(pl.String).str.join(",").hash(), pl.len().alias("ranks"))
    )
    per_step = per_step.sort("step")
    counts = per_step.group_by("program").agg(pl.col("step").sort(), pl.len().alias("n"), pl.col("step").min().alias("first"))
    counts = counts.sort(["n", "first"], descending=[True, False])
    most = int(counts["n"][0])
    kept = [row for row in counts.iter_rows(named=True) if row["n"] > 1 or most == 1][:MOST_VARIANTS]
    used = {step for row in kept for step in row["step"]}
    place_of = {rank: place for place, rank in enumerate(ranks)}
    variants = [_variant(rows.filter(pl.col("step").is_in(row["step"])), row["step"], matches, place_of) for row in kept]
    started = dict(steps.filter(pl.col("rank") == ranks[0]).select("step", "start_ns").iter_rows())
    order = sorted(
        ((number, place) for number, variant in enumerate(variants) for place in range(len(variant.steps))),
        key=lambda one: started.get(variants[one[0]].steps[one[1]], 0),
    )
    length = dict(steps.filter(pl.col("rank").is_in(ranks)).group_by("step").agg(pl.col("length").median()).iter_rows())
    step_ns = np.array([float(length[variants[variant].steps[place]]) for variant, place in order])
    chosen = steps.filter(pl.col("rank").is_in(ranks) & pl.col("step").is_in(list(used)))
    rank_ns = chosen.group_by("rank").agg(pl.col("length").sum()).sort("rank")["length"].to_numpy().astype(np.float64)
    opening = rows.filter(pl.col("step") == variants[order[0][0]].steps[order[0][1]])
    return Graph(ranks, variants, order, step_ns, rank_ns, _skew(opening, steps, place_of), sorted(set(common) - used), partial)


def _skew(rows: pl.DataFrame, steps: pl.DataFrame, place_of: dict[int, int]) -> Floats:
    """When each rank entered a step, seen from the calls that end on all members at once; no clock but the rank's own is used."""
    shared = rows.filter(pl.col("op").is_in(list(TOGETHER)) & pl.col("call").is_not_null())
    shared = shared.join(steps.select("rank", "step", begun="start_ns"), on=["rank", "step"], nulls_equal=True)
    rank = np.array([place_of[one] for one in shared["rank"].to_list()], dtype=np.int64)
    ends = (shared["end_ns"] - shared["begun"]).to_numpy().astype(np.float64)
    if not len(rank):
        return np.zeros(len(place_of))
    _, later = connected_offsets(rank, shared["call"].to_numpy(), ends, len(place_of))
    return np.asarray(later.max() - later, dtype=np.float64)


def _without_inflated(steps: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Steps but for the first and last, where starting or stopping the profiler made all ranks work longer, and the last, where
    it kept a rank after its last call."""
    numbers = sorted(steps["step"].unique().to_list())
    if len(numbers) < 2 + LEAST_INNER:
        return steps
    work = pl.sum_horizontal([pl.col(f"w_{cause}").sum() for cause in CAUSES])
    tail = pl.col("w_other").filter(pl.col("op").is_null()).sum()
    spent = calls.group_by("rank", "step").agg(work.alias("work"), tail.alias("tail"))
    inner = spent.filter(pl.col("step").is_in(numbers[1:-1]))
    usual = inner.group_by("rank").agg(pl.col("work", "tail").median().name.prefix("usual_"))
    spent = spent.filter(pl.col("step").is_in([numbers[0], numbers[-1]])).join(usual, on="rank")
    middle = spent.group_by("step").agg(pl.col("work", "usual_work").median())
    odd = set(middle.filter(pl.col("work") > INFLATED * pl.col("usual_work"))["step"])
    longer = pl.col("tail") - pl.col("usual_tail") > (INFLATED - 1) * pl.col("usual_work")
    odd |= set(spent.filter((pl.col("step") == numbers[-1]) & longer)["step"])
    return steps.filter(~pl.col("step").is_in(list(odd)))


def _common_steps(steps: pl.DataFrame) -> tuple[list[int], list[int], list[int]]:
    """Ranks to compare, ranks without a step in common with them, and the common steps."""
    have = {int(rank): set(numbers) for rank, numbers in steps.group_by("rank").agg("step").sort("rank").iter_rows()}
    # Steps that most ranks have; then ranks that have at least one of them.
    counts: dict[int, int] = {}
    for numbers in have.values():
        for number in numbers:
            counts[number] = counts.get(number, 0) + 1
    if not counts:
        return [], sorted(have), []
    popular = {number for number, count in counts.items() if 2 * count > len(have)} or {
        max(counts, key=lambda one: (counts[one], -one))
    }
    ranks = [rank for rank, numbers in have.items() if 2 * len(numbers & popular) >= len(popular)] or list(have)
    common = set(popular)
    for rank in ranks:
        common &= have[rank]
    return ranks, sorted(set(have) - set(ranks)), sorted(common, key=lambda one: (one is None, one))


def _variant(rows: pl.DataFrame, steps: list[int], matches: Matches, place_of: dict[int, int]) -> Variant:
    rows = rows.sort("step", "rank", "index")
    count = len(steps)
    first = rows.filter(pl.col("step") == steps[0])
    size = first.height
    rank = np.array([place_of[one] for one in first["rank"].to_list()], dtype=np.int64)
    ranks = len(place_of)
    work = rows.select([f"w_{cause}" for cause in CAUSES]).to_numpy().astype(np.float64).reshape(count, size, len(CAUSES))
    stop = rows["stop"].fill_null(False).to_numpy().reshape(count, size)
    starts = np.searchsorted(rank, np.arange(ranks + 1))
    position = np.arange(size) - starts[rank]
    late = rows["late"].fill_null(-1).to_numpy().astype(np.int64).reshape(count, size)
    duration = (rows["end_ns"] - rows["start_ns"]).to_numpy().astype(np.float64).reshape(count, size)

    call_numbers = first["call"].fill_null(-1).to_numpy().astype(np.int64)
    alone = np.zeros(size, dtype=np.bool_)
    real = call_numbers >= 0
    alone[real] = matches.expected[call_numbers[real]] < 2
    _, inverse = np.unique(np.where(real & ~alone, call_numbers, -1), return_inverse=True)
    call = np.asarray(inverse, dtype=np.int64) - (1 if (~real | alone).any() else 0)
    # What nobody shares is local work of the rank (its own duration, if it stood still for it).
    calls = int(call.max(initial=-1)) + 1
    call_row = np.zeros(calls, dtype=np.int64)
    call_row[call[call >= 0]] = np.flatnonzero(call >= 0)
    lane = numbered(first.with_columns(pl.col("lane").fill_null(pl.col("group"))), ["lane"]).fill_null(-1).to_numpy()
    transfer = np.full((count, calls), np.inf)
    has = call >= 0
    for at in range(count):
        np.minimum.at(transfer[at], call[has], duration[at][has])
    local = ~has & np.isfinite(duration[0])
    held = local & (stop.mean(0) > 0.5)
    work[:, np.minimum(np.flatnonzero(held) + 1, size - 1), -1] += np.nan_to_num(duration[:, held])

    role, stage = _roles(rows, first, ranks, place_of)
    by_role = pl.DataFrame({"role": role[rank], "position": position})
    key = numbered(by_role, ["role", "position"]).to_numpy()
    voters = np.bincount(key)[key] * count
    agreed = np.bincount(key, stop.sum(0).astype(np.float64))[key] > VOTES * voters
    gid_of = first["gid"].fill_null(-1).to_numpy()
    src, dst = first["src"].to_list(), first["dst"].to_list()
    numbers_of = call_numbers[call_row] if calls else np.empty(0, dtype=np.int64)
    ops = first["op"].to_list()
    waited_for = _late(late, key, position, starts, rank, voters)
    spent_after = np.where(late >= 0, rows["after_ns"].fill_null(0).to_numpy().reshape(count, size), 0).sum(0)
    spent = np.where(late >= 0, work.sum(2), 0.0).sum(0)
    after = np.bincount(key, spent_after)[key] / np.maximum(np.bincount(key, spent)[key], 1.0)
    next_work = np.concatenate((work.sum(2)[:, 1:], np.zeros((count, 1))), 1)
    spent_before = np.where(stop, rows["before_stop_ns"].fill_null(0).to_numpy().reshape(count, size), 0).sum(0)
    spent_next = np.where(stop, next_work, 0.0).sum(0)
    before = np.bincount(key, spent_before)[key] / np.maximum(np.bincount(key, spent_next)[key], 1.0)
    program = _program(rank, call, lane, agreed & has, waited_for, np.clip(after, 0.0, 1.0), np.clip(1.0 - before, 0.0, 1.0), ranks)
    return Variant(
        program,
        list(steps),
        work,
        transfer,
        role,
        key,
        position,
        ["p2p" if ops[row] in ("send", "recv") else str(ops[row]) for row in call_row],
        first["bytes"].fill_null(-1).to_numpy()[call_row] if calls else np.empty(0, dtype=np.int64),
        gid_of[call_row] if calls else np.empty(0, dtype=np.int64),
        [(src[row], dst[row]) if src[row] is not None else None for row in call_row],
        matches.size[numbers_of] if calls else np.empty(0, dtype=np.int64),
        (matches.size >= matches.expected)[numbers_of] if calls else np.empty(0, dtype=np.bool_),
        stage,
    )


def _program(rank: Ints, call: Ints, lane: Ints, stop: Flags, late: Ints, after: Floats, after_stop: Floats, ranks: int) -> Program:
    made = Program(rank, call, lane, stop, late, after, after_stop, ranks)
    if not made.stuck:
        return made
    # What queues behind what was guessed from groups; without it the calls still wait for their members.
    free = Program(rank, call, np.arange(len(lane)), stop, late, after, after_stop, ranks)
    return free if not free.stuck else made


def _late(late: Ints, key: Ints, position: Ints, starts: Ints, rank: Ints, voters: Ints) -> Ints:
    """Row of the call that most peers wait for before each issue, when enough of them do."""
    step, row = np.nonzero(late >= 0)
    result = np.full(len(key), -1, dtype=np.int64)
    if not len(step):
        return result
    votes = (
        pl.DataFrame({"key": key[row], "target": late[step, row]})
        .group_by("key", "target")
        .len()
        .sort(["key", "len", "target"], descending=[False, True, False])
    )
    best = votes.unique("key", keep="first", maintain_order=True)
    target = np.full(int(key.max()) + 1, -1, dtype=np.int64)
    count = np.zeros(int(key.max()) + 1)
    target[best["key"].to_numpy()] = best["target"].to_numpy()
    count[best["key"].to_numpy()] = best["len"].to_numpy()
    chosen = (target[key] >= 0) & (count[key] > VOTES * voters) & (target[key] < position)
    result[chosen] = starts[rank[chosen]] + target[key[chosen]]
    return result


def _roles(rows: pl.DataFrame, first: pl.DataFrame, ranks: int, place_of: dict[int, int]) -> tuple[Ints, dict[int, int]]:
    """Ranks with equal programs at the same stage of a pipeline, and the stages by rank (empty without a pipeline)."""
    sizes = first.group_by("gid").agg(pl.col("expected").max().alias("members"))
    changing = rows.group_by("rank", "index", "op").agg(pl.col("bytes").n_unique().alias("sizes")).filter(pl.col("sizes") > 1)
    loose = changing["op"].unique().to_list()
    described = first.join(sizes, on="gid", how="left", maintain_order="left", nulls_equal=True).with_columns(
        text=pl.concat_str(
            pl.col("op").fill_null("end"),
            pl.when(~pl.col("op").is_in(loose) & ~pl.col("op").str.starts_with("alltoall"))
            .then("bytes")
            .cast(pl.String)
            .fill_null("?"),
            pl.when(pl.col("src").is_null()).then("members").cast(pl.String).fill_null("?"),
            separator=":",
        )
    )
    programs = described.group_by("rank", maintain_order=True).agg(pl.col("text").str.join(",").hash().alias("program"))
    role = numbered(programs, ["program"]).to_numpy()
    pairs = first.drop_nulls(["src", "dst"]).select("src", "dst").unique().rows()
    stage = _stages(pairs, {rank: int(role[place]) for rank, place in place_of.items()})
    if stage:
        both = pl.DataFrame({"role": role, "stage": [stage.get(rank, -1) for rank in place_of]})
        return numbered(both, ["role", "stage"]).to_numpy(), stage
    return _refined(role, first, ranks, place_of), {}


def _stages(pairs: Sequence[tuple[int, int]], role: dict[int, int]) -> dict[int, int]:
    """Pipeline stage by rank: ranks that send to each other and do not all do the same, in the order of their numbers.

    Ranks that were not captured are known by their partners, so that one missing rank does not move the others.
    """
    near: dict[int, set[int]] = {}
    for source, target in pairs:
        near.setdefault(source, set()).add(target)
        near.setdefault(target, set()).add(source)
    stage: dict[int, int] = {}
    components: list[list[int]] = []
    for rank in sorted(near):
        if rank in stage:
            continue
        component, todo = {rank}, [rank]
        while todo:
            for other in near[todo.pop()] - component:
                component.add(other)
                todo.append(other)
        components.append(sorted(component))
        stage.update({one: number for number, one in enumerate(components[-1])})
    if not components:
        return {}
    longest = max(map(len, components))
    # Ranks of a ring (context parallelism) all do the same.
    if all(len({role[one] for one in ranks if one in role}) < 2 for ranks in components):
        return {}
    for one in components:
        if len(one) < longest:
            _place_rest(one, stage, role, components)
    return stage


def _place_rest(component: list[int], stage: dict[int, int], role: dict[int, int], components: list[list[int]]) -> None:
    """Stages of a pipeline of which some ranks (and their partners) are missing: where the numbers of the others would put them."""
    whole = next(one for one in components if len(one) == max(map(len, components)))
    distance = whole[1] - whole[0]
    for rank in component:
        by_number = [number for number, one in enumerate(whole) if abs(rank - one) < max(distance, 1)]
        same = [number for number in by_number if role.get(whole[number]) == role.get(rank)]
        stage[rank] = (same or by_number or [stage[rank]])[0]


def _refined(role: Ints, first: pl.DataFrame, ranks: int, place_of: dict[int, int]) -> Ints:
    """Roles told apart by the roles of the partners until nothing changes."""
    sends = first.filter(pl.col("op").is_in(["send", "recv"]) & pl.col("peer").is_not_null()).select("rank", "op", "peer").unique()
    near: list[list[tuple[str, int]]] = [[] for _ in range(ranks)]
    for one, op, peer in sends.iter_rows():
        if peer in place_of:
            near[place_of[one]].append((op, place_of[peer]))
    while True:
        names: dict[tuple[int, tuple[tuple[str, int], ...]], int] = {}
        finer = np.array(
            [
                names.setdefault((int(role[place]), tuple(sorted((op, int(role[other])) for op, other in near[place]))), len(names))
                for place in range(ranks)
            ],
            dtype=np.int64,
        )
        if len(names) == len(np.unique(role)):
            return finer
        role = finer
