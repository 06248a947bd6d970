# SPDX-License-Identifier: Apache-2.0
"""Every slice and sample of a capture with its place in the timeline, gathered from the tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from stepscope.export.trace.counters import NOT_SHOWN
from stepscope.export.trace.processes import Process, placed
from stepscope.export.trace.timeline import Timeline, lay_out
from stepscope.formats.ascend.trace import layers
from stepscope.tables import TEXT, Tables

# What slices come from; the position is the code in the index. Device parts of marks are rows of `marks` too.
SOURCES = (
    "ops", "python_calls", "queue", "gc_pauses", "api_calls", "marks", "kernels", "device_marks", "collectives", "transfers",
    "overlap", "waits", "task_parts",
)  # fmt: skip
OWN_TABLE = {"device_marks": "marks"}
_FIRST = {layers.PYTHON.name: 0, layers.CANN.name: 1, layers.HARDWARE.name: 2}


@dataclass(frozen=True)
class Gathered:
    """Slices (pid, tid, start_ns, end_ns, name, source, row) and samples of one capture, and the processes they stand on."""

    slices: pl.DataFrame
    samples: pl.DataFrame  # process (its position), name, series, instance, time_ns, value; sorted by these
    processes: list[Process]
    threads: dict[tuple[int, int], tuple[str, int]]  # label and sort position
    timeline: Timeline


def gather(tables: Tables) -> Gathered:
    timeline = lay_out(tables)
    old = tables.facts.generation in ("G1", "G2")
    parts = [_part(source, frame, old) for source, frame in _shown(tables, timeline) if frame.height]
    samples = _samples(tables.counters, timeline)
    empty = pl.DataFrame(
        schema={
            "pid": pl.Int64, "tid": pl.Int64, "start_ns": pl.Int64, "end_ns": pl.Int64, "name": TEXT, "source": pl.UInt8,
            "row": pl.UInt32,
        }
    )  # fmt: skip
    slices = pl.concat([empty, *parts])
    shown = set(slices["pid"].unique()) | set(samples["pid"].unique())
    processes = sorted((process for process in timeline.processes if process.pid in shown), key=_order)
    threads = {
        (process.pid, tid): (name, sort) for process in processes for tid, name, sort in timeline.processes.threads(process.pid)
    }
    if old:
        processes = [_old_name(process) for process in processes]
    return Gathered(slices, _by_process(samples, processes), processes, threads, timeline)


def _order(process: Process) -> tuple[int, int, str, int]:
    return (_FIRST.get(process.layer.name, 3), process.layer.sort, process.label, process.pid)


def _old_name(process: Process) -> Process:
    # docs/formats/outputs.md 3.2: the process was called HCCL until the third generation.
    return (
        Process(process.pid, process.layer, layers.COMMUNICATION.older, process.label)
        if process.layer is layers.COMMUNICATION
        else process
    )


def _shown(tables: Tables, timeline: Timeline) -> Iterator[tuple[str, pl.DataFrame]]:
    for source in SOURCES:
        frame = timeline[source]
        row = pl.int_range(pl.len(), dtype=pl.UInt32)
        if source == "device_marks":
            rows = np.flatnonzero(tables.marks["device_start_ns"].is_not_null().to_numpy()).astype(np.uint32)
            yield source, frame.with_columns(pl.Series("row", rows))
        elif source == "marks" and not timeline.is_npu:
            # Kineto's annotations: their host side is an operator already.
            host_only = (pl.col("kind") != "annotation").fill_null(True)
            yield source, frame.with_columns(row=row).filter(host_only)
        elif source == "queue" and tables.facts.generation == "G1":
            # docs/formats/outputs.md 2: enqueues carried no name then; the one we know stands in the details.
            named = pl.when(pl.col("kind") != "enqueue").then("name").alias("name")
            yield source, frame.with_columns(named, row=row)
        elif source in ("collectives", "transfers") and not timeline.is_npu:
            continue  # single kernels, shown as such
        else:
            yield source, frame if "row" in frame.columns else frame.with_columns(row=row)


def _part(source: str, frame: pl.DataFrame, old: bool) -> pl.DataFrame:
    return frame.select(
        pl.col("pid", "tid").cast(pl.Int64),
        "start_ns",
        pl.max_horizontal("start_ns", pl.col("end_ns").fill_null(pl.col("start_ns"))).alias("end_ns"),
        _names(source, frame, old).alias("name"),
        pl.lit(SOURCES.index(source), pl.UInt8).alias("source"),
        "row",
    ).filter(pl.col("start_ns").is_not_null())


def _names(source: str, frame: pl.DataFrame, old: bool) -> pl.Series:
    """What is written on a slice, as the vendor's timeline of that age has it; each different name is built once."""
    if source == "gc_pauses":
        return pl.Series("name", ["GC"] * frame.height, dtype=TEXT)
    column = {"marks": "message", "device_marks": "message", "transfers": "task_type", "overlap": "layer"}.get(source, "name")
    word = {"queue": "kind", "api_calls": "level"}.get(source)
    if word is None:
        return frame.select(pl.col(column).cast(TEXT).fill_null(pl.lit("(no name)", TEXT))).to_series()
    keys = [word, column]
    distinct = frame.select(keys).unique()
    text = pl.col(column).cast(pl.String).fill_null("")
    if source == "queue":
        parts = pl.col(word).cast(pl.String).str.to_titlecase() + pl.when(text != "").then("@" + text).otherwise(pl.lit(""))
    else:
        prefix = (
            pl.col(word).cast(pl.String).replace_strict(layers.API_PREFIX | (layers.OLD_API_PREFIX if old else {}), default=None)
        )
        parts = pl.when(prefix.is_not_null()).then(prefix + "@" + text).otherwise(text)
    named = distinct.with_columns(parts.cast(TEXT).alias("#name"))
    return frame.select(keys).join(named, on=keys, how="left", nulls_equal=True, maintain_order="left")["#name"]


def _samples(counters: pl.DataFrame, timeline: Timeline) -> pl.DataFrame:
    key = ["pid", "name", "series", "instance"]
    parts = [
        pl.DataFrame(
            schema={
                "pid": pl.Int64, "name": TEXT, "series": TEXT, "instance": pl.Int64, "time_ns": pl.Int64, "value": pl.Float64
            }
        )
    ]  # fmt: skip
    for source in counters["source"].unique().drop_nulls().cast(pl.String).sort().to_list():
        if source not in NOT_SHOWN:
            layer = layers.COUNTERS.get(source) or layers.Layer(source, layers.UNKNOWN_SORT)
            rows = counters.filter(pl.col("source") == source)
            parts.append(placed(rows, timeline.processes, layer, os_pid="").select(*key, "time_ns", "value"))
    return pl.concat(parts)


def _by_process(samples: pl.DataFrame, processes: list[Process]) -> pl.DataFrame:
    position = {process.pid: number for number, process in enumerate(processes)}
    process = pl.col("pid").replace_strict(position, return_dtype=pl.Int64).alias("process")
    text = pl.col("name", "series").cast(pl.String).name.suffix("#")
    ordered = samples.select(process, pl.exclude("pid")).with_columns(text)
    return ordered.sort("process", "name#", "series#", "instance", "time_ns", maintain_order=True).drop("name#", "series#")
