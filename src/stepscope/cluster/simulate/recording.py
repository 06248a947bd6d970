# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of all ranks against each other, event by event, and records what a profiler on each rank would see.

The engine that runs them knows nothing of the replay that is tested with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.analysis.partition.spans import Ints, Spans, union
from stepscope.cluster.digest import Calls, Digests, call_rows, member_lists
from stepscope.cluster.simulate.programs import Call, Fault, Item, Plan, program, transfer_ns
from stepscope.cluster.whatif.replay import Floats
from stepscope.tables.cluster import CAUSES, CLUSTER_TABLES

EPOCH_NS = 1_764_246_877_000_000_000
END_SKEW_NS = 3_000.0
RECEIVER_LAG_NS = 28_000.0
KERNELS = ("MatMul", "FlashAttention", "FlashAttentionGrad", "RmsNorm", "SwiGlu", "Add", "Cast", "Adam")
KERNEL_SHARE = np.array([0.46, 0.14, 0.2, 0.05, 0.06, 0.04, 0.03, 0.02])
FREQUENCY_MHZ = 1800.0


@dataclass
class RankRecord:
    """What one rank did, in true time (ns, float)."""

    work: list[tuple[str, float, float]] = field(default_factory=list)  # cause, start, end
    calls: list[tuple[Call, float, float, float, str, int, int]] = field(
        default_factory=list
    )  # call, issue, start, end, lane, step, place
    bounds: list[tuple[int, float, float]] = field(default_factory=list)  # step, start, end


@dataclass
class Recording:
    """A simulated run and the truth about it."""

    plan: Plan
    fault: Fault
    steps: int
    ranks: list[RankRecord]
    offset_ns: Floats
    drift: Floats
    step_ns: Floats  # true length of each step

    def weight(self, rank: int) -> float:
        """How much more work the stage of a rank has than planned."""
        plan, fault = self.plan, self.fault
        heavier = fault.kind == "stage" and plan.place(fault.rank)[0] == plan.place(rank)[0]
        return plan.weight(rank) * (fault.factor if heavier else 1.0)

    def local(self, rank: int, times: Sequence[float] | Floats) -> Ints:
        """True times on the clock of a rank."""
        own = np.asarray(times, dtype=np.float64)
        there = np.round(own * (1 + self.drift[rank]) + self.offset_ns[rank]).astype(np.int64)
        return np.asarray(there + EPOCH_NS, dtype=np.int64)


def record(
    plan: Plan, steps: int, seed: int, fault: Fault | None = None, *, offset_ms: float = 5.0, drift_ppm: float = 20.0
) -> Recording:
    """Run the steps and give every host a clock of its own."""
    fault = fault or Fault()
    net = np.random.default_rng(seed + 1)
    world = plan.world
    clock = [0.0] * world
    ranks = [RankRecord() for _ in range(world)]
    lane_end: list[dict[str, float]] = [{} for _ in range(world)]
    ends = []
    for step in range(steps):
        programs = [program(plan, rank, step, fault, seed) for rank in range(world)]
        first = list(clock)
        _run_step(plan, programs, clock, ranks, lane_end, fault, net, step)
        for rank in range(world):
            ranks[rank].bounds.append((step, first[rank], clock[rank]))
        ends.append(max(clock))
    rng = np.random.default_rng(seed)
    hosts = plan.host(world - 1) + 1
    who = np.array([plan.host(rank) for rank in range(world)])
    offset = rng.normal(0, offset_ms * 1e6, hosts)[who] + rng.normal(0, 20_000, world)
    drift = rng.normal(0, drift_ppm * 1e-6, hosts)[who]
    return Recording(plan, fault, steps, ranks, offset, drift, np.diff(np.array([0.0, *ends])))


