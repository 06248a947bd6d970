# SPDX-License-Identifier: Apache-2.0
"""Captures of a training loop computed by a small simulator, so that the time without a problem is known exactly.

One thread issues operators to a compute stream and collectives to another; the queue of the device has `DEPTH` places. A problem
is injected by calling hooks at fixed points of a step; the same loop without the hook is the truth.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from stepscope.tables import ALL_TABLES, Facts, Tables

BASE_NS = 1_700_000_000_000_000_000
DEPTH = 80
COMPUTE, COMMUNICATION = 1, 9


@dataclass
class Machine:
    """Clock and records of one rank; times are us."""

    seed: int = 0
    latency: float = 8.0
    gap: float = 1.5
    jitter: float = 0.02
    now: float = 0.0
    free: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    ends: list[float] = field(default_factory=list)
    slower: Mapping[str, float] = field(default_factory=dict)  # factor of an operator's time on the device

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)

    def vary(self, us: float) -> float:
        return us * float(np.exp(self.random.normal(0, self.jitter)))

    def add(self, table: str, start: float, end: float, **columns: Any) -> None:
        bounds = {"start_ns": BASE_NS + int(start * 1000), "end_ns": BASE_NS + int(end * 1000)}
        self.rows[table].append({**bounds, **columns})

    def call(self, name: str, start: float, end: float) -> None:
        self.add("api_calls", start, end, pid=1, tid=1, level="acl", name=name)

    def operator(self, name: str, host: float, device: float, **columns: Any) -> float:
        """Issue one kernel; returns when it ends."""
        began, host = self.now, self.vary(host)
        issue = began + 0.7 * host
        full = self.ends[-DEPTH] if len(self.ends) >= DEPTH else 0.0
        if full > issue:  # the launch waits for a place in the queue
            self.call("launch", issue, full + 1)
            host, issue = host + full + 1 - issue, full + 1
        start = max(issue + self.latency, self.free[COMPUTE] + self.gap)
        end = start + self.vary(device * self.slower.get(name, 1.0))
        self.free[COMPUTE] = end
        self.ends.append(end)
        self.now = began + host
        self.call("launch", issue - 1, issue + 1)
        kind = columns.pop("kind", "compute")
        self.add("ops", began, self.now, pid=1, tid=1, name=f"aten::{name}", scope=0)
        filled = {
            "op_type": name,
            "core": "AI_CORE",
            "input_dtypes": "FLOAT16;FLOAT16",
            "input_shapes": "64,256;256,256",
            **columns,
        }
        self.add(
            "kernels",
            start,
            end,
            device=0,
            stream=COMPUTE,
            kind=kind,
            name=name,
            launch_tid=1,
            launch_ns=BASE_NS + int(issue * 1000),
            **filled,
        )
        return end

    def wait(self) -> None:
        began = self.now
        self.now = max(began + 3, max(self.free.values()) + 6)
        self.call("aclrtSynchronizeStream", began, self.now)

    def spend(self, us: float) -> tuple[float, float]:
        """Host time of which nothing is recorded."""
        began = self.now
        self.now += self.vary(us)
        return began, self.now

    def collective(self, us: float, after: float, size: int = 4 << 20) -> float:
        self.now += 5
        start = max(self.now + self.latency, self.free[COMMUNICATION] + 2, after + 2)
        end = start + self.vary(us)
        self.free[COMMUNICATION] = end
        issued = BASE_NS + int(self.now * 1000)
        self.add(
            "collectives",
            start,
            end,
            device=0,
            name="hcom_allReduce__1",
            op_type="hcom_allReduce_",
            group="g",
            launch_ns=issued,
            launch_tid=1,
            bytes=size,
        )
        return end

    def memory(self, held: int) -> None:
        for place in range(4):
            self.rows["memory_events"].append(
                {
                    "time_ns": BASE_NS + int((self.now + place) * 1000),
                    "component": "PTA",
                    "device_type": "npu",
                    "device": 0,
                    "action": "malloc",
                    "inner": True,
                    "ptr": 1,
                    "bytes": 1,
                    "total_allocated": float(held + (place << 20)),
                    "total_reserved": float(256 << 20),
                    "total_active": float(held),
                }
            )

    def tables(self) -> Tables:
        frames = {name: ALL_TABLES[name].conform(pl.DataFrame(rows, infer_schema_length=None)) for name, rows in self.rows.items()}
        facts = Facts(source="simulated", device_kind="npu", level="Level1", rank=0, gc_threshold=1.0)
        return Tables({**frames, "meta": facts.table()})


Hook = Callable[[Machine, int], None]


def _steady(step: int) -> int:
    """Bytes that stay allocated."""
    return 64 << 20


@dataclass(frozen=True)
class Loop:
    """A training loop: `layers` layers forward and backward, then an optimizer; hooks stand for problems."""

    seed: int = 0
    steps: int = 12
    layers: int = 8
    kernel: float = 120.0
    host: float = 12.0
    jitter: float = 0.02
    communication: float = 0.0  # us per backward layer; 0: one rank
    products: float = 1.0  # factor of the matrix products
    dtypes: str = "FLOAT16;FLOAT16"
    blocking: bool = False  # computing waits for each collective
    changing: bool = False  # shapes
    at_step: Hook | None = None
    at_layer: Hook | None = None
    at_end: Hook | None = None
    held: Callable[[int], int] = _steady
    slower: Mapping[str, float] = field(default_factory=dict)

    def run(self, machine: Machine | None = None) -> Machine:
        machine = machine or Machine(self.seed, jitter=self.jitter, slower=self.slower)
        random = np.random.default_rng(self.seed + 7)
        for step in range(self.steps):
            began = machine.now
            start, end = machine.spend(60)
            machine.add("ops", start, end, pid=1, tid=1, name="enumerate(DataLoader)#x.__next__", scope=7)
            if self.at_step:
                self.at_step(machine, step)
            shapes = f"{64 + 8 * int(random.integers(0, 64))},256;256,256" if self.changing else "64,256;256,256"
            for factor in (1, 2):
                for layer in range(self.layers):
                    self._layer(machine, factor, layer, shapes)
            if self.communication:
                machine.free[COMPUTE] = max(machine.free[COMPUTE], machine.free[COMMUNICATION])
            for _ in range(6):
                machine.operator("ApplyAdamW", self.host, self.kernel * 0.4, core="AI_VECTOR_CORE")
            if self.at_end:
                self.at_end(machine, step)
            machine.memory(self.held(step) + int(random.integers(0, 1 << 12)))
            machine.add("steps", began, machine.now, step=step, inflated=False)
        return machine

    def _layer(self, machine: Machine, factor: int, layer: int, shapes: str) -> None:
        product = {"input_dtypes": self.dtypes, "input_shapes": shapes}
        machine.operator("MatMulV2", self.host, self.kernel * factor * self.products, **product)
        machine.operator("Add", self.host, self.kernel * 0.3, core="AI_VECTOR_CORE")
        machine.operator("LayerNorm", self.host, self.kernel * 0.5, core="AI_VECTOR_CORE")
        end = machine.operator("MatMulV2", self.host, self.kernel * factor * self.products, **product)
        if self.at_layer:
            self.at_layer(machine, layer)
        if factor == 2 and self.communication:
            done = machine.collective(self.communication, end)
            if self.blocking:
                machine.free[COMPUTE] = max(machine.free[COMPUTE], done)


def step_ns(machine: Machine, steps: int) -> float:
    """Time of a step on the device."""
    kernels = machine.rows["kernels"]
    return float(max(row["end_ns"] for row in kernels) - kernels[0]["start_ns"]) / steps
