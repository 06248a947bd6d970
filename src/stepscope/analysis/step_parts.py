# SPDX-License-Identifier: Apache-2.0
"""Where the time of each step went on GPUs and CPUs: by who was active first in a list, so that the parts add up to the step."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.analysis.overlap import intersect, merge, subtract
from stepscope.analysis.steps import is_step
from stepscope.tables import Tables

PARTS = ("Kernel", "Memcpy", "Memset", "Communication", "Runtime", "DataLoader", "CPU Exec", "Other")
LOADER = "enumerate(DataLoader)"  # how the framework names the wait for a batch
_SPAN = ["start_ns", "end_ns"]


def step_parts(tables: Tables, whole: tuple[int, int] | None = None) -> pl.DataFrame:
    """One row per step: step, one column per name in `PARTS`, and `total`, in ns.

    An instant counts for the first part that is active then; `Other` is when none is.

    Args:
        tables: linked tables.
        whole: the span that stands in for a step (with the number null) when the capture has none.
    """
    steps = tables.steps.select("step", *_SPAN)
    if not steps.height and whole is not None:
        steps = pl.DataFrame({"step": [None], "start_ns": [whole[0]], "end_ns": [whole[1]]}, schema=steps.schema)
    kind = pl.col("kind")
    layers = {
        "Kernel": tables.kernels.filter(kind == "compute"),
        "Memcpy": tables.kernels.filter(kind == "memcpy"),
        "Memset": tables.kernels.filter(kind == "memset"),
        "Communication": tables.kernels.filter(kind == "communication"),
        "Runtime": tables.api_calls,
        "DataLoader": tables.ops.filter(pl.col("name").cast(pl.String).str.starts_with(LOADER).fill_null(False)),
        "CPU Exec": tables.ops.filter(~is_step()),
    }
    within = merge(steps.select(_SPAN))
    earlier = pl.DataFrame(schema=dict.fromkeys(_SPAN, pl.Int64))
    columns = {}
    for name, frame in layers.items():
        spans = intersect(merge(frame.select(_SPAN)), within)
        columns[name] = _inside(subtract(spans, earlier), steps)
        earlier = merge(pl.concat([earlier, spans]))
    total = (steps["end_ns"] - steps["start_ns"]).to_numpy()
    columns["Other"] = total - sum(columns.values(), np.zeros(len(total), dtype=np.int64))
    return pl.DataFrame({"step": steps["step"], **columns, "total": total})


def _inside(spans: pl.DataFrame, steps: pl.DataFrame) -> npt.NDArray[np.int64]:
    """Time that disjoint sorted spans cover inside each step."""
    start, end = spans["start_ns"].to_numpy(), spans["end_ns"].to_numpy()
    before = np.concatenate(([0], np.cumsum(end - start)))

    def covered(time: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Covered time up to each moment."""
        place = np.searchsorted(start, time, side="right")
        last = np.maximum(place - 1, 0)
        over = np.where(place > 0, np.maximum(end[last] - time, 0), 0) if start.size else 0
        return np.asarray(before[place] - over, dtype=np.int64)

    return covered(steps["end_ns"].to_numpy()) - covered(steps["start_ns"].to_numpy())