def _run_step(
    plan: Plan, programs: list[list[Item]], clock: list[float], ranks: list[RankRecord], lane_end: list[dict[str, float]],
    fault: Fault, net: np.random.Generator, step: int,
) -> None:  # fmt: skip
    place = [0] * len(programs)
    arrived: dict[Call, dict[int, tuple[float, str, float, int]]] = {}
    ended: dict[Call, dict[int, float]] = {}
    waiting: dict[Call, list[int]] = {}
    behind: dict[tuple[int, Call], tuple[Call, str, float, int]] = {}  # calls queued behind another on their lane
    last_on: list[dict[str, Call]] = [{} for _ in programs]
    queue = list(range(len(programs)))

    def arrive(rank: int, call: Call, lane: str, issued: float, free: float, number: int) -> None:
        todo = [(rank, call, lane, issued, free, number)]
        while todo:
            rank, call, lane, issued, free, number = todo.pop()
            members = arrived.setdefault(call, {})
            members[rank] = (max(issued, free), lane, issued, number)
            if len(members) < len(call[2]):
                continue
            end = max(one[0] for one in members.values()) + transfer_ns(plan, call, fault, net)
            ended[call] = {}
            for member in sorted(members):
                start, own_lane, own_issue, own_number = members[member]
                own_end = end + abs(float(net.normal(0, END_SKEW_NS)))
                if call[3] == "p2p" and member == call[2][1]:
                    own_end += RECEIVER_LAG_NS
                ended[call][member] = own_end
                lane_end[member][own_lane] = own_end
                ranks[member].calls.append((call, own_issue, start, own_end, own_lane, step, own_number))
                queued = behind.pop((member, call), None)
                if queued:
                    todo.append((member, queued[0], queued[1], queued[2], own_end, queued[3]))
            queue.extend(waiting.pop(call, ()))

    while queue:
        rank = queue.pop()
        items = programs[rank]
        while place[rank] < len(items):
            item = items[place[rank]]
            if item.call is None:
                ranks[rank].work.append((item.cause, clock[rank], clock[rank] + item.ns))
                clock[rank] += item.ns
            elif item.lane:
                before = last_on[rank].get(item.lane)
                last_on[rank][item.lane] = item.call
                if before is not None and before not in ended:
                    behind[rank, before] = (item.call, item.lane, clock[rank], place[rank])
                else:
                    arrive(rank, item.call, item.lane, clock[rank], lane_end[rank].get(item.lane, 0.0), place[rank])
            elif item.call not in ended:
                waiting.setdefault(item.call, []).append(rank)
                break
            else:
                clock[rank] = max(clock[rank], ended[item.call][rank] + 2000)
            place[rank] += 1
    if any(at < len(items) for at, items in zip(place, programs, strict=True)):
        raise RuntimeError(f"step {step} of {plan.workload} does not end: a program waits for a call that nobody issues")


@dataclass
class _RankRows:
    """Digest of one rank: columns of its call rows, the call of each, and its steps."""

    columns: dict[str, npt.NDArray[Any]]
    calls: list[Call | None]
    steps: pl.DataFrame


def digests_of(recording: Recording, missing: Sequence[int] = ()) -> Digests:
    """The digests of the ranks of a run, but for the missing ones."""
    plan = recording.plan
    absent = set(missing)
    present = [rank for rank in range(plan.world) if rank not in absent]
    parts = [_rank_rows(recording, rank) for rank in present]
    frame = pl.DataFrame({name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns})
    calls = [call for part in parts for call in part.calls]
    described = [_described(rank, call) for rank, call in zip(frame["rank"].to_list(), calls, strict=True)]
    schema = {"op": pl.String, "group": pl.String, "peer": pl.Int64, "bytes": pl.Int64}
    frame = pl.concat([frame, pl.DataFrame(described, schema=schema, orient="row")], how="horizontal").with_columns(
        pl.col("late").replace(-1, None),
        pl.col("lane").replace("", None),
        *(pl.when(pl.col("folded") > 0).then(name).alias(name) for name in ("issue_ns", "start_ns", "end_ns")),
    )
    steps = pl.concat([part.steps for part in parts])
    bounds = steps.group_by("rank").agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    ranks = pl.DataFrame(
        {
            "rank": present,
            "host": [f"host{plan.host(rank)}" for rank in present],
            "device": [rank % plan.per_host for rank in present],
            "path": [f"rank{rank}" for rank in present],
        }
    ).join(bounds, on="rank")
    ranks = ranks.with_columns(source=pl.lit("simulated"), lean=False, world_size=plan.world, losses=0, residual_ns=0)
    groups, lists = _groups(recording, present)
    frames = {
        "cluster_calls": frame,
        "cluster_steps": steps,
        "cluster_ranks": ranks,
        "cluster_groups": groups,
        "cluster_members": lists,
        "cluster_kernels": _kernels(recording, present),
    }
    return Digests({name: CLUSTER_TABLES[name].conform(one) for name, one in frames.items()})


def _described(rank: int, call: Call | None) -> tuple[str | None, str | None, int | None, int | None]:
    """Operator, group, partner and bytes of a call as one rank sees it."""
    if call is None:
        return None, None, None, None
    _, kind, members, op, _, size = call
    if op != "p2p":
        return op, _group_key(kind, members), None, size
    sends = members[0] == rank
    return ("send" if sends else "recv"), _group_key(kind, members), members[sends], size


def _group_key(kind: str, members: tuple[int, ...]) -> str:
    kind = "pp" if kind.startswith("pp") else kind
    ordered = tuple(sorted(members))
    text = f"{ordered[0]}-{ordered[-1]}" if len(ordered) > 4 else "-".join(map(str, ordered))
    return f"{kind}:{text}:{len(ordered)}"


