# SPDX-License-Identifier: Apache-2.0
"""A simulated run for every rule of the verdict, in which that rule has something to say.

The pages of the rules (docs/rules) show these runs, and a test asks whether each rule speaks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
from verdict_simulator import COMPUTE, Loop, Machine

from stepscope.tables import ALL_TABLES, Tables

Example = Callable[[], list[Tables]]
MIB = 1 << 20
CHIP = {"0": {"id": 0, "ai_core_num": 20, "aiv_num": 40, "aic_frequency": 1650}}
VECTOR: dict[str, Any] = {"core": "AI_VECTOR_CORE"}


# Pieces


def run(**changes: Any) -> Tables:
    return Loop(**{"seed": 1, "steps": 6, **changes}).run().tables()


def facts(tables: Tables, **changes: Any) -> Tables:
    return tables.replace(meta=tables.facts.replace(**changes).table())


def of_chip(tables: Tables) -> Tables:
    return facts(tables, device_names={"0": "Ascend910B"}, device_properties=CHIP)


def rows(tables: Tables, table: str, *new: dict[str, Any]) -> Tables:
    made = ALL_TABLES[table].conform(pl.DataFrame(list(new), infer_schema_length=None))
    return tables.replace(**{table: made})


def linked(tables: Tables) -> Tables:
    """With the operator of each kernel; the simulator issues one kernel per operator."""
    ops = tables.ops.sort("start_ns", "end_ns", descending=[False, True], maintain_order=True)
    own = ops.with_row_index("row").filter(pl.col("scope") != 7).sort("start_ns")["row"].cast(pl.Int64)
    return tables.replace(ops=ops, kernels=tables.kernels.sort("launch_ns", maintain_order=True).with_columns(op=own))


def kernels(name: str, count: int, us: float, host: float = 12.0, **columns: Any) -> Callable[[Machine, int], None]:
    def hook(machine: Machine, layer: int) -> None:
        for _ in range(count):
            machine.operator(name, host, us, **columns)

    return hook


def spend(us: float, table: str = "", **columns: Any) -> Callable[[Machine, int], None]:
    """Host time, with one record around it."""

    def hook(machine: Machine, step: int) -> None:
        start, end = machine.spend(us)
        if table:
            machine.add(table, start, end, pid=1, **columns)

    return hook


def call(name: str, us: float) -> Callable[[Machine, int], None]:
    def hook(machine: Machine, layer: int) -> None:
        machine.call(name, *machine.spend(us))

    return hook


def metrics(tables: Tables, core: str, values: dict[str, float]) -> Tables:
    """All kernels with the same counters."""
    same = tables.kernels.with_columns(core=pl.lit(core).cast(pl.Categorical()), name=pl.lit("MatMulV2").cast(pl.Categorical()))
    return rows(tables.replace(kernels=same), "kernel_metrics", *({"kernel": row, **values} for row in range(same.height)))


def waits_of(machine: Machine, layer: int) -> None:
    machine.wait()


# Host


def _launch_blocking() -> Tables:
    loop = Loop(seed=1, steps=6, host=40.0)
    machine = Machine(loop.seed)
    issue = machine.operator

    def blocked(*args: Any, **columns: Any) -> float:
        end = issue(*args, **columns)
        machine.wait()
        return end

    machine.operator = blocked  # type: ignore[method-assign]
    return loop.run(machine).tables()


def _queue_thread() -> Tables:
    """The host had put its tasks into the queue long before the queue's thread launched them."""
    tables = run(host=160.0, kernel=60.0)
    sent = tables.kernels.sort("launch_ns").with_columns(correlation_id=pl.int_range(pl.len(), dtype=pl.Int64))
    queue = [
        {
            "pid": 1,
            "tid": 1,
            "kind": "enqueue",
            "name": "Enqueue",
            "start_ns": at - 140_500,
            "end_ns": at - 140_000,
            "correlation_id": row,
        }
        for row, at in sent.select("correlation_id", "launch_ns").iter_rows()
    ]
    return rows(tables.replace(kernels=sent), "queue", *queue)


def _contention() -> Tables:
    """Operators of most steps take three times what they take in the others, and the processors are full."""
    tables = run(steps=8, host=60.0, kernel=60.0)
    step = tables.steps["start_ns"].to_list()
    edge = step[2]
    longer = pl.when(pl.col("start_ns") >= edge).then(pl.col("start_ns") + 3 * (pl.col("end_ns") - pl.col("start_ns")))
    slowed = tables.ops.with_columns(end_ns=longer.otherwise(pl.col("end_ns")))
    samples = ({"source": "CPU Usage", "name": "CPU 0", "time_ns": at, "value": 97.0} for at in step)
    return rows(tables.replace(ops=slowed), "counters", *samples)


