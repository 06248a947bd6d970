# SPDX-License-Identifier: Apache-2.0
"""analysis.db and communication_analyzer.db, the analysis beside a capture (docs/formats/outputs.md 9.4, 12.3)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from stepscope.formats.ascend.db.database import Database
from stepscope.formats.ascend.db.schema import ANALYSIS_DB
from stepscope.tables import ALL_TABLES, Tables

COMMUNICATION_FILE = "communication_analyzer.db"  # msprof's, in a folder beside its database

# Columns of the database, and those of our tables that they hold.
_OPERATOR = {"hccl_op_name": "name", "group_name": "group"}
_TIMES = {
    **_OPERATOR,
    "start_timestamp": "start_us",
    "elapse_time": "elapse_ms",
    "transit_time": "transit_ms",
    "wait_time": "wait_ms",
    "synchronization_time": "sync_ms",
    "idle_time": "idle_ms",
}
_TRANSIT = {
    "transport_type": "transport",
    "transit_size": "transit_mb",
    "transit_time": "transit_ms",
    "bandwidth": "bandwidth",
}
_SIZES = {"package_size": "packet_mb", "count": "packets", "total_duration": "packets_ms"}
_PACKETS = {**_OPERATOR, **_TRANSIT, "large_packet_ratio": "large_packet_ratio", **_SIZES}
_LINKS = {**_OPERATOR, "src_rank": "src_rank", "dst_rank": "dst_rank", **_TRANSIT}
_PLACE = {"step": "step", "type": "kind"}
_STEPS = {
    "computing": "computing_ns",
    "communication_not_overlapped": "not_overlapped_ns",
    "overlapped": "overlapped_ns",
    "communication": "communication_ns",
    "free": "free_ns",
    "stage": "stage_ns",
    "bubble": "bubble_ns",
    "communication_not_overlapped_and_exclude_receive": "not_overlapped_except_receive_ns",
    "preparing": "preparing_ns",
}


def read_analysis(db: Path) -> dict[str, pl.DataFrame]:
    """Tables collective_times, collective_packets, collective_links and quality, and StepTraceTime as it stands."""
    with Database(db) as file:
        links = file.frame("CommAnalyzerMatrix", required=("hccl_op_name",))
        if "op_name" in file.columns.get("CommAnalyzerMatrix", ()):
            # docs/formats/outputs.md 9.3: these rows are picked and summed over operators of a type, not one per operator.
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

    Operators are joined by name, the only thing both sides share (docs/formats/outputs.md 12.3).
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
    return ALL_TABLES["collective_times"].conform(_read(rows, _TIMES))


def _packets(rows: pl.DataFrame) -> pl.DataFrame:
    # docs/formats/outputs.md 9.4: a transport without distribution has one row of zeros.
    sizes = [pl.when(pl.col("count") != 0).then(name).alias(name) for name in _SIZES]
    return ALL_TABLES["collective_packets"].conform(_read(rows.with_columns(sizes), _PACKETS))


def _links(rows: pl.DataFrame) -> pl.DataFrame:
    ranks = pl.col("src_rank", "dst_rank").cast(pl.Int64, strict=False)
    return ALL_TABLES["collective_links"].conform(_read(rows.with_columns(ranks), _LINKS))


def _read(rows: pl.DataFrame, columns: Mapping[str, str]) -> pl.DataFrame:
    return rows.select(pl.col(name).alias(column) for name, column in columns.items())


def step_rows(times: pl.DataFrame) -> pl.DataFrame:
    """Rows of StepTraceTime from rows as those of step_trace_time.csv."""
    # docs/formats/outputs.md 16: microseconds, whatever the documents say.
    return times.select(
        pl.col("device").cast(pl.Int64).alias("deviceId"),
        pl.col("step").cast(pl.String),
        *((pl.col(column) / 1000).alias(name) for name, column in _STEPS.items()),
    )


def time_rows(times: pl.DataFrame) -> pl.DataFrame:
    """Rows of CommAnalyzerTime from `collective_times` with columns step and kind."""
    return _written(times, {**_TIMES, **_PLACE})


def bandwidth_rows(packets: pl.DataFrame) -> pl.DataFrame:
    """Rows of CommAnalyzerBandwidth from `collective_packets` with columns step and kind; unused transports are left out."""
    used = pl.any_horizontal(pl.col("transit_mb", "transit_ms", "bandwidth", "large_packet_ratio").fill_null(0.0) != 0)
    sizes = [pl.col("packet_mb", "packets_ms").fill_null(0.0), pl.col("packets").fill_null(0)]
    return _written(packets.filter(used).with_columns(sizes), {**_PACKETS, **_PLACE})


def matrix_rows(tags: pl.DataFrame) -> pl.DataFrame:
    """Rows of CommAnalyzerMatrix from rows as `communication.write.matrix_document` takes them; sums have no operator."""
    named = tags.with_columns(
        pl.format("{}-{}", "operator_type", "tag").alias("name"),
        pl.col("src_rank", "dst_rank").cast(pl.String),
        pl.col("op_name").cast(pl.String).fill_null(""),
    )
    return _written(named, {**_LINKS, **_PLACE, "op_name": "op_name"})


def _written(rows: pl.DataFrame, columns: Mapping[str, str]) -> pl.DataFrame:
    """The columns under their names in the database, text as strings: it has no dictionary for it."""
    frame = rows.select(pl.col(column).alias(name) for name, column in columns.items())
    return frame.with_columns(pl.col(pl.Categorical).cast(pl.String))


def _no_steps() -> pl.DataFrame:
    types = {"I": pl.Int64(), "T": pl.String(), "N": pl.Float64()}
    return pl.DataFrame(schema={column.name: types[column.kind] for column in ANALYSIS_DB["StepTraceTime"].columns})
