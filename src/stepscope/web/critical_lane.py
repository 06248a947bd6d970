# SPDX-License-Identifier: Apache-2.0
"""What the verdict knows about moments of the timeline: the critical path as a lane, and a cause for each stretch of idle time."""

from __future__ import annotations

from typing import Any

import polars as pl

from stepscope.analysis.partition.model import COMMUNICATION, COMPUTE, COPY, FROM
from stepscope.analysis.replay.critical_path import critical_path
from stepscope.web.loaded import LoadedCapture
from stepscope.web.parameters import Query
from stepscope.web.views.verdict import UNKNOWN, answer_of, family_of

MOST_UNASKED = 300_000  # slices; of more, the path is only told where the verdict is known already
MOST_PIECES = 4000
_KINDS = {COMPUTE: "computing", COMMUNICATION: "communication", COPY: "copy"}


def path_lane(capture: LoadedCapture, query: Query) -> dict[str, Any]:
    """Pieces of the path in a window, in order; of many, neighbours of one kind that are shorter than a pixel are one.

    `kind` is computing, communication, copy (a task ran), wait (a task was released and had not started) or host (the host
    worked towards issuing it); `id` is the slice of the task. `gaps` are stretches in which the device had nothing to run; their
    `kind` is the family that took most of them, as in the verdict.
    """
    index = capture.trace
    low, high = query.window(index.length_ns)
    width = query.number("px", 1000, least=1, most=10_000)
    if index.count > MOST_UNASKED and not capture.known("answer"):
        return {"pieces": None, "shares": {}, "gaps": None}
    within = (pl.col("end") > low) & (pl.col("start") < high)
    inside = capture.once("critical path", lambda: _pieces(capture)).filter(within)
    gaps = capture.once("idle causes", lambda: _gaps(capture)).filter(within)
    clipped = pl.min_horizontal("end", pl.lit(high)) - pl.max_horizontal("start", pl.lit(low))
    sums = dict(inside.group_by("kind").agg(clipped.sum().alias("ns")).iter_rows())
    shown, idle = (part if part.height <= MOST_PIECES else _merged(part, max(1, (high - low) // width)) for part in (inside, gaps))
    whole = sum(sums.values())
    return {
        "pieces": {name: shown[name].to_list() for name in ("start", "end", "kind", "id")},
        "gaps": {name: idle[name].to_list() for name in ("start", "end", "kind")},
        "shares": {kind: ns / whole for kind, ns in sorted(sums.items(), key=lambda one: -one[1])} if whole else {},
    }


def _pieces(capture: LoadedCapture) -> pl.DataFrame:
    """start and end since the first event, kind, and the slice of the task."""
    case = answer_of(capture).case
    schema = {"start": pl.Int64, "end": pl.Int64, "kind": pl.String, "id": pl.Int64}
    if case.schedule is None or not case.has_device:
        return pl.DataFrame(schema=schema)
    path = critical_path(case.schedule)
    tasks = case.model.tasks[path["task"].to_list()].select("table", "row", "kind")
    ids = [capture.trace.id_of(FROM[table], row) for table, row, _ in tasks.iter_rows()]
    kinds = [
        _KINDS.get(kind, "computing") if where == "device" else where
        for where, kind in zip(path["where"], tasks["kind"], strict=True)
    ]
    base = capture.base_ns
    times = {name: path[f"{name}_ns"] - base for name in ("start", "end")}
    return pl.DataFrame({**times, "kind": kinds, "id": ids}, schema=schema)


def _gaps(capture: LoadedCapture) -> pl.DataFrame:
    """start and end since the first event, and the family of causes that took most of it."""
    gaps = answer_of(capture).case.parts.gaps
    columns = [name for name in gaps.columns if name.startswith("idle.")]
    if not gaps.height or not columns:
        return pl.DataFrame(schema={"start": pl.Int64, "end": pl.Int64, "kind": pl.String})
    largest = pl.max_horizontal(columns)
    cause = pl.lit(UNKNOWN)
    for name in columns:
        cause = pl.when((pl.col(name) == largest) & (largest > 0)).then(pl.lit(family_of(name))).otherwise(cause)
    base = capture.base_ns
    return gaps.select(start=pl.col("start_ns") - base, end=pl.col("end_ns") - base, kind=cause).sort("start")


def _merged(pieces: pl.DataFrame, pixel: int) -> pl.DataFrame:
    """One piece for each pixel and run of long ones: the longest gives kind and slice."""
    length = pl.col("end") - pl.col("start")
    cell = pl.when(length >= pixel).then(-1 - pl.int_range(pl.len())).otherwise(pl.col("start") // pixel)
    longest = length.arg_max()
    return (
        pieces.group_by(cell.alias("cell"), maintain_order=True)
        .agg(
            pl.col("start").min(),
            pl.col("end").max(),
            *(pl.col(name).get(longest) for name in ("kind", "id") if name in pieces.columns),
        )
        .drop("cell")
    )
