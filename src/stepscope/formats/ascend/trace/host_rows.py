# SPDX-License-Identifier: Apache-2.0
"""Host side of a timeline: operators, task queue, Python frames, GC pauses, steps, API calls (docs/formats/outputs.md 3.1, 3.3)."""

from __future__ import annotations

import polars as pl

from stepscope.formats.ascend.trace import args
from stepscope.formats.ascend.trace.events import arg, category, number, rewritten, span
from stepscope.formats.ascend.trace.lanes import Lanes
from stepscope.formats.ascend.trace.layers import API_PREFIX, OLD_API_PREFIX
from stepscope.tables import ALL_TABLES

API_ARGS = args.without(args.API_CALLS, "tid", "id")

_STEP = "ProfilerStep#"
_LINE_END = ";\r\n"  # between inputs and stack frames, where the framework wrote a plain `;`

# As the levels are called in names, and what an old timeline says in the argument.
_LEVELS = {word: level for words in (API_PREFIX, OLD_API_PREFIX) for level, word in words.items()} | {"hccl": "communication"}


def op_rows(events: pl.LazyFrame) -> pl.LazyFrame:
    return events.select(
        "pid",
        "tid",
        *span(),
        category("name"),
        *args.columns(args.OPS, seq=number, fwd_thread=_unless_zero),
    )


def _unless_zero(name: str) -> pl.Expr:
    return pl.when(arg(name) != 0).then(arg(name))


def ops(rows: pl.DataFrame) -> pl.DataFrame:
    for column in ("shapes", "dtypes", "stack"):
        rows = rewritten(rows, column, pl.col("text").str.replace_all(_LINE_END, ";", literal=True))
    return ALL_TABLES["ops"].conform(rows.sort("start_ns", "end_ns", descending=[False, True], maintain_order=True))


def steps(ops: pl.DataFrame) -> pl.DataFrame:
    """Steps by name, wherever they nest (docs/formats/outputs.md 2.3)."""
    names = ops.select(pl.col("name").unique()).drop_nulls().with_columns(pl.col("name").cast(pl.String).alias("text"))
    numbers = names.with_columns(pl.col("text").str.extract(rf"{_STEP}(\d+)", 1).cast(pl.Int64, strict=False).alias("step"))
    found = ops.join(numbers.drop("text").drop_nulls(), on="name", how="inner", maintain_order="left")
    return ALL_TABLES["steps"].conform(found)


def flows(arrows: pl.DataFrame, kind: str) -> pl.DataFrame:
    """Arrows inside the framework, which nothing else implies."""
    ends = [pl.col(f"from_{name}") for name in ("pid", "tid")] + [pl.col("from_start_ns").alias("from_ns")]
    to = [pl.col(name).alias(f"to_{name}") for name in ("pid", "tid")] + [pl.col("start_ns").alias("to_ns")]
    return ALL_TABLES["flows"].conform(
        arrows.select(pl.lit(kind).alias("kind"), pl.col("id").cast(pl.Int64, strict=False), *ends, *to)
    )


def queue_rows(events: pl.LazyFrame) -> pl.LazyFrame:
    return events.select("pid", "tid", *span(), category("cat").alias("kind"), category("name"), *args.columns(args.QUEUE))


def queue(rows: pl.DataFrame) -> pl.DataFrame:
    return ALL_TABLES["queue"].conform(rewritten(rows, "name", pl.col("text").str.extract(r"^(?:En|De)queue@(.*)$", 1)))


def python_rows(events: pl.LazyFrame) -> pl.LazyFrame:
    return events.select(
        "pid",
        "tid",
        *span(),
        category("name"),
        *args.columns(args.PYTHON_CALLS),
    )


def python_calls(rows: pl.DataFrame) -> pl.DataFrame:
    kind = (
        pl.when(pl.col("text").str.starts_with("nn.Module: "))
        .then(pl.lit("module"))
        .when(pl.col("text").str.contains(r"\(\d+\): "))
        .then(pl.lit("python"))
        .otherwise(pl.lit("c"))
    )
    return ALL_TABLES["python_calls"].conform(rewritten(rows.with_columns(pl.col("name").alias("kind")), "kind", kind))


def gc_rows(events: pl.LazyFrame) -> pl.LazyFrame:
    # The thread of a collection is the process number; its pid is a layer of its own (docs/formats/outputs.md 3.1).
    return events.select(pl.col("tid").alias("pid"), *span())


def gc_pauses(rows: pl.DataFrame) -> pl.DataFrame:
    return ALL_TABLES["gc_pauses"].conform(rows)


def api_rows(events: pl.LazyFrame) -> pl.LazyFrame:
    return events.select(
        "pid",
        "tid",
        *span(),
        category("name"),
        *args.columns(API_ARGS, connection_id=number),
    )


def api_calls(rows: pl.DataFrame, lanes: Lanes) -> pl.DataFrame:
    prefix = rewritten(
        rows.with_columns(pl.col("name").alias("prefix")), "prefix", _level(pl.col("text").str.extract(r"^([^@]*)@", 1))
    )
    levels = rewritten(prefix, "level", _level(pl.col("text")))
    named = rewritten(levels, "name", pl.col("text").str.replace(r"^[^@]*@", ""))
    # The timeline has no way to leave an argument out.
    for column, nothing in (("mode", ""), ("item_id", "0")):
        named = rewritten(named, column, pl.when(pl.col("text") != nothing).then("text"))
    placed = lanes.place(named).with_columns(pl.coalesce("level", "prefix").alias("level"), pl.col("os_pid").alias("pid"))
    return ALL_TABLES["api_calls"].conform(placed)


def _level(word: pl.Expr) -> pl.Expr:
    known = {**_LEVELS, **{level: level for level in _LEVELS.values()}}
    return word.replace_strict(known, default=None, return_dtype=pl.String)
