# SPDX-License-Identifier: Apache-2.0
"""What the framework did, as tables: operators, steps, queue, Python calls, memory events, garbage collections."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stepscope.formats.framework.clock import FrameworkClock
from stepscope.formats.framework.layouts import KINDS
from stepscope.formats.framework.old_tracer import read_old_tracer
from stepscope.formats.framework.python_replay import python_calls_table
from stepscope.formats.framework.queue_pairs import queue_table
from stepscope.formats.framework.records import read_kind
from stepscope.tables import ALL_TABLES, TEXT, Tables
from stepscope.tables.threads import side_by_side

Part = tuple[dict[str, pl.DataFrame], list[pl.DataFrame]]  # tables by name, and what was lost

_STEP_NAME = "ProfilerStep#"
_INPUTS = ("tensors", "tensor_lists", "scalars")
_UNNAMED = "N/A"  # shown for a name that is not text (docs/formats/framework.md 3.3)


def read(folder: Path, clock: FrameworkClock, *, parallel: bool = True) -> Tables:
    """Everything in a FRAMEWORK folder; what is not there is an empty table, what is broken is counted in `quality`."""
    # Operators are nearly half of the work.
    parts = side_by_side(lambda: _operators(folder, clock), lambda: _other_tables(folder, clock), parallel=parallel)
    frames = {name: frame for part, _ in parts for name, frame in part.items()}
    return Tables({**frames, "quality": pl.concat([clock.quality, *(losses for _, quality in parts for losses in quality)])})


def _operators(folder: Path, clock: FrameworkClock) -> Part:
    raw, losses = read_kind(folder, KINDS["op_range"])
    ops, inputs = _ops(raw, clock)
    return {"ops": ops, "op_inputs": inputs, "steps": _steps(ops)}, [losses]


def _other_tables(folder: Path, clock: FrameworkClock) -> Part:
    frames: dict[str, pl.DataFrame] = {}
    quality: list[pl.DataFrame] = []

    def raw(name: str) -> pl.DataFrame:
        frame, losses = read_kind(folder, KINDS[name])
        quality.append(losses)
        return frame

    frames["queue"], losses = queue_table(raw("op_mark"), clock)
    quality += losses
    frames["memory_events"] = _memory_events(raw("memory_usage"), clock)
    events, texts = raw("python_tracer_func"), raw("python_tracer_hash")
    if not events.height:
        events, texts, losses = read_old_tracer(folder)
        quality += losses
    frames["python_calls"], losses = python_calls_table(events, texts, clock)
    quality += losses
    frames["param_tensors"] = _param_tensors(raw("param_tensor_info"))
    frames["gc_pauses"] = _gc_pauses(raw("gc_record"), clock)
    return frames, quality


def _ops(raw: pl.DataFrame, clock: FrameworkClock) -> tuple[pl.DataFrame, pl.DataFrame]:
    start, end = clock.to_epoch_ns(raw["start"]), clock.to_epoch_ns(raw["end"])
    order = _parents_first(start.to_numpy(), end.to_numpy())
    texts = [pl.col(name).cast(TEXT) for name in ("name", "shapes", "dtypes", "stack", "modules")]
    frame = raw.select(
        pl.col("process_id").alias("pid"),
        pl.col("start_thread_id").alias("tid"),
        start.alias("start_ns"),
        end.alias("end_ns"),
        pl.col("sequence_number").replace(-1, None).alias("seq"),
        pl.col("forward_thread_id").replace(0, None).alias("fwd_thread"),
        "scope",
        pl.col("is_async") != 0,
        pl.col("end_thread_id").alias("end_tid"),
        *texts,
        pl.col("flops").cast(pl.Int64, strict=False),
    )[order]
    ops = ALL_TABLES["ops"].conform(frame.with_columns(pl.col("start_ns").set_sorted(), pl.col("name").fill_null(_UNNAMED)))
    has_inputs = pl.any_horizontal(pl.col(name).is_not_null() for name in _INPUTS)
    inputs = raw.select(_INPUTS)[order].with_row_index("op").filter(has_inputs)
    return ops, ALL_TABLES["op_inputs"].conform(inputs)


def _parents_first(start: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.int64]:
    """Order by start; of ranges that start together the longer one first, then as recorded."""
    order = np.argsort(start, kind="stable")
    same = start[order[1:]] == start[order[:-1]]
    tied = np.flatnonzero(np.append(same, False) | np.append(False, same))
    rows = order[tied]
    order[tied] = rows[np.lexsort((-end[rows], start[rows]))]
    return order


def _steps(ops: pl.DataFrame) -> pl.DataFrame:
    named = ops.filter(pl.col("name").cast(pl.String).str.starts_with(_STEP_NAME)).with_columns(pl.col("name").cast(pl.String))
    step = pl.col("name").str.strip_prefix(_STEP_NAME).cast(pl.Int64, strict=False)
    return ALL_TABLES["steps"].conform(
        named.select(step.alias("step"), "pid", "start_ns", "end_ns").filter(pl.col("step").is_not_null())
    )


def _memory_events(raw: pl.DataFrame, clock: FrameworkClock) -> pl.DataFrame:
    on_host = pl.col("device_type") == 0
    # The reference's writers leave the data type of host records at malloc in both directions (docs/formats/framework.md 4.3).
    action = pl.when(on_host).then((pl.col("alloc_size") < 0).cast(pl.UInt8)).otherwise("data_type")
    time = clock.to_epoch_ns(raw["time"])
    order = np.argsort(time.to_numpy(), kind="stable")
    frame = raw.select(
        pl.col("process_id").alias("pid"),
        pl.col("thread_id").alias("tid"),
        time.alias("time_ns"),
        _words(pl.col("component_type").fill_null(0), {0: "PTA", 1: "WORKSPACE"}).alias("component"),
        _words(pl.col("device_type"), {0: "cpu", 1: "cuda", 20: "npu"}),
        pl.when(pl.col("device_index") >= 0).then("device_index").alias("device"),
        _words(action, {0: "malloc", 1: "free", 2: "block_free"}).alias("action"),
        (pl.col("allocator_type").fill_null(0) == 0).alias("inner"),
        "ptr",
        pl.col("alloc_size").alias("bytes"),
        "total_allocated",
        "total_reserved",
        "total_active",
        pl.col("stream").replace(-1, None).alias("stream_ptr"),
    )[order]
    return ALL_TABLES["memory_events"].conform(frame.with_columns(pl.col("time_ns").set_sorted()))


def _words(value: pl.Expr, words: dict[int, str]) -> pl.Expr:
    return value.replace_strict(words, default=None, return_dtype=TEXT)


def _param_tensors(raw: pl.DataFrame) -> pl.DataFrame:
    text = pl.coalesce("module_params", "optimizer_params").alias("text")
    kind = pl.when(pl.col("module_params").is_not_null()).then(pl.lit("module")).otherwise(pl.lit("optimizer"))
    return ALL_TABLES["param_tensors"].conform(raw.select("key", kind.alias("kind"), text).filter(pl.col("text").is_not_null()))


def _gc_pauses(raw: pl.DataFrame, clock: FrameworkClock) -> pl.DataFrame:
    return ALL_TABLES["gc_pauses"].conform(
        raw.select(
            pl.col("process_id").alias("pid"),
            clock.to_epoch_ns(raw["start"]).alias("start_ns"),
            clock.to_epoch_ns(raw["end"]).alias("end_ns"),
        )
    )
