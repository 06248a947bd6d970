# SPDX-License-Identifier: Apache-2.0
"""What MindSpore did on the host: its op_range records as operators, Python calls, pipeline stages and arrows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from stepscope.formats.mindspore.clock import TickClock
from stepscope.formats.mindspore.index_names import MODULES, STAGES, UNKNOWN, events_of
from stepscope.formats.mindspore.losses import note
from stepscope.formats.mindspore.records import NO_FLOW, OLD_OP_RANGE, OP_RANGE, OP_RANGE_FILE, read_layout
from stepscope.tables import ALL_TABLES, TEXT, Tables, issues

FLOW_KIND = "mindspore_to_self"
QUEUE_KIND = "mindspore_queue"  # arrows that MindSpore's own viewer leaves out, because ids occur several times
FLOW = "flow"  # the name of a record that only begins an arrow
_DATASET = "Dataset"
_STEP = r"ProfilerStep#(\d+)$"
_CELL = r":nn\.Cell\."
_PARTS = ["is_stack", "is_graph", "is_stage", "module", "event", "stage", "name", "full_name", "module_text", "event_text"]


@dataclass(frozen=True)
class Ranges:
    """Rows with tid, start_ns, end_ns, name, flow, is_stack, … in the order of the file."""

    rows: pl.DataFrame
    pid: int | None


def files(folder: Path) -> list[Path]:
    """The files of host records, of any version."""
    named = (path for path in sorted(folder.glob("*op_range*")) if path.is_file() and not path.is_symlink())
    return [path for path in named if path.name == OP_RANGE_FILE or path.name.startswith("op_range_")]


def read(folder: Path, clock: TickClock, *, version: str, pid: int | None, quality: list[pl.DataFrame]) -> Ranges:
    """All host records of a FRAMEWORK folder."""
    parts = [_empty()]
    for path in files(folder):
        if path.name == OP_RANGE_FILE:
            raw = read_layout(path, OP_RANGE, quality)
            parts.append(_with_names(raw, clock, version, path.name, quality))
        else:
            parts.append(_from_old(read_layout(path, OLD_OP_RANGE, quality)))
    return Ranges(pl.concat([part for part in parts if part.height] or parts), pid)


def tables(ranges: Ranges) -> Tables:
    """Operators, Python calls, steps, pipeline stages and arrows."""
    rows = ranges.rows.with_columns(pid=pl.lit(ranges.pid, pl.Int64)).with_row_index("recorded")
    begins = (pl.col("name") == FLOW) & ~pl.col("is_instant")
    shown = rows.filter(~begins).sort("start_ns", "end_ns", descending=[False, True], maintain_order=True)
    ops = shown.filter(~pl.col("is_stack"))
    frames = {
        "ops": ALL_TABLES["ops"].conform(ops),
        "python_calls": _python_calls(shown.filter("is_stack")),
        "steps": _steps(ops),
        "data_stages": _data_stages(ops),
        "flows": arrows(rows.filter(begins), rows.filter(~begins & ~pl.col("is_instant"))),
    }
    return Tables({name: frame for name, frame in frames.items() if frame.height})


def _with_names(raw: pl.DataFrame, clock: TickClock, version: str, source: str, quality: list[pl.DataFrame]) -> pl.DataFrame:
    unset = int((raw["start"] == 0).sum())
    note(quality, issues.END_WITHOUT_START, source, unset, "never begun")
    raw = raw.filter(pl.col("start") != 0) if unset else raw
    events = events_of(version)
    strange = raw.filter(
        ~(pl.col("is_stack") | pl.col("is_graph") | pl.col("is_stage"))
        & ((pl.col("module") >= len(MODULES)) | (pl.col("event") >= len(events)))
    ).height
    note(quality, issues.UNNAMED_KIND, source, strange, f"shown as {UNKNOWN}")
    texts = raw.with_columns(pl.col("name", "full_name", "module_text", "event_text", "info").cast(TEXT))
    return texts.select(
        pl.col("tid").cast(pl.Int64, strict=False),
        clock.to_epoch_ns(raw["start"]).alias("start_ns"),
        clock.to_epoch_ns(raw["end"]).alias("end_ns"),
        _display_names(texts, events).alias("name"),
        pl.when(pl.col("flow") != NO_FLOW).then(pl.col("flow").reinterpret(signed=True)).alias("flow"),
        pl.col("step").cast(pl.Int64, strict=False),
        "is_stack",
        (pl.col("start") == pl.col("end")).alias("is_instant"),  # by ticks: several are one nanosecond
        pl.when("is_graph").then("module_text").alias("module"),
        pl.when("is_graph").then("event_text").alias("operator"),
        pl.when("is_graph").then("name").alias("stage"),
        "info",
        pl.lit(None, TEXT).alias("shapes"),
        pl.lit(None, TEXT).alias("dtypes"),
        pl.lit(None, TEXT).alias("stack"),
    )


def _display_names(texts: pl.DataFrame, events: tuple[str, ...]) -> pl.Series:
    """The name that the timeline shows, built once for each distinct combination of its parts."""
    keys = [pl.col(name).to_physical() if name in ("name", "full_name", "module_text", "event_text") else name for name in _PARTS]
    key = texts.select(pl.struct(keys).hash().alias("key")).to_series()
    first = texts.select(_PARTS).with_columns(key=key).unique("key", keep="first")
    display_names = first.select("key", _name_text(events).cast(TEXT).alias("shown"))
    joined = pl.DataFrame({"key": key}).join(display_names, on="key", how="left", maintain_order="left")
    return joined["shown"]


def _name_text(events: tuple[str, ...]) -> pl.Expr:
    def text(name: str) -> pl.Expr:
        return pl.col(name).cast(pl.String).fill_null("")

    def word(name: str, words: tuple[str, ...]) -> pl.Expr:
        return pl.col(name).replace_strict(dict(enumerate(words)), default=UNKNOWN, return_dtype=pl.String)

    full = pl.concat_str(word("module", MODULES), word("event", events), text("full_name"), separator="::")
    return (
        pl.when("is_stack")
        .then(text("name"))
        .when("is_graph")
        .then(pl.concat_str(text("module_text"), text("event_text"), text("name"), separator="::"))
        .when("is_stage")
        .then(word("stage", STAGES))
        .when(text("name") == FLOW)
        .then(text("full_name"))
        .otherwise(full)
    )


def _from_old(raw: pl.DataFrame) -> pl.DataFrame:
    def semicolons(name: str) -> pl.Expr:
        return pl.col(name).str.replace_all("|", ";", literal=True).cast(TEXT)

    return raw.select(
        pl.col("tid").cast(pl.Int64, strict=False),
        pl.col("start").alias("start_ns"),
        pl.col("end").alias("end_ns"),
        pl.col("name").cast(TEXT),
        pl.when((pl.col("flow") != NO_FLOW) & (pl.col("flow") != 0)).then(pl.col("flow").reinterpret(signed=True)).alias("flow"),
        pl.col("step").cast(pl.Int64, strict=False),
        pl.lit(False).alias("is_stack"),
        (pl.col("start") == pl.col("end")).alias("is_instant"),
        *(pl.lit(None, TEXT).alias(name) for name in ("module", "operator", "stage")),
        pl.col("info").cast(TEXT),
        semicolons("shapes"),
        semicolons("dtypes"),
        semicolons("stack"),
    )


def _empty() -> pl.DataFrame:
    numbers = dict.fromkeys(("tid", "start_ns", "end_ns"), pl.Int64()) | {"name": TEXT, "flow": pl.Int64(), "step": pl.Int64()}
    texts = dict.fromkeys(("module", "operator", "stage", "info", "shapes", "dtypes", "stack"), TEXT)
    return pl.DataFrame(schema={**numbers, **dict.fromkeys(("is_stack", "is_instant"), pl.Boolean()), **texts})


def _python_calls(rows: pl.DataFrame) -> pl.DataFrame:
    text = pl.col("name").cast(pl.String)
    kind = (
        pl.when(text.str.contains(_CELL))
        .then(pl.lit("module"))
        .when(text.str.contains(r"\(\d+\):"))
        .then(pl.lit("python"))
        .otherwise(pl.lit("c"))
    )
    return ALL_TABLES["python_calls"].conform(rows.with_columns(kind=kind))


def _steps(ops: pl.DataFrame) -> pl.DataFrame:
    names = ops.select(pl.col("name").unique()).with_columns(text=pl.col("name").cast(pl.String))
    numbers = names.select("name", step=pl.col("text").str.extract(_STEP).cast(pl.Int64, strict=False)).drop_nulls()
    marked = ops.drop("step").join(numbers, on="name", maintain_order="left") if numbers.height else ops.clear()
    return ALL_TABLES["steps"].conform(marked)


def _data_stages(ops: pl.DataFrame) -> pl.DataFrame:
    numbered = ops.with_row_index("op").filter((pl.col("module") == _DATASET).fill_null(False)).sort("recorded")
    return ALL_TABLES["data_stages"].conform(numbered.select("op", "operator", "stage", "info"))


def arrows(begins: pl.DataFrame, others: pl.DataFrame) -> pl.DataFrame:
    """Arrows with exactly one start and one end; then those whose ids are used again, n-th start to n-th end.

    Several counters assign ids, so that they repeat; what waits longest in a queue leaves it first.
    """
    ends = others.filter(pl.col("flow").is_not_null())
    sides = [
        rows.sort("start_ns", maintain_order=True).select(
            "flow", nth=pl.int_range(pl.len()).over("flow"), many=pl.len().over("flow"),
            **{f"{side}_pid": "pid", f"{side}_tid": "tid", f"{side}_ns": "start_ns"},
        )
        for rows, side in ((begins, "from"), (ends, "to"))
    ]  # fmt: skip
    paired = sides[0].join(sides[1], on=["flow", "nth", "many"], maintain_order="left")
    once = pl.col("many") == 1
    known = paired.filter(once | (pl.col("from_ns") <= pl.col("to_ns"))).sort(~once, maintain_order=True)
    kind = pl.when(once).then(pl.lit(FLOW_KIND)).otherwise(pl.lit(QUEUE_KIND))
    # An id stands for one arrow of its kind, also for programs that we write traces for.
    number = pl.when(once).then("flow").otherwise(pl.int_range(pl.len(), dtype=pl.Int64))
    return ALL_TABLES["flows"].conform(known.with_columns(kind=kind, id=number))
