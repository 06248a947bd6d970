# SPDX-License-Identifier: Apache-2.0
"""The shape of a diff: rows whose changes sum exactly to the change of the mean step, and whether both sides can be compared."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from stepscope.diff import words
from stepscope.diff.comparability import Check
from stepscope.diff.noise import CHANGED, Noise

if TYPE_CHECKING:
    from stepscope.diff.engine import Side
    from stepscope.diff.gate import Gate

SCHEMA = "stepscope.diff/1"


class DiffError(AssertionError):
    """Rows do not sum to the change: a fault of ours, not of the data."""


@dataclass(frozen=True)
class Row:
    """One key on both sides. Times are exact ns per mean step, calls are per step.

    `op` and `kernel` are the names of the new side (of the base where it is gone); those of the base stand beside.
    """

    part: str
    module: str
    op: str
    kernel: str
    base_op: str
    base_kernel: str
    match: str  # exact, normalised, implementation, replaced, base, new
    base_ns: Fraction
    new_ns: Fraction
    base_calls: Fraction
    new_calls: Fraction
    calls_ns: Fraction  # because there are more or fewer calls, at the old price
    price_ns: Fraction  # because a call costs more or less
    noise: Noise

    @property
    def delta_ns(self) -> Fraction:
        return self.new_ns - self.base_ns

    @property
    def status(self) -> str:
        """changed, within noise or cannot tell."""
        return self.noise.status

    @property
    def real(self) -> bool:
        """Beyond noise."""
        return self.status == CHANGED

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.part, self.module, self.op, self.kernel

    def as_dict(self) -> dict[str, Any]:
        band = (self.noise.low_ns, self.noise.high_ns)
        return {
            "part": self.part,
            "module": self.module,
            "op": self.op,
            "kernel": self.kernel,
            "base_op": self.base_op,
            "base_kernel": self.base_kernel,
            "match": self.match,
            "status": self.status,
            "real": self.real,
            "base_ms": _ms(self.base_ns),
            "new_ms": _ms(self.new_ns),
            "delta_ms": _ms(self.delta_ns),
            "calls_ms": _ms(self.calls_ns),
            "price_ms": _ms(self.price_ns),
            "base_calls": round(float(self.base_calls), 6),
            "new_calls": round(float(self.new_calls), 6),
            "band_ms": None if band[0] is None or band[1] is None else [_ms(band[0]), _ms(band[1])],
            "p": self.noise.p,
            "q": self.noise.q,
            "exact_ns": {
                name: str(value)
                for name, value in (
                    ("base", self.base_ns),
                    ("new", self.new_ns),
                    ("delta", self.delta_ns),
                    ("calls", self.calls_ns),
                    ("price", self.price_ns),
                )
            },
        }


@dataclass(frozen=True)
class Diff:
    """Why the mean step of the new side differs from that of the base.

    Attributes:
        rows: at the level asked for, what changed first; `sum(row.delta_ns for row in rows) == delta_ns`.
        parts: the same by part.
        checks: what was compared before any time.
        samples: what noise was estimated from, steps or runs.
    """

    by: str
    base_ns: Fraction
    new_ns: Fraction
    noise: Noise
    rows: tuple[Row, ...]
    parts: tuple[Row, ...]
    checks: tuple[Check, ...]
    steps: tuple[int, int]
    runs: tuple[int, int]
    samples: str
    marked: bool
    warm_up: tuple[int, int] = (0, 0)
    simulated: bool = False
    peak_bytes: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())
    gate: Gate | None = None
    sides: tuple[Side, Side] | None = field(default=None, repr=False, compare=False)

    @property
    def delta_ns(self) -> Fraction:
        return self.new_ns - self.base_ns

    @property
    def status(self) -> str:
        return self.noise.status

    @property
    def comparable(self) -> bool:
        """Both sides did the same work and were recorded in the same way, as far as they say."""
        return not any(check.blocks for check in self.checks)

    def at(self, by: str) -> Diff:
        """The same diff with rows of another level: part, module, op or kernel."""
        from stepscope.diff.engine import compare_sides

        if by == self.by or self.sides is None:
            return self
        return replace(compare_sides(*self.sides, by=by), gate=self.gate)

    def with_gate(self, gate: Gate) -> Diff:
        return replace(self, gate=gate)

    def _repr_html_(self) -> str:
        from stepscope.diff.html import block

        return block(self, words.language())

    def _repr_markdown_(self) -> str:
        from stepscope.diff.text import markdown

        return "\n".join(markdown(self, words.language()))

    def as_dict(self) -> dict[str, Any]:
        band = (self.noise.low_ns, self.noise.high_ns)
        return {
            "schema": SCHEMA,
            "by": self.by,
            "answer": {lang: words.answer(self, lang) for lang in words.LANGUAGES},
            "base_ms": _ms(self.base_ns),
            "new_ms": _ms(self.new_ns),
            "delta_ms": _ms(self.delta_ns),
            "exact_ns": {"base": str(self.base_ns), "new": str(self.new_ns), "delta": str(self.delta_ns)},
            "status": self.status,
            "band_ms": None if band[0] is None or band[1] is None else [_ms(band[0]), _ms(band[1])],
            "comparable": {
                "same": self.comparable,
                "checks": [
                    {"name": one.name, "about": one.about, "base": one.base, "new": one.new, "same": one.same}
                    for one in self.checks
                ],
            },
            "steps": {"base": self.steps[0], "new": self.steps[1], "warm_up": list(self.warm_up)},
            "runs": {"base": self.runs[0], "new": self.runs[1]},
            "samples": self.samples,
            "notes": {lang: words.notes(self, lang) for lang in words.LANGUAGES},
            "parts": [row.as_dict() for row in self.parts],
            "rows": [row.as_dict() for row in self.rows],
            "gate": None if self.gate is None else self.gate.as_dict(),
        }


def _ms(ns: Fraction | float) -> float:
    return round(float(ns) / 1e6, 6)
