# SPDX-License-Identifier: Apache-2.0
"""The vendor's own analysis: analysis.db and communication_analyzer.db (outputs.md 9.4, 12.3)."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from stepscope.formats.ascend.db.database import Database
from stepscope.formats.ascend.db.schema import ANALYSIS_DB
from stepscope.tables import ALL_TABLES, Tables

_OPERATOR = (pl.col("hccl_op_name").alias("name"), pl.col("group_name").alias("group"))


def read_analysis(db: Path) -> dict[str, pl.DataFrame]:
    """Tables collective_times, collective_packets, collective_links and quality, and StepTraceTime as it stands."""
    with Database(db) as file:
        links = file.frame("CommAnalyzerMatrix", required=("hccl_op_name",))
        if "op_name" in file.columns.get("CommAnalyzerMatrix", ()):
            # outputs.md 9.3: these rows are picked and summed over operators of a type, not one per operator.
            links = links.clear()
        packets = file.frame("CommAnalyzerBandwidth", required=("hccl_op_name",))
        frames = {
            "collective_times": _times(file.frame("CommAnalyzerTime", required=("hccl_op_name",))),
            "collective_packets": _packets(packets),
            "collective_links": _links(links),
            "StepTraceTime": file.frame("StepTraceTime") if file.has("StepTraceTime") else _no_steps(),
        }
        return {**frames, "quality": Tables().with_quality(*file.quality)["quality"]}


def attached(tables: Tables, analysis: dict[str, pl.DataFrame]) -> Tables:
    """The tables with the vendor's analysis added: rows refer to `collectives`, and those get their group's hash.

    Operators are joined by name, the only thing both sides share (outputs.md 12.3).
    """
    collectives = tables["collectives"]
    number = (
        collectives.select("name", pl.int_range(pl.len()).alias("collective"))
        .drop_nulls("name")
        .unique("name", keep="first", maintain_order=True)
    )
    frames = {}
    for name in ("collective_times", "collective_packets", "collective_links"):
        rows = analysis[name].drop("collective").join(number, on="name", how="left", maintain_order="left")
        frames[name] = ALL_TABLES[name].conform(rows)
    groups = analysis["collective_times"].select("name", pl.col("group").alias("hash")).unique("name", keep="first")
    known = collectives.join(groups, on="name", how="left", maintain_order="left")
    frames["collectives"] = collectives.with_columns(known.select(pl.coalesce("group", "hash").alias("group")).to_series())
    return tables.replace(**frames).with_quality(analysis["quality"])


def _times(rows: pl.DataFrame) -> pl.DataFrame:
    return ALL_TABLES["collective_times"].conform(
        rows.select(
            *_OPERATOR,
            pl.col("start_timestamp").alias("start_us"),
            pl.col("elapse_time").alias("elapse_ms"),
            pl.col("transit_time").alias("transit_ms"),
            pl.col("wait_time").alias("wait_ms"),
            pl.col("synchronization_time").alias("sync_ms"),
            pl.col("idle_time").alias("idle_ms"),
        )
    )


def _packets(rows: pl.DataFrame) -> pl.DataFrame:
    # outputs.md 9.4: a transport without distribution has one row of zeros.
    distributed = pl.col("count") != 0
    return ALL_TABLES["collective_packets"].conform(
        rows.select(
            *_OPERATOR,
            pl.col("transport_type").alias("transport"),
            pl.col("transit_size").alias("transit_mb"),
            pl.col("transit_time").alias("transit_ms"),
            "bandwidth",
            "large_packet_ratio",
            pl.when(distributed).then("package_size").alias("packet_mb"),
            pl.when(distributed).then("count").alias("packets"),
            pl.when(distributed).then("total_duration").alias("packets_ms"),
        )
    )


def _links(rows: pl.DataFrame) -> pl.DataFrame:
    return ALL_TABLES["collective_links"].conform(
        rows.select(
            *_OPERATOR,
            pl.col("src_rank").cast(pl.Int64, strict=False),
            pl.col("dst_rank").cast(pl.Int64, strict=False),
            pl.col("transport_type").alias("transport"),
            pl.col("transit_size").alias("transit_mb"),
            pl.col("transit_time").alias("transit_ms"),
            "bandwidth",
        )
    )


def _no_steps() -> pl.DataFrame:
    types = {"I": pl.Int64(), "T": pl.String(), "N": pl.Float64()}
    return pl.DataFrame(schema={column.name: types[column.kind] for column in ANALYSIS_DB["StepTraceTime"].columns})
