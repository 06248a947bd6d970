# SPDX-License-Identifier: Apache-2.0
"""Host side of a database: operators, task queue, Python calls, runtime calls, marks, steps (docs/formats/outputs.md 12.1)."""

from __future__ import annotations

import polars as pl

from stepscope.formats import NONE32
from stepscope.formats.ascend.db.columns import SPAN, pid_tid, read
from stepscope.formats.ascend.db.database import Database
from stepscope.formats.ascend.db.schema import (
    ENUMS,
    FRAMEWORK_CONNECTIONS,
    NO_CONNECTION,
    NO_DEVICE_MARK,
    OP,
    QUEUE,
    TRACE,
)
from stepscope.formats.sqlite.texts import enumerated, per_text
from stepscope.tables import ALL_TABLES, TEXT, issues

_SPAN = tuple(SPAN)


def read_framework(db: Database) -> dict[str, pl.DataFrame]:
    """Tables ops, queue, python_calls and steps."""
    api = db.frame("PYTORCH_API", required=_SPAN, raw=("inputShapes", "inputDtypes"))
    kind = pl.col("type")
    ops = _ops(db, api.filter((kind == OP) | kind.is_null()))
    known = api.filter(kind.is_in([OP, QUEUE, TRACE])).height + api["type"].null_count()
    db.lost(issues.UNKNOWN_KIND, api.height - known, "PYTORCH_API.type")
    return {
        "ops": ops,
        "queue": _queue(db, api.filter(kind == QUEUE)),
        "python_calls": _python_calls(api.filter(kind == TRACE)),
        "steps": _steps(db, ops),
    }


def _ops(db: Database, rows: pl.DataFrame) -> pl.DataFrame:
    shapes, dtypes = (per_text(db.text(rows[name], empty=True), _one_line) for name in ("inputShapes", "inputDtypes"))
    if _has_words(shapes) and not _has_words(dtypes):
        # docs/formats/outputs.md 12.1: the first generation swaps the two columns.
        shapes, dtypes = dtypes, shapes
    # Empty text is one input without dimensions, but only where there is an input.
    inputs = dtypes.cast(pl.String) != ""
    stacks = _stacks(db)
    frame = rows.select(
        *pid_tid(),
        *read(SPAN),
        "name",
        _unless(pl.col("sequenceNumber"), -1).alias("seq"),
        _unless(pl.col("fwdThreadId"), 0).alias("fwd_thread"),
        pl.when(inputs).then(shapes.alias("shapes")).alias("shapes"),
        pl.when(inputs).then(dtypes.alias("dtypes")).alias("dtypes"),
        pl.col("callchainId").alias("id"),
    )
    frame = frame.join(stacks, on="id", how="left", maintain_order="left")
    # Parents before children on equal starts; the row number is the operator's id from here on.
    ordered = frame.sort("start_ns", "end_ns", descending=[False, True], maintain_order=True)
    return ALL_TABLES["ops"].conform(ordered)


def _stacks(db: Database) -> pl.DataFrame:
    rows = db.frame("PYTORCH_CALLCHAINS", required=("id", "stack"))
    return (
        rows.sort("id", "stackDepth", maintain_order=True)
        .group_by("id", maintain_order=True)
        .agg(pl.col("stack").cast(pl.String).str.join(";"))
        .with_columns(pl.col("stack").cast(TEXT))
    )


def _queue(db: Database, rows: pl.DataFrame) -> pl.DataFrame:
    links = db.frame("CONNECTION_IDS", required=("id", "connectionId")).unique("id", keep="first", maintain_order=True)
    links = links.rename({"id": "connectionId", "connectionId": "correlation_id"})
    correlation = pl.col("correlation_id")
    offset = pl.when(correlation >= FRAMEWORK_CONNECTIONS).then(FRAMEWORK_CONNECTIONS).otherwise(0)
    frame = rows.join(links, on="connectionId", how="left", maintain_order="left").select(
        *pid_tid(),
        *read(SPAN),
        per_text(rows["name"], lambda text: text.str.extract(r"^(Enqueue|Dequeue)").str.to_lowercase()).alias("kind"),
        per_text(rows["name"], lambda text: text.str.extract(r"@(.*)$")).alias("name"),
        (correlation - offset).alias("correlation_id"),
    )
    whole = frame.filter(pl.col("kind").is_not_null())
    db.lost(issues.UNKNOWN_KIND, frame.height - whole.height, "PYTORCH_API: neither enqueue nor dequeue")
    return ALL_TABLES["queue"].conform(whole)


