# SPDX-License-Identifier: Apache-2.0
"""What each rank does in a step, as a list of items: work, issue of a call, wait for a call.

Workloads: `ddp`, `fsdp`, `hsdp`, `megatron` (TP × PP × DP, 1F1B), `interleaved` (two model chunks per stage) and `moe` (experts
over all-to-all).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

WORKLOADS = ("ddp", "fsdp", "hsdp", "megatron", "interleaved", "moe")
FAULTS = (
    "frequency",
    "kernel",
    "more_work",
    "data_loading",
    "gc",
    "allocation",
    "checkpoint",
    "dispatch",
    "link",
    "group",
    "host",
    "stage",
)
DISPATCH_NS = 3_000.0

Call = tuple[int, str, tuple[int, ...], str, int, int]  # step, kind, members, operator, turn, bytes


class Item(NamedTuple):
    """One thing that a rank does: works on a cause, issues a call on a lane, or waits for a call."""

    cause: str = ""
    ns: float = 0.0
    call: Call | None = None
    lane: str = ""  # empty for a wait


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong.

    Attributes:
        kind: one of `FAULTS`, or none.
        rank: the rank it is about; of a host or stage, one of its ranks.
        factor: of computing, or of transfers.
        ns: added per step (or, for dispatch, per piece of computing).
        every: it hits each n-th step.
        link: kind of call and members whose transfers are slow.
    """

    kind: str = "none"
    rank: int = -1
    factor: float = 1.0
    ns: float = 0.0
    every: int = 1
    link: tuple[str, tuple[int, ...]] = ("", ())


@dataclass(frozen=True)
class Plan:
    """A workload and how it is spread over ranks."""

    workload: str = "megatron"
    tp: int = 1
    pp: int = 1
    dp: int = 8
    micro: int = 4
    layers: int = 2
    per_host: int = 8
    base_ns: float = 1_500_000.0
    jitter: float = 0.01
    heavy: float = 0.0  # chance of a long pause per rank and step
    stage_weight: tuple[float, ...] = field(default=())
    shard: int = 8  # ranks of a shard (hsdp) or of an expert group (moe)

    @property
    def world(self) -> int:
        return self.tp * self.pp * self.dp

    def host(self, rank: int) -> int:
        return rank // self.per_host

    def place(self, rank: int) -> tuple[int, int, int]:
        """Stage, place in data parallelism, place in tensor parallelism; in the order tp-dp-pp."""
        return rank // (self.tp * self.dp), rank // self.tp % self.dp, rank % self.tp

    def rank_at(self, stage: int, data: int, tensor: int) -> int:
        return (stage * self.dp + data) * self.tp + tensor

    def weight(self, rank: int) -> float:
        return self.stage_weight[self.place(rank)[0]] if self.stage_weight else 1.0


class _Writer:
    """Collects the items of one rank and step."""

    def __init__(self, plan: Plan, rank: int, step: int, fault: Fault, rng: np.random.Generator):
        self.plan, self.rank, self.step, self.fault, self.rng = plan, rank, step, fault, rng
        self.items: list[Item] = []
        self._turns: dict[tuple[str, tuple[int, ...]], int] = {}
        hit = fault.kind != "none" and step % fault.every == 0
        same_host = plan.host(fault.rank) == plan.host(rank)
        same_stage = plan.place(max(fault.rank, 0))[0] == plan.place(rank)[0]
        self.slow = hit and (fault.rank == rank or (fault.kind == "host" and same_host) or (fault.kind == "stage" and same_stage))
        self._scale = fault.factor if self.slow and fault.kind in ("frequency", "kernel", "more_work", "host", "stage") else 1.0

    def work(self, cause: str, ns: float) -> None:
        if ns > 0:
            self.items.append(Item(cause, float(ns)))

    def compute(self, ns: float) -> None:
        jitter = 1 + self.plan.jitter * float(self.rng.standard_normal())
        self.work("compute", max(ns * self.plan.weight(self.rank) * self._scale * jitter, 1000.0))
        gap = DISPATCH_NS + (self.fault.ns if self.slow and self.fault.kind == "dispatch" else 0.0)
        self.work("dispatch", gap * (0.8 + 0.4 * float(self.rng.random())))

    def call(self, kind: str, members: tuple[int, ...], op: str, size: int, lane: str, *, wait: bool = True) -> Call | None:
        if len(members) < 2:
            return None
        key = (kind, members)
        turn = self._turns[key] = self._turns.get(key, -1) + 1
        call = (self.step, kind, members, op, turn, size)
        self.items.append(Item(call=call, lane=lane))
        if wait:
            self.wait(call)
        return call

    def wait(self, call: Call | None) -> None:
        if call is not None:
            self.items.append(Item(call=call))

    def begin(self, loads_data: bool = True) -> None:
        usual = 400_000 if loads_data else 50_000
        late = self.fault.ns if self.slow and self.fault.kind == "data_loading" else 0.0
        self.work("data_loading", usual * (0.9 + 0.2 * float(self.rng.random())) + late)
        if self.slow and self.fault.kind in ("gc", "allocation", "checkpoint"):
            self.work(self.fault.kind, self.fault.ns * (0.9 + 0.2 * float(self.rng.random())))


