# SPDX-License-Identifier: Apache-2.0
"""What a typical step of a capture is made of, and which steps are slow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

SLOW = 3.0  # median absolute deviations above the median


@dataclass(frozen=True)
class StepSummary:
    """Figures over all steps, in the unit of the rows."""

    average: float | None  # mean of the totals; None without steps
    median: float
    deviation: float  # median absolute deviation of the totals
    parts: pl.DataFrame  # part, mean, percent (of the average total)
    slow: list[bool]  # of each row: longer than the median by more than `SLOW` deviations


def step_summary(rows: pl.DataFrame, parts: Sequence[str]) -> StepSummary:
    """Means of the parts and of `total` over the steps, and how far single steps are from the median.

    Args:
        rows: one row per step (and device) with a column for each part, and `total`.
        parts: columns that a step is made of; some may be parts of others.
    """
    totals = rows["total"].to_list()
    # Added in the order of the steps: figures do not depend on how an engine divides a sum.
    average = sum(totals) / len(totals) if totals else None
    means = [sum(rows[part].to_list()) / len(totals) if totals else 0.0 for part in parts]
    percent = [100 * mean / average if average else 0.0 for mean in means]
    lengths = pl.Series(totals, dtype=pl.Float64)
    median = _number(lengths.median())
    deviation = _number((lengths - median).abs().median())
    slow = [bool(deviation and total > median + SLOW * deviation) for total in totals]
    table = pl.DataFrame(
        {"part": list(parts), "mean": means, "percent": percent},
        schema={"part": pl.String, "mean": pl.Float64, "percent": pl.Float64},
    )
    return StepSummary(average, median, deviation, table, slow)


def _number(value: Any) -> float:
    return float(value or 0)
