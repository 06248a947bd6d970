# SPDX-License-Identifier: Apache-2.0
"""What steps leave behind: blocks that outlive the step after the one that allocated them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from stepscope.analysis.partition.spans import Ints


@dataclass(frozen=True)
class Kept:
    """Rows are owner, operator, steps (in how many it happens), bytes, held (bytes never released), per_step (bytes by step).

    Attributes:
        judged: how many steps can be judged; the last one has no step after it.
    """

    rows: pl.DataFrame
    judged: int


def step_of_blocks(blocks: pl.DataFrame, steps: pl.DataFrame) -> Ints:
    """Row of `steps` (by time) in which each block was allocated, -1 outside all of them."""
    if not steps.height:
        return np.full(blocks.height, -1, dtype=np.int64)
    start, end = steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()
    at = blocks["start_ns"].to_numpy()
    place = np.searchsorted(start, at, side="right") - 1
    inside = (place >= 0) & (at < end[np.maximum(place, 0)])
    found: Ints = np.where(inside, place, -1).astype(np.int64)
    return found


def kept_over_steps(blocks: pl.DataFrame, steps: pl.DataFrame) -> Kept:
    """Blocks that are still held when the step after theirs ends, by owner and operator; what most steps do comes first.

    Args:
        blocks: owner, operator, bytes, start_ns, release_ns (null: never).
        steps: start_ns and end_ns, by time.
    """
    judged = max(0, steps.height - 1)
    place = step_of_blocks(blocks, steps)
    next_end = np.append(steps["end_ns"].to_numpy()[1:], 0) if steps.height else np.zeros(1, dtype=np.int64)
    released = blocks["release_ns"].fill_null(np.iinfo(np.int64).max).to_numpy()
    chosen = (place >= 0) & (place < judged) & (released >= next_end[np.maximum(place, 0)])
    rows = blocks.with_columns(step=pl.Series(place)).filter(pl.Series(chosen))
    each = rows.group_by("owner", "operator", "step").agg(
        pl.col("bytes").sum(), held=pl.col("bytes").filter(pl.col("release_ns").is_null()).sum()
    )
    whole = each.group_by("owner", "operator").agg(
        pl.len().cast(pl.Int64).alias("steps"), pl.col("bytes").sum(), pl.col("held").sum(), pl.col("step"), each=pl.col("bytes")
    )
    found = whole.with_columns(
        per_step=pl.struct("step", "each").map_elements(lambda row: _spread(row, judged), return_dtype=pl.List(pl.Int64))
    ).drop("step", "each")
    order = ["steps", "bytes", "owner", "operator"]
    return Kept(found.sort(order, descending=[True, True, False, False]), judged)


def _spread(row: dict[str, list[int]], count: int) -> list[int]:
    found = [0] * count
    for step, size in zip(row["step"], row["each"], strict=True):
        found[step] = size
    return found
