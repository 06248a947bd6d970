# SPDX-License-Identifier: Apache-2.0
"""Injected problems with the rules that must name them, and loops without any."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from verdict_simulator import Loop, Machine


@dataclass(frozen=True)
class Case:
    """A loop with a problem, and the same without it."""

    name: str
    rules: frozenset[str]  # any of them names the problem
    bad: Loop
    good: Loop
    timed: bool = True  # the problem costs time of its own


def _data(us: float):
    def hook(machine: Machine, step: int) -> None:
        start, end = machine.spend(us)
        machine.add("ops", start, end, pid=1, tid=1, name="enumerate(DataLoader)#x.__next__", scope=7)

    return hook


def _pause(us: float, every: int):
    def hook(machine: Machine, step: int) -> None:
        if step % every == 0:
            machine.add("gc_pauses", *machine.spend(us), pid=1)

    return hook


def _save(us: float, every: int):
    def hook(machine: Machine, step: int) -> None:
        if step % every == 0:
            machine.add("marks", *machine.spend(us), pid=1, tid=1, message="save checkpoint", kind="push/pop")

    return hook


def _wait(each: int):
    def hook(machine: Machine, layer: int) -> None:
        if layer % each == 0:
            machine.wait()

    return hook


def _call(name: str, us: float, each: int = 1):
    def hook(machine: Machine, layer: int) -> None:
        if layer % each == 0:
            machine.call(name, *machine.spend(us))

    return hook


def _kernels(name: str, count: int, us: float, host: float, **columns):
    def hook(machine: Machine, layer: int) -> None:
        for _ in range(count):
            machine.operator(name, host, us, **columns)

    return hook


def _at(steps: tuple[int, ...], us: float):
    def hook(machine: Machine, step: int) -> None:
        if step in steps:
            machine.spend(us)

    return hook


def injected() -> Iterator[Case]:
    """At least eighty problems of different size in loops of different kind."""

    def case(name: str, rules: str, seed: int, *, good: Loop | None = None, timed: bool = True, **changes) -> Case:
        base = good or Loop(seed=seed)
        return Case(f"{name}-{seed}", frozenset(rules.split()), replace(base, **changes), base, timed)

    vector = {"core": "AI_VECTOR_CORE"}
    for seed, us in enumerate((3000, 7000, 14000, 26000, 45000, 90000)):
        yield case("data", "data-wait", seed, at_step=_data(us))
    for seed, (us, every) in enumerate(((2500, 1), (7000, 2), (11000, 3), (33000, 1), (65000, 2)), 10):
        yield case("gc", "gc-pause", seed, at_step=_pause(us, every))
    for seed, us in enumerate((350, 800, 1600, 2800, 5200), 20):
        yield case("python", "host-python", seed, at_layer=lambda machine, layer, us=us: machine.spend(us) and None)
    for seed, (each, host) in enumerate(((1, 55), (2, 65), (1, 95), (4, 60), (1, 35)), 30):
        good = Loop(seed=seed, host=float(host))
        yield case(
            "item",
            "sync-stall host-dispatch",
            seed,
            good=good,
            at_layer=lambda m, layer, each=each: m.wait() if layer % each == 0 else None,
        )
    for seed, us in enumerate((900, 2100, 4800, 350, 8500), 40):
        yield case("alloc", "allocator", seed, at_layer=_call("aclrtMalloc", us, 2))
    for seed, (us, every) in enumerate(((4500, 1), (11000, 2), (42000, 1), (88000, 2), (21000, 1)), 50):
        yield case("save", "checkpoint", seed, at_end=_save(us, every))
    for seed, (count, us) in enumerate(((1, 45), (2, 55), (3, 95), (6, 28), (1, 210)), 60):
        yield case("cast", "cast-overhead", seed, at_layer=_kernels("Cast", count, us, 12.0, **vector))
    for seed, (count, us) in enumerate(((1, 65), (2, 42), (4, 75), (1, 160), (3, 22)), 70):
        yield case("transpose", "transpose-overhead", seed, at_layer=_kernels("TransData", count, us, 12.0, **vector))
    for seed, (count, us) in enumerate(((1, 110), (1, 420), (2, 850), (1, 65), (3, 55)), 80):
        yield case("aicpu", "ai-cpu", seed, at_layer=_kernels("Unique2", count, us, 12.0, core="AI_CPU", input_dtypes="INT64"))
    for seed, factor in enumerate((2.0, 1.8, 2.6, 3.0, 2.2), 90):
        yield case("float32", "fp32-matmul", seed, products=factor, dtypes="FLOAT;FLOAT")
    for seed, count in enumerate((12, 22, 38, 75, 16), 100):
        yield case(
            "small",
            "small-kernels host-dispatch",
            seed,
            good=Loop(seed=seed, host=14.0),
            at_layer=_kernels("Mul", count, 3.0, 14.0, **vector),
        )
    for seed, us in enumerate((110, 190, 420, 65, 780), 110):
        yield case(
            "copy",
            "exposed-copy",
            seed,
            at_layer=_kernels("MEMCPY_ASYNC", 1, us, 12.0, kind="memcpy", core=None, input_dtypes=None),
        )
    for seed, us in enumerate((210, 390, 820, 1200, 1700), 120):
        yield case("blocking", "exposed-communication", seed, good=Loop(seed=seed, communication=float(us)), blocking=True)
    for seed, us in enumerate((2500, 5000, 1200, 8000, 3500), 130):
        yield case("compile", "compile", seed, at_layer=_call("aclopCompileAndExecute", us, 3))
    for seed in range(140, 144):
        yield case("shapes", "dynamic-shapes", seed, changing=True, timed=False)
    for seed, kib in enumerate((2048, 9000, 512, 65536), 150):
        yield case("leak", "memory-leak", seed, held=lambda step, kib=kib: (64 << 20) + step * (kib << 10), timed=False)
    for seed, steps in enumerate(((3,), (5, 9), (2, 7), (10,), (4, 8)), 160):
        yield case("outlier", "slow-steps", seed, at_step=_at(steps, 40_000 + 20_000 * (seed - 160)), timed=False)


def clean() -> Iterator[Loop]:
    """Loops that nobody should be alarmed about: hidden loading, hidden communication, one wait per step, noise."""
    for number in range(28):
        yield Loop(
            seed=300 + number,
            layers=4 + number % 8,
            kernel=(100.0, 150.0, 220.0, 400.0)[number % 4],
            host=(6.0, 10.0, 14.0)[number % 3],
            communication=40.0 * (number % 2),
            jitter=(0.01, 0.03, 0.05)[number % 3],
        )
    for number in range(6):
        yield Loop(seed=330 + number, kernel=200.0, at_end=lambda machine, step: machine.wait())
    for number in range(6):
        yield Loop(seed=340 + number, kernel=260.0 + 20 * number, host=8.0, at_layer=lambda m, layer: m.spend(60) and None)
