# SPDX-License-Identifier: Apache-2.0
"""Steps of a training run from the tags that its graph writes: forward, backward, all-reduces, end (docs/formats/cann.md 6.11)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

FORWARD, BACKWARD, STEP_END = 1, 2, 255
_FIRST_REDUCE, _LAST_REDUCE = 3, 254  # odd tags start an all-reduce, the even ones after them end it


class StepTrace(NamedTuple):
    """Counter values of steps and of what they reduced.

    steps: step, start, end, forward, backward (null where the tag is missing).
    reduces: step, tag (odd), stream, start, end; in the order of step and start.
    """

    steps: pl.DataFrame
    reduces: pl.DataFrame
    open_records: int  # after the last end of a step
    odd_reduces: int  # starts and ends of all-reduces without the other


def step_trace(rows: npt.NDArray[Any]) -> StepTrace:
    """Steps end with their end tag; each begins where the one before ended, the first with its forward pass."""
    counter, tag = rows["counter"].astype(np.int64), np.minimum(rows["tag"], 1 << 31).astype(np.int64)
    is_end = tag == STEP_END
    step = np.cumsum(is_end) - is_end + 1
    steps = int(is_end.sum())
    frame = pl.DataFrame({"step": step, "tag": tag, "counter": counter, "stream": rows["stream"].astype(np.int64)})
    inside = frame.filter(pl.col("step") <= steps)
    of_tag = {number: pl.col("counter").filter(pl.col("tag") == number).first() for number in (FORWARD, BACKWARD, STEP_END)}
    found = (
        inside.group_by("step", maintain_order=True)
        .agg(end=of_tag[STEP_END], forward=of_tag[FORWARD], backward=of_tag[BACKWARD], first=pl.col("counter").min())
        .with_columns(start=pl.coalesce(pl.col("end").shift(1), "forward", "first"))
        .select("step", "start", "end", "forward", "backward")
    )
    tags = inside.filter(pl.col("tag").is_between(_FIRST_REDUCE, _LAST_REDUCE)).with_columns(
        of=(pl.col("tag") + 1) // 2, turn=pl.int_range(pl.len()).over("step", "tag")
    )
    key = ["step", "of", "turn"]
    starts = tags.filter(pl.col("tag") % 2 == 1).select(*key, "tag", "stream", start="counter")
    ends = tags.filter(pl.col("tag") % 2 == 0).select(*key, end="counter")
    reduces = starts.join(ends, on=key, how="inner").filter(pl.col("end") >= pl.col("start"))
    return StepTrace(
        found,
        reduces.select("step", "tag", "stream", "start", "end").sort("step", "start"),
        frame.height - inside.height,
        tags.height - 2 * reduces.height,
    )