def _profiler_cost() -> Tables:
    def frames(machine: Machine, layer: int) -> None:
        for number in range(400):
            at = machine.now - 100 + number / 8
            machine.add("python_calls", at, at + 0.1, pid=1, tid=1, name="train.py(9): f", kind="function")

    return run(at_layer=frames)


def _log(machine: Machine, layer: int) -> None:
    start, end = machine.spend(1500)
    machine.add("python_calls", start, end, pid=1, tid=1, name="logging/__init__.py(1479): info", kind="function")


def _conjectured_gc(machine: Machine, step: int) -> None:
    if step == 3:
        machine.spend(260_000)


# Device


def _fusible(machine: Machine, layer: int) -> None:
    for name in ("chunk", "silu", "mul"):
        machine.operator(name, 12.0, 90.0, **VECTOR)


def _repeated(machine: Machine, layer: int) -> None:
    for name in ("Slice", "Neg", "Concat"):
        machine.operator(name, 90.0, 14.0, **VECTOR)


def _frequency() -> Tables:
    tables = run()
    times = tables.steps["start_ns"].to_list()
    values = [1650.0, *[1200.0] * (len(times) - 1)]
    samples = (
        {"source": "AI Core Freq", "name": "Freq", "device": 0, "time_ns": at, "value": mhz}
        for at, mhz in zip(times, values, strict=True)
    )
    return rows(tables, "counters", *samples)


def with_flops(tables: Tables, flops: float) -> Tables:
    product = pl.col("name").cast(pl.String) == "aten::MatMulV2"
    counted = linked(tables)
    half = pl.lit("half").cast(pl.Categorical())
    return of_chip(counted.replace(ops=counted.ops.with_columns(flops=pl.when(product).then(flops).cast(pl.Int64), dtypes=half)))


def recomputing(tables: Tables) -> Tables:
    """Products of the second half of a step repeat those of the first; backward begins in between."""
    made = linked(tables)
    name = pl.col("name").cast(pl.String)
    product = name == "aten::MatMulV2"
    turn = (name.cum_count().over("name") - 1) % pl.when(product).then(32).otherwise(16)
    module = pl.when(product).then(pl.format("Net/Block_{}", turn % 16)).cast(pl.Categorical())
    begins = (name == "aten::LayerNorm") & (turn == 7)
    scope = pl.when(begins).then(1).otherwise("scope").cast(made.ops.schema["scope"])
    shapes = pl.lit("64,256").cast(pl.Categorical())
    return made.replace(ops=made.ops.with_columns(modules=module, shapes=shapes, scope=scope))


def _optimizer(machine: Machine, step: int) -> None:
    began = machine.now
    for _ in range(250):
        machine.operator("Mul", 12.0, 9.0)
    machine.add("ops", began - 0.5, machine.now, pid=1, tid=1, name="Optimizer.step#AdamW.step", scope=7)


# Communication


def transfers(tables: Tables, *new: dict[str, Any]) -> Tables:
    return rows(tables, "transfers", *({"device": 0, **row} for row in new))


def _waiting_for_a_peer() -> Tables:
    tables = run(communication=800.0, blocking=True)
    spans = tables.collectives.select("start_ns", "end_ns").iter_rows()
    late = (
        {"start_ns": start, "end_ns": end - 50_000, "collective": row, "task_type": "Notify_Wait", "dst_rank": 5}
        for row, (start, end) in enumerate(spans)
    )
    return transfers(tables, *late)