def _python_calls(rows: pl.DataFrame) -> pl.DataFrame:
    kind = per_text(
        rows["name"],
        lambda text: pl.when(text.str.starts_with("nn.Module: ")).then(pl.lit("module"))
        .when(text.str.contains(r"\(\d+\): ")).then(pl.lit("python"))
        .otherwise(pl.lit("c")),
    )  # fmt: skip
    number = per_text(
        rows["name"], lambda text: text.str.extract(r"^nn\.Module: .*_(\d+)$").cast(pl.Int64, strict=False), pl.Int64()
    )
    frame = rows.select(
        *pid_tid(),
        *read(SPAN),
        "name",
        kind.alias("kind"),
        number.alias("module_id"),
    )
    return ALL_TABLES["python_calls"].conform(frame.sort("tid", "start_ns", "end_ns", descending=[False, False, True]))


def _steps(db: Database, ops: pl.DataFrame) -> pl.DataFrame:
    number = per_text(ops["name"], lambda text: text.str.extract(r"ProfilerStep#(\d+)").cast(pl.Int64, strict=False), pl.Int64())
    ranges = ops.select(number.alias("step"), "pid", "start_ns", "end_ns").drop_nulls("step")
    marked = db.frame("STEP_TIME", required=("id", *_SPAN)).select(pl.col("id").alias("step"), *read(SPAN))
    if not marked.height:
        return ALL_TABLES["steps"].conform(ranges)
    owners = ranges.select("step", "start_ns", "pid").unique(["step", "start_ns"], keep="first", maintain_order=True)
    return ALL_TABLES["steps"].conform(marked.join(owners, on=["step", "start_ns"], how="left", maintain_order="left"))


def read_api_calls(db: Database) -> pl.DataFrame:
    rows = db.frame("CANN_API", required=_SPAN)
    levels = {**db.enum("ENUM_API_TYPE", ENUMS["ENUM_API_TYPE"]), 5500: "communication"}  # G1 calls this level hccl
    calls = rows.select(
        *pid_tid(),
        *read(SPAN),
        enumerated(rows["type"], levels).alias("level"),
        "name",
        _unless(pl.col("connectionId"), NO_CONNECTION).alias("connection_id"),
    )
    system = db.frame("OSRT_API", required=_SPAN).select(
        *pid_tid(),
        *read(SPAN),
        pl.lit("os").cast(TEXT).alias("level"),
        "name",
        pl.lit(None, dtype=pl.Int64).alias("connection_id"),
    )
    return ALL_TABLES["api_calls"].conform(pl.concat([calls, system]) if system.height else calls)


def read_gc_pauses(db: Database) -> pl.DataFrame:
    rows = db.frame("GC_RECORD", required=_SPAN)
    return ALL_TABLES["gc_pauses"].conform(rows.select(pid_tid()[0], *read(SPAN)))


def read_marks(db: Database, tasks: pl.DataFrame) -> pl.DataFrame:
    """mstx marks; the device part is the task of the same connection id."""
    rows = db.frame("MSTX_EVENTS", required=_SPAN)
    parts = tasks.select(
        "connectionId",
        pl.col("deviceId").alias("device"),
        pl.col("streamId").alias("stream"),
        pl.col("startNs").alias("device_start_ns"),
        pl.col("endNs").alias("device_end_ns"),
    ).unique("connectionId", keep="first", maintain_order=True)
    kinds = db.enum("ENUM_MSTX_EVENT_TYPE", ENUMS["ENUM_MSTX_EVENT_TYPE"])
    frame = rows.with_columns(
        _unless(pl.col("connectionId"), NO_DEVICE_MARK, NO_CONNECTION, NONE32),
        enumerated(rows["eventType"], kinds).alias("kind"),
        per_text(rows["domainId"], lambda text: pl.when(text != "default").then(text)).alias("domain"),
    ).join(parts, on="connectionId", how="left", maintain_order="left")
    return ALL_TABLES["marks"].conform(
        frame.select(
            *pid_tid(),
            *read(SPAN),
            "message",
            "domain",
            "kind",
            _unless(pl.col("rangeId"), NONE32).alias("range_id"),
            _unless(pl.col("category"), NONE32).alias("category"),
            pid_tid("endGlobalTid")[1].alias("end_tid"),
            pl.col("connectionId").alias("connection_id"),
            "device",
            "stream",
            "device_start_ns",
            "device_end_ns",
        )
    )


def _unless(value: pl.Expr, *sentinels: int) -> pl.Expr:
    return pl.when(~value.is_in(sentinels)).then(value)


def _one_line(text: pl.Expr) -> pl.Expr:
    return text.str.replace_all(";\r\n", ";", literal=True)


def _has_words(column: pl.Series) -> bool:
    return bool(column.unique().cast(pl.String).str.contains("[A-Za-z]").any())
