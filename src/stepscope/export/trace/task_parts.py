# SPDX-License-Identifier: Apache-2.0
"""Parts of tasks in the timeline: sub tasks of fusions, first and last blocks of a run (docs/formats/cann.md 6.12)."""

from __future__ import annotations

import polars as pl

from stepscope.export.trace.processes import Processes, distinct_rows, placed
from stepscope.formats.ascend.trace import layers
from stepscope.tables import Tables

_LANES = ("AIC Earliest", "AIC Latest", "AIV Earliest", "AIV Latest")
_SHOWN = {"pid": pl.Int64(), "tid": pl.Int64(), "name": pl.String(), "task_type": pl.String()}


def place_parts(tables: Tables, processes: Processes) -> pl.DataFrame:
    """Rows of `task_parts` that are shown, with pid, tid, name and task_type; `row` is the row of the table."""
    parts = tables.task_parts.with_row_index("row")
    is_fusion = pl.col("kind").cast(pl.String) == "fusion"
    frames = [_fusions(parts.filter(is_fusion), processes), _blocks(parts.filter(~is_fusion), tables.kernels["name"], processes)]
    empty = parts.clear().with_columns(pl.lit(None, dtype).alias(name) for name, dtype in _SHOWN.items())
    columns = [pl.col(name).cast(_SHOWN[name]) if name in _SHOWN else pl.col(name) for name in empty.columns]
    return pl.concat([empty, *(frame.select(columns) for frame in frames if frame.height)])


def _fusions(rows: pl.DataFrame, processes: Processes) -> pl.DataFrame:
    if not rows.height:
        return rows
    name = pl.lit("Fusion ") + pl.col("type").cast(pl.String)
    rows = rows.with_columns(tid=pl.col("stream").fill_null(0), name=name, task_type=pl.lit("FUSION"))
    rows = placed(rows, processes, layers.FUSION)
    for pid, tid in sorted(distinct_rows(rows[["pid", "tid"]]).iter_rows()):
        processes.thread(pid, tid, f"Stream {tid}")
    return rows


def _blocks(rows: pl.DataFrame, names: pl.Series, processes: Processes) -> pl.DataFrame:
    """Blocks with counters go before those of the scheduler's log, which are the same ones."""
    kind = pl.col("kind").cast(pl.String)
    rows = rows.filter(pl.col("kernel").is_not_null())
    rows = rows.filter((kind == "counted block") | ~(kind == "counted block").any().over("kernel"))
    if not rows.height:
        return rows
    place, run = pl.int_range(pl.len()), ["kernel", "type"]
    of_vector = pl.when(pl.col("type").cast(pl.String) == "AIV").then(2).otherwise(0)
    ends = [(place.over(run) == 0, 1), (place.over(run) == pl.len().over(run) - 1, 2)]
    shown = pl.concat([rows.filter(at).with_columns(tid=of_vector + lane) for at, lane in ends])
    of_run = names.cast(pl.String).gather(shown["kernel"])
    shown = shown.with_columns(name=pl.format("Stream {} {}", "stream", of_run), task_type=pl.lit(None, pl.String))
    shown = placed(shown, processes, layers.BLOCKS)
    for pid in shown["pid"].unique().sort().to_list():
        for number, lane_name in enumerate(_LANES, 1):
            processes.thread(pid, number, lane_name)
    return shown
