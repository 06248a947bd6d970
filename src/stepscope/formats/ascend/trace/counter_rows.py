# SPDX-License-Identifier: Apache-2.0
"""Sampled series of a timeline: one row per value of a counter event (docs/formats/enums.md 6)."""

from __future__ import annotations

import polars as pl

from stepscope.formats.ascend.trace.events import rewritten
from stepscope.formats.ascend.trace.lanes import Lanes
from stepscope.tables import ALL_TABLES, TEXT

# Arguments that hold a value; the key is the name of the series.
SERIES = (
    "MHz", "KB", "value", "Usage(%)",
    "Read(MB/s)", "Write(MB/s)", "Throughput(MB/s)", "Hit Rate(%)",
    "Mata Bw Level", "L2 Buffer Bw Level",
    "PA Link Rx", "PA Link Tx", "PCIE Read Bandwidth", "PCIE Write Bandwidth",
    "Rx(MB/s)", "Tx(MB/s)", "Rx", "Tx", "Ex",
    *(f"{way} {what}" for way in ("Rx", "Tx") for what in ("Dropped Rate", "Error Rate", "Packets", "Bandwidth Efficiency")),
    "die 0", "die 1", "bandwidth_rx(MB/s)", "bandwidth_tx(MB/s)",
)  # fmt: skip

# Arguments that tell series of one name apart: by layer, and by what the name begins with.
INSTANCE_ARGUMENT = {
    ("Acc PMU", None): "acc_id",
    ("Stars Chip Trans", "PA"): "PA Link ID",
    ("Stars Chip Trans", "PC"): "PCIE ID",
}
INSTANCES = tuple(INSTANCE_ARGUMENT.values())

# Names of the first generation that later ones spell differently.
OLD_NAMES = {"write_band_width": "write_bandwidth"}

ARGS: dict[str, pl.DataType] = {**dict.fromkeys(SERIES, pl.Float64()), **dict.fromkeys(INSTANCES, pl.Int64())}


def counter_rows(events: pl.LazyFrame) -> pl.LazyFrame:
    return events.select(
        "pid",
        pl.col("ts_ns").alias("time_ns"),
        pl.col("name").cast(TEXT),
        pl.coalesce(f"args.{key}" for key in INSTANCES).alias("instance"),
        *(pl.col(f"args.{key}").alias(key) for key in SERIES),
    )


def samples(rows: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """One row per value, and how many events had no value of a known name."""
    used = [key for key in SERIES if rows[key].null_count() < rows.height]
    unknown = rows.select(pl.all_horizontal(pl.col(SERIES).is_null()).sum()).item() if rows.height else 0
    long = rows.unpivot(used, index=["pid", "time_ns", "name", "instance"], variable_name="series", value_name="sample")
    # Without any value there is no type.
    typed = long.select(
        "pid", "time_ns", "name", "instance", pl.col("series").cast(TEXT), pl.col("sample").cast(pl.Float64).alias("value")
    )
    return typed.drop_nulls("value"), int(unknown)


def counters(rows: pl.DataFrame, lanes: Lanes) -> pl.DataFrame:
    source = lanes.processes.select("pid", pl.col("layer").cast(TEXT).alias("source"), "device")
    rows = rewritten(rows, "name", pl.col("text").replace(OLD_NAMES))
    return ALL_TABLES["counters"].conform(rows.join(source, on="pid", how="left", maintain_order="left"))
