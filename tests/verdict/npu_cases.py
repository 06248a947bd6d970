# SPDX-License-Identifier: Apache-2.0
"""Problems injected into training on the simulated NPU, with the rules that must name them, and training without any."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class NpuCase:
    """One run; without rules it is clean. `train` is also the run that its truth is measured against."""

    name: str
    rules: frozenset[str] = frozenset()  # any of them names the problem
    also: frozenset[str] = frozenset()  # true as well: what the injected code does besides
    problem: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)
    timed: bool = True  # the problem costs time of its own

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "problem": self.problem, "train": self.train}


MODELS: tuple[dict[str, Any], ...] = (
    {"layers": 4},
    {"layers": 3, "width": 64},
    {"layers": 6, "width": 32},
    {"layers": 5, "batch": 24},
)


def injected() -> Iterator[NpuCase]:
    """Sixty and more problems of different size in models of different size."""

    def cases(kind: str, rules: str, sizes: list[dict[str, Any]], *, also: str = "", timed: bool = True) -> Iterator[NpuCase]:
        for number, size in enumerate(sizes):
            model = MODELS[number % len(MODELS)]
            accepted = frozenset(rules.split()), frozenset(also.split())
            yield NpuCase(f"{kind}-{number}", *accepted, {"kind": kind, **size}, model, timed)

    yield from cases("item", "sync-stall launch-blocking host-dispatch", [{"n": n} for n in (1, 2, 3, 1, 2, 4)])
    yield from cases("host_copy", "exposed-copy sync-stall launch-blocking", [{"n": n} for n in (1, 2, 1, 2, 1)])
    yield from cases("data", "data-wait", [{"ms": ms} for ms in (30, 45, 60, 80, 100, 40)])
    yield from cases("python", "host-python", [{"ms": ms} for ms in (10, 15, 20, 12, 25, 18)])
    # The objects are made in Python first.
    yield from cases("gc", "gc-pause", [{"n": n} for n in (2000, 4000, 8000, 12000, 20000)], also="host-python")
    yield from cases("cast", "cast-overhead", [{"n": n} for n in (2, 3, 4, 6, 8, 3)])
    yield from cases("transpose", "transpose-overhead", [{"n": n} for n in (2, 3, 4, 6, 8, 3)])
    yield from cases("unique", "ai-cpu sync-stall", [{"n": n} for n in (1, 2, 3, 2, 1)])
    yield from cases("alloc", "allocator sync-stall", [{"n": n} for n in (32, 64, 128, 96, 48)])
    # Saving copies the parameters to the host and waits for them; done every few steps it makes those slow.
    often = ((20, 1), (40, 2), (60, 2), (30, 1), (80, 4))
    sizes = [{"n": n, "every": every} for n, every in often]
    yield from cases("save", "checkpoint host-python slow-steps", sizes, also="sync-stall exposed-copy")
    yield from cases("leak", "memory-leak", [{"n": n} for n in (2, 4, 8, 3)], timed=False)
    yield from cases("shapes", "dynamic-shapes", [{"n": n} for n in (1, 3, 5)], timed=False)
    yield from cases("outlier", "slow-steps", [{"ms": ms, "every": 7} for ms in (120, 160, 200, 240)], timed=False)


def clean() -> Iterator[NpuCase]:
    """Models that nobody should be alarmed about; those of `MODELS` among them."""
    for number, model in enumerate(MODELS):
        for turn in range(3):
            yield NpuCase(f"clean-{number}-{turn}", train=model)
    for number, width in enumerate((24, 40, 56, 72)):
        for layers in (3, 5, 7):
            yield NpuCase(f"clean-{4 + number}-{layers}", train={"layers": layers, "width": width})
