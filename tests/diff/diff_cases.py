# SPDX-License-Identifier: Apache-2.0
"""Pairs of simulated captures whose difference is known: none at all, or one injected change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from verdict_simulator import Loop, Machine


@dataclass(frozen=True)
class Pair:
    """Two loops; `cause` is the operator or part that differs, empty when nothing does."""

    name: str
    base: Loop
    new: Loop
    cause: str = ""

    def named_by(self, row) -> bool:
        return row.part == self.cause if "." in self.cause or self.cause == "communication" else row.op == f"aten::{self.cause}"


def _loop(number: int) -> Loop:
    """Loops of different size, noise and bottleneck."""
    return Loop(
        seed=1000 + 2 * number,
        steps=(8, 12, 16, 20)[number % 4],
        layers=3 + number % 6,
        kernel=(90.0, 120.0, 200.0, 350.0)[number % 4],
        # In every fifth loop the host is slower than the device.
        host=70.0 if number % 5 == 4 else (6.0, 10.0, 14.0)[number % 3],
        communication=60.0 * (number % 2),
        blocking=number % 4 == 3,
        jitter=(0.005, 0.01, 0.02)[number % 3],
    )


def _again(loop: Loop, **changes) -> Loop:
    return replace(loop, seed=loop.seed + 1, **changes)


def equal_pairs(count: int = 100, first: int = 0) -> Iterator[Pair]:
    """The same loop twice with other noise; every third is far noisier."""
    for number in range(first, first + count):
        loop = _loop(number)
        loop = replace(loop, jitter=(0.05, 0.15, 0.4)[number // 3 % 3]) if number % 3 == 0 else loop
        yield Pair(f"equal-{number}", loop, _again(loop))


def injected(count: int = 100, first: int = 0) -> Iterator[Pair]:
    """One operator slower by 5 to 30 %, or one more cause of another kind."""
    for number in range(first, first + count):
        loop = _loop(number)
        name = ("MatMulV2", "LayerNorm", "Add", "ApplyAdamW")[number // 4 % 4]
        kind = number % 8
        if kind == 6:
            yield Pair(f"new-{number}", loop, _again(loop, at_layer=_extra), "Cast")
        elif kind == 7:
            yield Pair(f"data-{number}", loop, _again(loop, at_step=_wait), "idle.data")
        else:
            factor = (1.05, 1.05, 0.95, 1.10, 1.05, 1.30)[kind]
            yield Pair(f"{name}-{factor}-{number}", loop, _again(loop, slower={name: factor}), name)


def _extra(machine: Machine, layer: int) -> None:
    machine.operator("Cast", 10.0, 25.0, core="AI_VECTOR_CORE")


def _wait(machine: Machine, step: int) -> None:
    """Loading a batch takes longer than the work that the device still has."""
    if step:
        machine.wait()
    start, end = machine.spend(1500)
    machine.add("ops", start, end, pid=1, tid=1, name="enumerate(DataLoader)#x.__next__", scope=7)