def program(plan: Plan, rank: int, step: int, fault: Fault, seed: int) -> list[Item]:
    """The items of one rank in one step."""
    writer = _Writer(plan, rank, step, fault, np.random.default_rng([seed, step, rank]))
    _WRITERS[plan.workload](writer)
    items = writer.items
    if plan.heavy and writer.rng.random() < plan.heavy:
        items.insert(1 + int(writer.rng.integers(0, 3)), Item("other", float(writer.rng.exponential(400_000))))
    return items


def calls_of(plan: Plan, kind: str, rank: int) -> tuple[str, tuple[int, ...]] | None:
    """The calls of a rank that a slow link or group is about; None where the workload has no such."""
    stage, data, tensor = plan.place(rank)
    pipelined = plan.workload in ("megatron", "interleaved")
    if kind == "link" and pipelined and plan.pp > 1:
        stage = min(stage, plan.pp - 2)
        return "ppF", (plan.rank_at(stage, data, tensor), plan.rank_at(stage + 1, data, tensor))
    if kind == "group" and pipelined and plan.tp > 1:
        return "tp", tuple(plan.rank_at(stage, data, one) for one in range(plan.tp))
    if kind == "group" and plan.workload in ("hsdp", "moe"):
        first = rank // plan.shard * plan.shard
        return "shard" if plan.workload == "hsdp" else "ep", tuple(range(first, first + plan.shard))
    return None


def transfer_ns(plan: Plan, call: Call, fault: Fault, rng: np.random.Generator) -> float:
    """How long the data of a call moves."""
    step, kind, members, _, _, size = call
    inside = plan.host(min(members)) == plan.host(max(members))
    moved = 12_000 + size / (150.0 if inside else 20.0)
    if fault.kind in ("link", "group") and fault.link == (kind, members) and step % fault.every == 0:
        moved *= fault.factor
    return float(moved * (1 + 0.03 * abs(rng.standard_normal())))


def _ddp(writer: _Writer) -> None:
    plan = writer.plan
    world = tuple(range(plan.world))
    writer.begin()
    for _ in range(plan.layers * plan.micro):
        writer.compute(plan.base_ns)
    buckets = []
    for _ in range(plan.layers * plan.micro):
        writer.compute(2 * plan.base_ns)
        buckets.append(writer.call("dp", world, "allreduce", 32 << 20, "dp", wait=False))
    writer.wait(buckets[-1])
    writer.compute(plan.base_ns)
    writer.work("other", 20_000)


def _fsdp(writer: _Writer, groups: Callable[[_Writer], tuple[tuple[int, ...], tuple[int, ...]]] | None = None) -> None:
    plan = writer.plan
    shard, replicas = groups(writer) if groups else (tuple(range(plan.world)), (writer.rank,))
    count = plan.layers * plan.micro
    writer.begin()

    def gather() -> Call | None:
        return writer.call("shard", shard, "allgather", 48 << 20, "gather", wait=False)

    reduced = []
    for factor in (1.0, 2.0):
        ahead = gather()
        for layer in range(count):
            current, ahead = ahead, gather() if layer + 1 < count else None
            writer.wait(current)
            writer.compute(factor * plan.base_ns)
            if factor > 1:
                scattered = writer.call("shard", shard, "reducescatter", 48 << 20, "reduce", wait=False)
                writer.call("replica", replicas, "allreduce", 6 << 20, "reduce", wait=False)
                reduced.append(scattered)
    writer.wait(reduced[-1])
    writer.call("norm", tuple(range(plan.world)), "allreduce", 4, "reduce")
    writer.compute(plan.base_ns)
    writer.work("other", 20_000)


