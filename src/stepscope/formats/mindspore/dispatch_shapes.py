# SPDX-License-Identifier: Apache-2.0
"""Input shapes of kernels whose operator our dispatch mode saw.

The call of an operator begins arrows to the thread that launches kernels; a kernel belongs to the newest arrow that has
arrived there. A kernel about which anything is in doubt gets no shapes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from stepscope.formats.mindspore.clock import TickClock
from stepscope.formats.mindspore.losses import note
from stepscope.formats.mindspore.ranges import FLOW
from stepscope.formats.mindspore.records import DISPATCH_FILE, OP_RANGE, read_layout
from stepscope.tables import TEXT, issues


def with_shapes(
    kernels: pl.DataFrame, ranges: pl.DataFrame, folder: Path, clock: TickClock, quality: list[pl.DataFrame]
) -> pl.DataFrame:
    """Table `kernels` with the shapes that the calls had.

    Args:
        kernels: the table; `launch_ns` and `launch_tid` say where a kernel was launched.
        ranges: host records of the same capture, as `ranges.read` gives them.
        folder: FRAMEWORK/.
        clock: of the capture's records.
    """
    path = folder / DISPATCH_FILE
    if not path.is_file() or path.is_symlink() or not kernels.height:
        return kernels
    calls = _calls(path, clock, quality)
    flows = _arrows(ranges)
    if not calls.height or not flows.height:
        return kernels
    arrow = _arrow_of(kernels, flows)
    call = _call_of(flows, calls)
    row = np.where(arrow >= 0, call[np.maximum(arrow, 0)], -1)
    seen = pl.Series(row).set(pl.Series(row < 0), None)
    same = calls["name"].gather(seen) == kernels["name"].cast(pl.String)
    shapes = (
        calls["info"].gather(seen).zip_with(same.fill_null(False), pl.Series([None], dtype=pl.String).new_from_index(0, row.size))
    )
    bare = int((kernels["input_shapes"].is_null() & shapes.is_null()).sum())
    note(quality, issues.SHAPES_UNKNOWN, DISPATCH_FILE, bare, "MindSpore does not show their operators to us")
    return kernels.with_columns(pl.coalesce(pl.col("input_shapes").cast(pl.String), shapes).cast(TEXT).alias("input_shapes"))


def _calls(path: Path, clock: TickClock, quality: list[pl.DataFrame]) -> pl.DataFrame:
    raw = read_layout(path, OP_RANGE, quality)
    times = [clock.to_epoch_ns(raw[name]).alias(f"{name}_ns") for name in ("start", "end")]
    return raw.select(pl.col("tid").cast(pl.Int64, strict=False), "name", "info").with_columns(times).sort("tid", "start_ns")


def _arrows(ranges: pl.DataFrame) -> pl.DataFrame:
    """Arrows from thread to thread. Ids are reused, since several counters assign them; what goes from one thread to one other
    arrives in order, so that the n-th start of an id belongs to its n-th end. Other ids are left out."""
    marked = ranges.filter(pl.col("flow").is_not_null() & ~pl.col("is_stack"))
    begins = pl.col("name").cast(pl.String) == FLOW
    nth = [pl.int_range(pl.len()).over("flow").alias("nth"), pl.len().over("flow").alias("many")]
    one_thread = pl.col("tid").n_unique().over("flow") == 1
    sides = [
        marked.filter(side).filter(one_thread).sort("start_ns").select("flow", *nth, tid="tid", ns="start_ns")
        for side in (begins & (pl.col("start_ns") != pl.col("end_ns")), ~begins)
    ]
    paired = sides[0].join(sides[1], on=["flow", "nth", "many"], suffix="_to")
    return paired.filter(pl.col("ns") <= pl.col("ns_to")).select(from_tid="tid", from_ns="ns", to_tid="tid_to", to_ns="ns_to")


def _arrow_of(kernels: pl.DataFrame, flows: pl.DataFrame) -> np.ndarray:
    """For each kernel the row of the newest arrow that has arrived on its thread; -1 when there is none."""
    found = np.full(kernels.height, -1, np.int64)
    threads = kernels["launch_tid"].fill_null(-1).to_numpy()
    times = kernels["launch_ns"].fill_null(0).to_numpy()
    targets = flows["to_tid"].fill_null(-1).to_numpy()
    for thread in np.unique(threads[threads >= 0]):
        arrows = np.flatnonzero(targets == thread)
        arrows = arrows[np.argsort(flows["to_ns"].to_numpy()[arrows], kind="stable")]
        mine = np.flatnonzero(threads == thread)
        at = np.searchsorted(flows["to_ns"].to_numpy()[arrows], times[mine], side="right") - 1
        found[mine[at >= 0]] = arrows[at[at >= 0]]
    return found


def _call_of(flows: pl.DataFrame, calls: pl.DataFrame) -> np.ndarray:
    """For each arrow the row of the call that it began in; -1 when there is none. Calls of a thread do not overlap, except
    nested ones, of which the inner is the newer."""
    found = np.full(flows.height, -1, np.int64)
    sources, begins = flows["from_tid"].fill_null(-1).to_numpy(), flows["from_ns"].to_numpy()
    threads, start, end = (calls[name].to_numpy() for name in ("tid", "start_ns", "end_ns"))
    for thread in np.unique(threads):
        rows = np.flatnonzero(threads == thread)
        mine = np.flatnonzero(sources == thread)
        at = np.searchsorted(start[rows], begins[mine], side="right") - 1
        inside = (at >= 0) & (end[rows[np.maximum(at, 0)]] >= begins[mine])
        found[mine[inside]] = rows[at[inside]]
    return found
