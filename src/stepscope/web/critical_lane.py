# SPDX-License-Identifier: Apache-2.0
"""The critical path as a lane of the timeline: what the end of the run depended on, moment by moment."""

from __future__ import annotations

from typing import Any

import polars as pl

from stepscope.analysis.partition.model import COMMUNICATION, COMPUTE, COPY, FROM
from stepscope.analysis.replay.critical_path import critical_path
from stepscope.web.loaded import LoadedCapture
from stepscope.web.parameters import Query
from stepscope.web.views.verdict import answer_of

MOST_UNASKED = 300_000  # slices; of more, the path is only told where the verdict is known already
MOST_PIECES = 4000
_KINDS = {COMPUTE: "computing", COMMUNICATION: "communication", COPY: "copy"}


def path_lane(capture: LoadedCapture, query: Query) -> dict[str, Any]:
    """Pieces of the path in a window, in order; of many, neighbours of one kind that are shorter than a pixel are one.

    `kind` is computing, communication, copy (a task ran), wait (a task was released and had not started) or host (the host
    worked towards issuing it); `id` is the slice of the task.
    """
    index = capture.trace
    low, high = query.window(index.length_ns)
    width = query.number("px", 1000, least=1, most=10_000)
    if index.count > MOST_UNASKED and not capture.known("answer"):
        return {"pieces": None, "shares": {}}
    pieces = capture.once("critical path", lambda: _pieces(capture))
    inside = pieces.filter((pl.col("end") > low) & (pl.col("start") < high))
    clipped = pl.min_horizontal("end", pl.lit(high)) - pl.max_horizontal("start", pl.lit(low))
    sums = dict(inside.group_by("kind").agg(clipped.sum().alias("ns")).iter_rows())
    shown = inside if inside.height <= MOST_PIECES else _merged(inside, max(1, (high - low) // width))
    whole = sum(sums.values())
    return {
        "pieces": {name: shown[name].to_list() for name in ("start", "end", "kind", "id")},
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
            *(pl.col(name).get(longest) for name in ("kind", "id")),
        )
        .drop("cell")
    )