def _hsdp_groups(writer: _Writer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    size, world = writer.plan.shard, writer.plan.world
    first = writer.rank // size * size
    return tuple(range(first, first + size)), tuple(range(writer.rank % size, world, size))


def _moe(writer: _Writer) -> None:
    plan = writer.plan
    experts = writer.rank // plan.shard * plan.shard
    group, world = tuple(range(experts, experts + plan.shard)), tuple(range(plan.world))
    writer.begin()
    buckets = []
    for factor in (1.0, 2.0):
        for _ in range(plan.layers * plan.micro):
            writer.compute(factor * plan.base_ns / 2)
            writer.call("ep", group, "alltoall", 8 << 20, "ep")
            writer.compute(factor * plan.base_ns / 2)
            writer.call("ep", group, "alltoall", 8 << 20, "ep")
            if factor > 1:
                buckets.append(writer.call("dp", world, "allreduce", 16 << 20, "dp", wait=False))
    writer.wait(buckets[-1])
    writer.compute(plan.base_ns)
    writer.work("other", 20_000)


def schedule(plan: Plan, stage: int) -> list[tuple[str, int]]:
    """1F1B: forward and backward micro-batches of a stage in order."""
    warm = min(plan.pp - stage - 1, plan.micro)
    order = [("F", micro) for micro in range(warm)]
    for micro in range(plan.micro - warm):
        order += [("F", warm + micro), ("B", micro)]
    return order + [("B", plan.micro - warm + micro) for micro in range(warm)]


def interleaved_schedule(plan: Plan, stage: int, chunks: int) -> list[tuple[str, int, int]]:
    """Interleaved 1F1B: way, chunk and micro-batch; micro-batches come in groups of as many as there are stages."""
    total = plan.micro * chunks
    warm = min((plan.pp - stage - 1) * 2 + (chunks - 1) * plan.pp, total)

    def unit(number: int, way: str) -> tuple[str, int, int]:
        group, inside = divmod(number, plan.pp * chunks)
        chunk, micro = divmod(inside, plan.pp)
        return way, chunk if way == "F" else chunks - 1 - chunk, group * plan.pp + micro

    order = [unit(number, "F") for number in range(warm)]
    for number in range(total - warm):
        order += [unit(warm + number, "F"), unit(number, "B")]
    return order + [unit(total - warm + number, "B") for number in range(warm)]


def _megatron(writer: _Writer) -> None:
    plan = writer.plan
    stage, data, tensor = plan.place(writer.rank)
    order = [(way, 0, micro) for way, micro in schedule(plan, stage)]
    _pipeline(writer, order, 1, stage, data, tensor)


def _interleaved(writer: _Writer) -> None:
    plan = writer.plan
    stage, data, tensor = plan.place(writer.rank)
    _pipeline(writer, interleaved_schedule(plan, stage, 2), 2, stage, data, tensor)


def _pipeline(writer: _Writer, order: list[tuple[str, int, int]], chunks: int, stage: int, data: int, tensor: int) -> None:
    plan, rank = writer.plan, writer.rank
    tensors = tuple(plan.rank_at(stage, data, one) for one in range(plan.tp))
    replicas = tuple(plan.rank_at(stage, one, tensor) for one in range(plan.dp))
    writer.begin(stage == 0)
    pending: list[Call | None] = []
    last = max(place for place, (way, _, _) in enumerate(order) if way == "B")

    def exchange(way: str, to: int, *, sends: bool) -> None:
        other = plan.rank_at(to % plan.pp, data, tensor)
        members = (rank, other) if sends else (other, rank)
        writer.call(f"pp{way}", members, "p2p", 8 << 20, f"{'out' if sends else 'in'}{way}{to % plan.pp}", wait=not sends)

    for place, (way, chunk, _) in enumerate(order):
        forward = way == "F"
        first = stage == 0 and chunk == 0 if forward else stage == plan.pp - 1 and chunk == chunks - 1
        final = stage == plan.pp - 1 and chunk == chunks - 1 if forward else stage == 0 and chunk == 0
        ahead = 1 if forward else -1
        if plan.pp > 1 and not first:
            exchange(way, stage - ahead, sends=False)
        for _ in range(plan.layers):
            writer.compute(plan.base_ns * (1 if forward else 2))
            writer.call("tp", tensors, "allreduce", 16 << 20, "tp")
            if place == last:
                pending.append(writer.call("dp", replicas, "reducescatter", 64 << 20, "dp", wait=False))
        if plan.pp > 1 and not final:
            exchange(way, stage + ahead, sends=True)
    if pending:
        writer.wait(pending[-1])
    writer.call("world", tuple(range(plan.world)), "allreduce", 4, "world")
    writer.compute(plan.base_ns)
    writer.call("dp", replicas, "allgather", 64 << 20, "dp")
    writer.work("other", 20_000)


_WRITERS: dict[str, Callable[[_Writer], None]] = {
    "ddp": _ddp,
    "fsdp": _fsdp,
    "hsdp": lambda writer: _fsdp(writer, _hsdp_groups),
    "megatron": _megatron,
    "interleaved": _interleaved,
    "moe": _moe,
}
