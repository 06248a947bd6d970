# SPDX-License-Identifier: Apache-2.0
"""Whether a difference of means is more than steps (or runs) vary by themselves.

A row has changed when all of these agree: the difference is at least `FLOOR` of the step, which a person would care about; ranks
differ (Mann and Whitney) with a false discovery rate below `RATE` over all rows (Benjamini and Hochberg); the bootstrap band of
the difference leaves out zero; and Welch's test, corrected for the number of rows and for steps that resemble their neighbours,
would be wrong in fewer than `WRONG` of comparisons. The last one is what keeps repeated comparisons of equal runs silent.

With so few samples that no arrangement of ranks could reach `RATE`, samples of both sides must not overlap instead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

LEAST = 3  # samples a side; with fewer nothing can be told
DRAWS = 2_000
FLOOR = 0.01  # of the base's mean step
RATE = 0.05
WRONG = 0.0002  # comparisons with a false change
WRONG_FEW = 0.001  # the same where ranks cannot decide
LEAST_NEIGHBOURS = 8  # samples a side from which the likeness of neighbours can be estimated

CHANGED, WITHIN_NOISE, CANNOT_TELL = "changed", "within noise", "cannot tell"


@dataclass(frozen=True)
class Noise:
    """What the tests say about one row."""

    status: str
    low_ns: float | None = None  # 95 % band of the difference of means
    high_ns: float | None = None
    p: float | None = None  # of ranks
    q: float | None = None  # corrected over all rows


def judge(base: Floats, new: Floats, floor_ns: float) -> list[Noise]:
    """Test every column.

    Args:
        base, new: one row per sample, one column per row of the diff; ns.
        floor_ns: differences below this are never a change.
    """
    columns = base.shape[1]
    if min(base.shape[0], new.shape[0]) < LEAST:
        return [Noise(CANNOT_TELL)] * columns
    if not columns:
        return []
    delta = new.mean(axis=0) - base.mean(axis=0)
    low, high = bands(base, new)
    p = np.array([mann_whitney(base[:, place], new[:, place]) for place in range(columns)])
    q = benjamini_hochberg(p)
    sure = np.array([welch(base[:, place], new[:, place]) for place in range(columns)]) * columns
    few = least_p(base.shape[0], new.shape[0]) * columns >= RATE
    apart = (base.max(axis=0) < new.min(axis=0)) | (new.max(axis=0) < base.min(axis=0))
    by_ranks = apart & (sure < WRONG_FEW) if few else (q < RATE) & (sure < WRONG)
    changed = by_ranks & ((low > 0) | (high < 0)) & (np.abs(delta) >= floor_ns)
    return [
        Noise(CHANGED if changed[place] else WITHIN_NOISE, float(low[place]), float(high[place]), float(p[place]), float(q[place]))
        for place in range(columns)
    ]


def bands(base: Floats, new: Floats) -> tuple[Floats, Floats]:
    """95 % bootstrap band of the difference of means, the same draws for all columns."""
    random = np.random.default_rng(0)
    means = []
    for side in (base, new):
        count = side.shape[0]
        weights = random.multinomial(count, np.full(count, 1 / count), size=DRAWS) / count
        means.append(weights @ side)
    low, high = np.quantile(means[1] - means[0], (0.025, 0.975), axis=0)
    return low, high


def mann_whitney(base: Floats, new: Floats) -> float:
    """Two-sided probability that ranks differ so much by chance; normal approximation with ties."""
    _, place, counts = np.unique(np.concatenate((base, new)), return_inverse=True, return_counts=True)
    rank = (np.cumsum(counts) - (counts - 1) / 2)[place]
    n, m = base.size, new.size
    larger = rank[:n].sum() - n * (n + 1) / 2
    ties = float(((counts**3) - counts).sum())
    variance = n * m / 12 * ((n + m + 1) - ties / ((n + m) * (n + m - 1)))
    if variance <= 0:
        return 1.0
    return math.erfc(max(abs(larger - n * m / 2) - 0.5, 0) / math.sqrt(2 * variance))


def least_p(n: int, m: int) -> float:
    """The smallest probability that `mann_whitney` can give with so many samples."""
    return math.erfc((n * m / 2 - 0.5) / math.sqrt(n * m * (n + m + 1) / 6))


def benjamini_hochberg(p: Floats) -> Floats:
    """Each probability as the false discovery rate at which its row would be taken for a change."""
    order = np.argsort(p, kind="stable")
    scaled = p[order] * p.size / np.arange(1, p.size + 1)
    q = np.empty_like(p)
    q[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    return q


def welch(base: Floats, new: Floats) -> float:
    """Two-sided probability of the difference of means under Welch's test."""
    delta = abs(float(new.mean() - base.mean()))
    alike = _likeness(base, new)
    squares = [float(side.var(ddof=1)) / side.size * alike for side in (base, new)]
    error = sum(squares)
    if error <= 0:
        return 0.0 if delta > 0 else 1.0
    freedom = error**2 / sum(square**2 / (side.size - 1) for square, side in zip(squares, (base, new), strict=True))
    return student(delta / math.sqrt(error), freedom)


def _likeness(*sides: Floats) -> float:
    """How many times fewer independent samples there are, because a sample resembles the one before.

    The correlation of neighbours, estimated around the mean of few samples, is too low; the last term makes up for it (Kendall).
    """
    if min(side.size for side in sides) < LEAST_NEIGHBOURS:
        return 1.0
    centred = [side - side.mean() for side in sides]
    square = sum(float((side**2).sum()) for side in centred)
    alike = sum(float((side[1:] * side[:-1]).sum()) for side in centred) / square if square > 0 else 0.0
    alike += (1 + 3 * alike) / min(side.size for side in sides)
    alike = min(max(alike, 0.0), 0.9)
    return (1 + alike) / (1 - alike)


def student(t: float, freedom: float) -> float:
    """Two-sided tail of Student's distribution."""
    return _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function, by its continued fraction."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    tiny = 1e-300
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > tiny else tiny)
    value = d
    for step in range(1, 200):
        for numerator in (
            step * (b - step) * x / ((a + 2 * step - 1) * (a + 2 * step)),
            -(a + step) * (a + b + step) * x / ((a + 2 * step) * (a + 2 * step + 1)),
        ):
            d = 1 + numerator * d
            d = 1 / (d if abs(d) > tiny else tiny)
            c = 1 + numerator / c
            c = c if abs(c) > tiny else tiny
            value *= c * d
        if abs(c * d - 1) < 1e-12:
            break
    return front * value