def _sent(tables: Tables, **columns: list[Any]) -> Tables:
    """One transfer per entry, side by side in the second step."""
    at = int(tables.steps["start_ns"][1])
    names = list(columns)
    made = [dict(zip(names, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    spans = [
        {"start_ns": at + 2_000_000 * place, "end_ns": at + 2_000_000 * place + row.pop("ns"), **row}
        for place, row in enumerate(made)
    ]
    return transfers(tables, *spans)


def _misaligned_bytes() -> Tables:
    busy = run(communication=900.0, blocking=True)
    count = 10
    return _sent(
        busy,
        ns=[400_000 if place % 2 else 1_600_000 for place in range(count)],
        bytes=[1 << 20 if place % 2 else (1 << 20) + 100 for place in range(count)],
        transport=["SDMA"] * count,
        link=["HCCS"] * count,
    )


def _contended() -> Tables:
    tables = run(communication=300.0)
    at = tables.kernels.filter(pl.col("name").cast(pl.String) == "MatMulV2")["start_ns"].to_list()[40:46]
    under = [{"start_ns": start, "end_ns": start + 100_000, "bytes": 400_000} for start in at]
    other = tables.kernels.filter(pl.col("name").cast(pl.String) == "LayerNorm")["start_ns"].to_list()[20:26]
    alone = [{"start_ns": start, "end_ns": start + 50_000, "bytes": 800_000} for start in other]
    return transfers(tables, *({**row, "transport": "SDMA", "link": "HCCS"} for row in [*under, *alone]))


def _small_packets() -> Tables:
    tables = run(communication=700.0, blocking=True)
    sizes = (
        {"collective": row, "transport": "SDMA", "packet_mb": 2.0, "packets": 4, "packets_ms": 0.4}
        for row in range(tables.collectives.height)
    )
    return rows(tables, "collective_packets", *sizes)


def _small_collectives(machine: Machine, layer: int) -> None:
    for _ in range(6):
        machine.free[COMPUTE] = max(machine.free[COMPUTE], machine.collective(60.0, machine.free[COMPUTE], size=4096))


def _serial_groups() -> Tables:
    tables = run(communication=500.0, blocking=True)
    turn = pl.int_range(pl.len()) % 2
    return tables.replace(collectives=tables.collectives.with_columns(group=pl.format("g{}", turn).cast(pl.Categorical())))


def _unequal_ranks() -> list[Tables]:
    return [facts(run(seed=rank, kernel=kernel), rank=rank) for rank, kernel in enumerate((100.0, 100.0, 130.0))]


# Memory and steps


def _owners() -> Tables:
    tables = linked(run(steps=3))
    first, last = int(tables.steps["start_ns"][0]), int(tables.steps["end_ns"][-1])
    block = {"pid": 1, "tid": 1, "device_type": "npu", "device": 0, "component": "PTA", "start_ns": first}
    held = [
        {**block, "name": "aten::empty_like", "bytes": 200 * MIB, "release_ns": last, "op": 3},
        {**block, "name": "aten::mm", "bytes": 60 * MIB, "release_ns": last, "op": 1},
    ]
    return rows(tables, "allocations", *held)


def reserved(tables: Tables, **totals: float) -> Tables:
    return tables.replace(
        memory_events=tables.memory_events.with_columns(**{name: pl.lit(value) for name, value in totals.items()})
    )


def _workspace() -> Tables:
    tables = run(steps=3)
    own = tables.memory_events.to_dicts()
    return rows(
        tables, "memory_events", *own, *({**row, "component": "WORKSPACE", "total_reserved": float(90 * MIB)} for row in own)
    )


def _near_full() -> Tables:
    tables = reserved(run(steps=3), total_reserved=31.5 * 1024 * MIB)
    return facts(tables, device_names={"0": "Ascend910B4"})


def _varying(machine: Machine, step: int) -> None:
    machine.operator("Add", 12.0, (1.0, 4000.0, 8000.0, 12_000.0)[step % 4])


EXAMPLES: dict[str, Callable[[], Tables | list[Tables]]] = {
    "sync-stall": lambda: run(host=60.0, at_layer=waits_of),
    "launch-blocking": _launch_blocking,
    "data-wait": lambda: run(at_step=spend(14_000, "ops", tid=1, name="enumerate(DataLoader)#x.__next__", scope=7)),
    "gc-pause": lambda: run(at_step=spend(12_000, "gc_pauses")),
    "conjectured-gc": lambda: facts(run(at_step=_conjectured_gc), gc_threshold=None),
    "host-dispatch": lambda: run(host=140.0, kernel=60.0),
    "host-python": lambda: run(at_layer=spend(1600, "python_calls", tid=1, name="train.py(88): metrics", kind="function")),
    "allocator": lambda: run(at_layer=call("aclrtMalloc", 1500)),
    "checkpoint": lambda: run(at_end=spend(30_000, "marks", tid=1, message="save checkpoint", kind="push/pop")),
    "compile": lambda: run(at_layer=call("aclopCompileAndExecute", 2500)),
    "queue-thread": _queue_thread,
    "host-contention": _contention,
    "profiler-cost": _profiler_cost,
    "logging": lambda: run(at_layer=_log),
    "ai-cpu": lambda: run(at_layer=kernels("Unique2", 1, 400, core="AI_CPU", input_dtypes="INT64")),
    "low-blocks": lambda: of_chip(run(at_layer=kernels("Mul", 1, 300, block_num=21, **VECTOR))),
    "misaligned-shapes": lambda: of_chip(run(at_layer=kernels("MatMulV3", 1, 400, input_shapes="64,300;300,300"))),
    "transpose-overhead": lambda: run(at_layer=kernels("TransData", 2, 60, **VECTOR)),
    "cast-overhead": lambda: run(at_layer=kernels("Cast", 2, 60, **VECTOR)),
    "fp32-matmul": lambda: run(products=2.0, dtypes="FLOAT;FLOAT"),
    "small-kernels": lambda: run(host=14.0, at_layer=kernels("Mul", 40, 3.0, 14.0, **VECTOR)),
    "fusible": lambda: linked(run(at_layer=_fusible)),
    "repeated-sequence": lambda: run(kernel=30.0, at_layer=_repeated),
    "dynamic-shapes": lambda: run(changing=True),
    "frequency-drop": _frequency,
    "cache-misses": lambda: rows(run(), "cache_rates", {"kind": "l2", "device": 0, "op_name": "MatMulV2", "hit_rate": 0.2}),
    "no-bound-pipe": lambda: metrics(run(steps=3), "AI_CORE", {"aic_mac_ratio": 0.3, "aic_mte2_ratio": 0.4}),
    "bound": lambda: metrics(run(steps=3), "AI_CORE", {"aic_mac_ratio": 0.9, "aic_mte2_ratio": 0.4}),
    "below-roofline": lambda: with_flops(run(), 4e9),
    "mfu": lambda: with_flops(recomputing(run(steps=4)), 2e10),
    "recompute": lambda: recomputing(run(steps=4)),
    "exposed-copy": lambda: run(at_layer=kernels("MEMCPY_ASYNC", 1, 200, kind="memcpy", core=None, input_dtypes=None)),
    "optimizer-loop": lambda: linked(run(steps=4, at_end=_optimizer)),
    "icache-miss": lambda: metrics(run(steps=3), "AI_CORE", {"aic_icache_miss_rate": 0.5}),
    "exposed-communication": lambda: run(communication=900.0, blocking=True),
    "peer-wait": _waiting_for_a_peer,
    "small-packets": _small_packets,
    "small-collectives": lambda: run(at_layer=_small_collectives),
    "misaligned-bytes": _misaligned_bytes,
    "retransmission": lambda: _sent(run(), ns=[4_500_000_000], transport=["RDMA"], bytes=[1 << 20]),
    "slow-link": lambda: _sent(
        run(communication=900.0, blocking=True),
        ns=[9_000_000 if link == 3 else 1_000_000 for link in range(1, 6)],
        bytes=[20_000_000] * 5,
        src_rank=[0] * 5,
        dst_rank=[1, 2, 3, 4, 5],
        transport=["SDMA"] * 5,
        link=["HCCS"] * 5,
    ),
    "contention": _contended,
    "rank-imbalance": _unequal_ranks,
    "syncbn": lambda: run(at_layer=kernels("SyncBatchNorm", 2, 20)),
    "serial-groups": _serial_groups,
    "memory-leak": lambda: run(held=lambda step: (64 + 9 * step) * MIB),
    "peak-owners": _owners,
    "fragmentation": lambda: reserved(run(steps=3), total_reserved=6.0 * 1024 * MIB, total_active=2.0 * 1024 * MIB),
    "near-full": _near_full,
    "workspace": _workspace,
    "slow-steps": lambda: run(steps=12, at_step=lambda machine, step: machine.spend(60_000) and None if step in (5, 9) else None),
    "variance": lambda: run(steps=16, at_step=_varying),
    "warm-up": lambda: run(steps=8, at_step=lambda machine, step: machine.spend(60_000) and None if step == 0 else None),
    "drift": lambda: run(steps=24, at_step=lambda machine, step: machine.operator("Add", 12.0, 60.0 * (step + 1)) and None),
    "environment": lambda: facts(run(steps=3), metadata={"ENV_VARIABLES": {"ASCEND_GLOBAL_LOG_LEVEL": "1"}}),
}  # fmt: skip


def example(rule: str) -> list[Tables]:
    made = EXAMPLES[rule]()
    return made if isinstance(made, list) else [made]
