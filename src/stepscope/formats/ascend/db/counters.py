# SPDX-License-Identifier: Apache-2.0
"""Sampled series of a database, named as in the timeline (docs/formats/outputs.md 12.2, docs/formats/enums.md 6)."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from stepscope.formats.ascend.db.counter_tables import (
    COUNTER_TABLES,
    MB,
    PCIE_NAMES,
    PORT_TABLES,
    CounterTable,
    Series,
    pcie_scale,
)
from stepscope.formats.ascend.db.database import Database
from stepscope.formats.ascend.db.schema import ENUMS, OLD_MEMORY_WORDS, PCIE_COUNTERS
from stepscope.formats.ascend.hardware import LINK_MODES, PORT_BANDWIDTH, PORT_RATES, PORT_TOTALS
from stepscope.formats.ascend.memory import NPU_MEM
from stepscope.tables import ALL_TABLES, TEXT

_NO_MINIMUM = 0xFFFFF  # docs/formats/enums.md 8: PCIe minimum that was never set


def read_counters(db: Database) -> pl.DataFrame:
    parts = [frame for layout in COUNTER_TABLES if db.has(layout.table) for frame in _samples(db, layout)]
    for table, source in PORT_TABLES.items():
        if db.has(table):
            parts += _ports(db, table, source)
    if not parts:
        return ALL_TABLES["counters"].empty()
    return ALL_TABLES["counters"].conform(pl.concat(parts))


def _samples(db: Database, layout: CounterTable) -> Iterator[pl.DataFrame]:
    rows = _with_old_words(db, layout.table, db.frame(layout.table, required=("timestampNs",)))
    if layout.table == "NPU_MODULE_MEM":
        names = db.enum("ENUM_MODULE", ENUMS["ENUM_MODULE"])
        module = pl.col("moduleId")
        named = module.replace_strict(names, default=None, return_dtype=pl.String)
        rows = rows.with_columns(named.fill_null(pl.format("module {}", module)).alias("moduleId"))
    if layout.table == "NPU_MEM":
        yield from (_total_memory(rows, word) for word in ("APP", "Device"))
    for series in layout.series:
        chosen = rows
        for column, text in series.where.items():
            value = pl.col(column)
            chosen = chosen.filter(value.is_null() if text is None else value == text)
        chosen = chosen.drop_nulls([series.column, *series.keys])
        if chosen.height:
            yield _shaped(chosen, layout, series)


def _shaped(rows: pl.DataFrame, layout: CounterTable, series: Series) -> pl.DataFrame:
    return rows.select(
        pl.lit(layout.source).cast(TEXT).alias("source"),
        _filled(series.name, layout.table).cast(TEXT).alias("name"),
        _filled(series.series, layout.table).cast(TEXT).alias("series"),
        (pl.col(layout.instance) if layout.instance else pl.lit(None)).cast(pl.Int64).alias("instance"),
        (pl.col("deviceId") if layout.has_device else pl.lit(None)).cast(pl.Int32).alias("device"),
        pl.col("timestampNs").alias("time_ns"),
        (pl.col(series.column).cast(pl.Float64) / series.scale).alias("value"),
    )


def _filled(template: str, table: str) -> pl.Expr:
    """The template with the values of its columns; ports of UB have three digits."""
    parts: list[pl.Expr] = []
    for index, piece in enumerate(template.replace("}", "{").split("{")):
        if index % 2 == 0:
            parts.append(pl.lit(piece))
        else:
            text = pl.col(piece).cast(pl.String)
            parts.append(text.str.zfill(3) if table == "UB" else text)
    return pl.concat_str(parts)


def _total_memory(rows: pl.DataFrame, word: str) -> pl.DataFrame:
    total = Series(f"{word}/Memory", "KB", "total", 1024.0)
    chosen = rows.filter(pl.col("type") == word.lower()).with_columns((pl.col("ddr") + pl.col("hbm")).alias("total"))
    return _shaped(chosen.drop_nulls("total"), CounterTable("NPU_MEM", NPU_MEM, ()), total)


def _with_old_words(db: Database, table: str, rows: pl.DataFrame) -> pl.DataFrame:
    """An old fixture stores words as numbers of ENUM_MEMORY instead of string ids (docs/formats/enums.md 1)."""
    column = {"NPU_MEM": "type", "HBM": "type", "LLC": "mode"}.get(table)
    if column is None or not db.has("ENUM_MEMORY"):
        return rows
    numbers = db.frame(table, required=("timestampNs",), raw=(column,))[column]
    words = numbers.replace_strict(OLD_MEMORY_WORDS, default=None, return_dtype=pl.String).cast(TEXT)
    return rows.with_columns(words.alias(column))


def _ports(db: Database, table: str, source: str) -> list[pl.DataFrame]:
    """Rates of a network port: errors and drops by packets, bytes by what the bandwidth allows (docs/formats/outputs.md 10).

    They stand under the names of the timeline, and under those of nic.csv and roce.csv, which also have the bandwidth.
    """
    rows = db.frame(table, required=("timestampNs",))
    timeline, csv = CounterTable(table, source, ()), CounterTable(table, source, (), instance="funcId")
    capacity = pl.col("bandwidth") / 8  # stored in bytes a second; the vendor's tools count it in bits (docs/formats/outputs.md 10)
    parts = [_shaped(rows.drop_nulls(["bandwidth", "funcId"]), csv, Series("Port {funcId}", PORT_BANDWIDTH, "bandwidth", MB))]
    parts += [_shaped(rows.drop_nulls([total, "funcId"]), csv, Series("Port {funcId}", total, total)) for total in PORT_TOTALS]
    for way in ("rx", "tx"):
        packets, shown = pl.col(f"{way}Packets"), way.capitalize()
        values = {
            f"{way}Packets": pl.coalesce(f"{way}PacketRate", packets),
            f"{way}Errors": _share(pl.col(f"{way}Errors"), packets),
            f"{way}Dropped": _share(pl.col(f"{way}Dropped"), packets),
            f"{way}Bytes": _share(pl.coalesce(f"{way}ByteRate", f"{way}Bytes"), capacity),
        }
        for column, value in values.items():
            title, series = PORT_RATES[column]
            chosen = rows.with_columns(value.alias("shown")).drop_nulls(["shown", "funcId"])
            parts.append(_shaped(chosen, timeline, Series(f"Port {{funcId}}/{shown}", series, "shown")))
            parts.append(_shaped(chosen, csv, Series("Port {funcId}", title, "shown")))
    return [part for part in parts if part.height]


def _share(part: pl.Expr, whole: pl.Expr) -> pl.Expr:
    return pl.when(whole != 0).then(part / whole).when(part.is_not_null()).then(0.0)


def read_link_summary(db: Database) -> pl.DataFrame:
    """Extremes and means of the samples of PCIe and HCCS, as pcie.csv and hccs.csv show them (docs/formats/outputs.md 10)."""
    parts = []
    pcie = db.frame("PCIE", required=("timestampNs",)) if db.has("PCIE") else pl.DataFrame()
    modes = {source: {place: mode for mode, place in modes.items()} for source, modes in LINK_MODES.items()}
    for counter in PCIE_COUNTERS if pcie.height else ():
        smallest, largest, mean = (pl.col(f"{counter}{part}") for part in ("Min", "Max", "Avg"))
        unit = pcie_scale(counter)
        unset = (smallest == _NO_MINIMUM) | (smallest == _NO_MINIMUM * 1_000_000)  # as collected, or as bytes a second
        usable = pcie.with_columns(set_least=pl.when(~unset).then(smallest)).filter((largest >= smallest) | unset)
        mode = modes["PCIe"][PCIE_NAMES[counter[2:]], counter[:2].capitalize()]
        parts.append(
            usable.group_by(pl.col("deviceId").alias("device"), maintain_order=True).agg(
                pl.lit("PCIe").alias("source"),
                pl.lit(mode).alias("mode"),
                (pl.col("set_least").min().fill_null(0) / unit).alias("min"),
                (largest.max() / unit).alias("max"),
                (mean.mean() / unit).alias("avg"),
            )
        )
    hccs = db.frame("HCCS", required=("timestampNs",)) if db.has("HCCS") else pl.DataFrame()
    for way in ("tx", "rx") if hccs.height else ():
        speed = pl.col(f"{way}Throughput") / float(1 << 20)
        parts.append(
            hccs.group_by(pl.col("deviceId").alias("device"), maintain_order=True).agg(
                pl.lit("HCCS").alias("source"),
                pl.lit(modes["HCCS"][way.capitalize(), f"{way.capitalize()}(MB/s)"]).alias("mode"),
                speed.min().alias("min"),
                speed.max().alias("max"),
                speed.mean().alias("avg"),
            )
        )
    table = ALL_TABLES["link_summary"]
    return table.conform(pl.concat(parts)) if parts else table.empty()