def _rank_rows(recording: Recording, rank: int) -> _RankRows:
    own = recording.ranks[rank]
    bounds = own.bounds
    windows = np.maximum.accumulate(recording.local(rank, [bounds[0][1], *(end for _, _, end in bounds)]))
    chosen = sorted(own.calls, key=lambda row: (row[5], row[6]))  # program order: as the host launched them
    issue = recording.local(rank, [row[1] for row in chosen])
    start, end = recording.local(rank, [row[2] for row in chosen]), recording.local(rank, [row[3] for row in chosen])
    step = np.array([row[5] for row in chosen], dtype=np.int64)
    spans = {cause: _spans(recording, rank, own, cause) for cause in CAUSES[:-1]}
    compute = spans.pop("compute")
    rows = call_rows(Calls(issue, start, end, step), windows, compute, spans)
    count = len(bounds)
    first = np.searchsorted(rows.window, np.arange(count))
    number = np.maximum(rows.call, 0)
    is_call = rows.call >= 0

    def of_call(values: Ints) -> Ints:
        return np.where(is_call, values[number], 0) if len(values) else np.zeros(len(rows.call), dtype=np.int64)

    lanes = np.array([row[4] for row in chosen] or [""])
    columns: dict[str, npt.NDArray[Any]] = {
        "rank": np.full(len(rows.call), rank),
        "step": rows.window,
        "index": np.arange(len(rows.call)) - first[rows.window],
        "issue_ns": of_call(issue),
        "start_ns": of_call(start),
        "end_ns": of_call(end),
        "stop": rows.stop,
        "late": np.where(rows.late >= 0, rows.late - first[rows.window], -1),
        "after_ns": rows.after,
        "before_stop_ns": rows.before_stop,
        "wait_ns": rows.waited,
        "folded": is_call.astype(np.int64),
        "lane": np.where(is_call, lanes[number], ""),
        **{f"w_{cause}": rows.work[:, place] for place, cause in enumerate(CAUSES)},
    }
    fault, plan = recording.fault, recording.plan
    throttled = (fault.kind == "frequency" and fault.rank == rank) or (
        fault.kind == "host" and plan.host(fault.rank) == plan.host(rank)
    )
    steps = pl.DataFrame(
        {
            "rank": [rank] * count,
            "step": list(range(count)),
            "start_ns": windows[:-1],
            "end_ns": windows[1:],
            "computing_ns": compute.within(windows[:-1], windows[1:]),
            "communication_ns": union(start, end).within(windows[:-1], windows[1:]),
            "wait_ns": rows.wait,
            "frequency_mhz": [FREQUENCY_MHZ / (fault.factor if throttled else 1.0)] * count,
        }
    )
    calls = [chosen[one][0] if one >= 0 else None for one in rows.call.tolist()]
    return _RankRows(columns, calls, CLUSTER_TABLES["cluster_steps"].conform(steps))


def _spans(recording: Recording, rank: int, own: RankRecord, cause: str) -> Spans:
    rows = [(start, end) for name, start, end in own.work if name == cause]
    if not rows:
        return union(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
    times = np.array(rows)
    return union(recording.local(rank, times[:, 0]), recording.local(rank, times[:, 1]))


def _groups(recording: Recording, present: list[int]) -> tuple[pl.DataFrame, pl.DataFrame]:
    rows: dict[tuple[int, str], tuple[str, list[int]]] = {}
    shared: dict[str, list[int]] = {}
    for rank in present:
        for call, *_ in recording.ranks[rank].calls:
            kind, members = call[1], call[2]
            key = _group_key(kind, members)
            if (rank, key) not in rows:
                name = "pp" if kind.startswith("pp") else kind
                rows[rank, key] = (name, shared.setdefault(key, sorted(members)))
    listed, lists = member_lists(members for _, members in rows.values())
    groups = {"rank": [rank for rank, _ in rows], "group": [key for _, key in rows], "pg_name": [name for name, _ in rows.values()]}
    return pl.DataFrame(groups).with_columns(listed), lists


def kernel_times(recording: Recording, rank: int) -> tuple[Floats, Floats, str]:
    """Total ns and count of each kernel of a rank, and what its shapes are."""
    fault = recording.fault
    pieces = [end - start for cause, start, end in recording.ranks[rank].work if cause == "compute"]
    total = float(sum(pieces))
    times = KERNEL_SHARE * total
    shapes = "4096,8192"
    if fault.rank == rank and fault.kind == "kernel":
        healthy = total / fault.factor
        times = KERNEL_SHARE * healthy
        times[0] += total - healthy
    if fault.rank == rank and fault.kind == "more_work":
        shapes = "6144,8192"
    # A heavier stage has more layers: more kernels, not slower ones.
    weight = recording.weight(rank)
    count = np.full(len(KERNELS), max(1.0, round(len(pieces) * 10 * weight)))
    return times, count, shapes


def _kernels(recording: Recording, present: list[int]) -> pl.DataFrame:
    rows = []
    for rank in present:
        times, count, shapes = kernel_times(recording, rank)
        for place, name in enumerate(KERNELS):
            mean = int(times[place] / count[place])
            rows.append((rank, name, shapes, int(count[place]), int(times[place]), mean, int(1.1 * mean)))
    names = ["rank", "name", "shapes", "count", "total_ns", "median_ns", "p95_ns"]
    return pl.DataFrame(rows, schema=names, orient="row")
