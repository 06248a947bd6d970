# SPDX-License-Identifier: Apache-2.0
"""What ran on the host in an export: runtime calls, NVTX ranges and marks."""

from __future__ import annotations

import polars as pl

from stepscope.formats.gpu.ranges import operators
from stepscope.formats.nsys import schema
from stepscope.formats.nsys.database import Export, pid_of, tid_of
from stepscope.formats.sqlite.texts import enumerated, per_text
from stepscope.tables import ALL_TABLES, TEXT, issues


def api_calls(db: Export) -> pl.DataFrame:
    """Calls of CUDA and of other libraries; the version behind a name (`cudaLaunchKernel_v7000`) is dropped."""
    runtime = db.spans(schema.RUNTIME)
    level = enumerated(runtime["eventClass"], schema.RUNTIME_CLASSES).cast(pl.String)
    parts = [runtime.with_columns(level=level.fill_null("cuda"), connection_id=db.connection("globalTid"))]
    for table, word in {schema.OVERHEAD: "overhead", **schema.LIBRARY_CALLS}.items():
        parts.append(db.spans(table).with_columns(level=pl.lit(word), connection_id=pl.lit(None, pl.Int64)))
    rows = pl.concat([part for part in parts if part.height] or parts[:1], how="diagonal_relaxed")
    name = per_text(rows["nameId"], lambda text: text.str.replace(r"_v\d+$", ""))
    return ALL_TABLES["api_calls"].conform(
        rows.select(
            "start_ns", "end_ns", "level", "connection_id", pid=pid_of("globalTid"), tid=tid_of("globalTid"), name=name
        )
    )  # fmt: skip


def ranges(db: Export) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Tables `ops` and `marks` of the NVTX events.

    Nested ranges of the default domain are operators where torch wrote them, else ranges of the user among them. Marks, ranges
    that end elsewhere, and what libraries say in domains of their own are marks.
    """
    events = db.spans(schema.NVTX)
    events = events.with_columns(message=pl.coalesce(events["textId"].cast(pl.String), "text"))
    domains = _domains(events)
    kind = enumerated(events["eventType"], schema.NVTX_KINDS)
    events = events.with_columns(kind=kind, pid=pid_of("globalTid"), tid=tid_of("globalTid"))
    described = [schema.NVTX_DOMAIN, *schema.NVTX_DESCRIPTIONS]
    strange = events.filter(pl.col("kind").is_null() & ~pl.col("eventType").is_in(described).fill_null(False))
    db.lost(issues.UNKNOWN_KIND, strange.height, f"{schema.NVTX}: eventType")
    events = events.drop_nulls("kind")
    instant = pl.col("kind") == "marker"
    open_ended = events.filter(~instant & pl.col("end_ns").is_null()).height
    db.lost(issues.START_WITHOUT_END, open_ended, schema.NVTX)
    events = events.filter(instant | pl.col("end_ns").is_not_null()).with_columns(pl.col("end_ns").fill_null(pl.col("start_ns")))
    named = events.join(domains, on=["pid", "domainId"], how="left", maintain_order="left")
    nested = (pl.col("kind") == "push/pop") & (pl.col("domainId").fill_null(0) == 0) & pl.col("domain").is_null()
    return operators(named.filter(nested)), _marks(named.filter(~nested))


def _domains(events: pl.DataFrame) -> pl.DataFrame:
    created = events.filter(pl.col("eventType") == schema.NVTX_DOMAIN).select(
        pid_of("globalTid").alias("pid"), "domainId", domain="message"
    )
    return created.drop_nulls().unique(["pid", "domainId"], keep="first", maintain_order=True)


def _marks(events: pl.DataFrame) -> pl.DataFrame:
    end_tid = pl.when(pl.col("endGlobalTid") > 0).then(tid_of("endGlobalTid"))
    return ALL_TABLES["marks"].conform(
        events.select(
            "pid", "tid", "start_ns", "end_ns", "domain", "kind", "category",
            message=pl.col("message").cast(TEXT), range_id="rangeId", end_tid=pl.coalesce(end_tid, "tid"),
        )
    )  # fmt: skip
