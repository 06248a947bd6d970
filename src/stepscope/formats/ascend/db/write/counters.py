# SPDX-License-Identifier: Apache-2.0
"""Sampled series back into the tables of the profiler database (docs/formats/outputs.md 12.2, 13)."""

from __future__ import annotations

import re
from collections.abc import Iterator

import polars as pl

from stepscope.formats.ascend.db.counter_tables import COUNTER_TABLES, MB, PORT_TABLES, CounterTable, Series
from stepscope.formats.ascend.db.schema import PROFILER_DB, enum_with
from stepscope.formats.ascend.db.string_ids import StringIds
from stepscope.formats.ascend.hardware import PORT_BANDWIDTH, PORT_RATES
from stepscope.tables import TEXT, Tables

_TIME = "timestampNs"


def counter_rows(tables: Tables, strings: StringIds) -> Iterator[tuple[str, pl.DataFrame]]:
    """Name and rows of every table of samples that has any."""
    counters = tables["counters"].with_columns(pl.col("source", "name", "series").cast(pl.String))
    parts = {str(key[0]): rows for key, rows in counters.partition_by("source", as_dict=True).items()}
    for layout in COUNTER_TABLES:
        if layout.source in parts:
            rows = _samples(parts[layout.source], layout)
            if rows is not None:
                yield layout.table, _typed(rows, layout.table, strings)
    for table, source in PORT_TABLES.items():
        if source in parts:
            yield table, _typed(_ports(parts[source]), table, strings)


def _samples(counters: pl.DataFrame, layout: CounterTable) -> pl.DataFrame | None:
    """One row per moment and key, one column per series that shares it."""
    found = [part for series in layout.series if (part := _values(counters, layout, series)).height]
    if not found:
        return None
    long = pl.concat(found, how="diagonal")
    keys = [name for name in long.columns if name not in ("column", "value")]
    values = sorted(set(long["column"]))
    # Two samples of one key at the same moment are two rows.
    turn = pl.int_range(pl.len()).over([*keys, "column"]).alias("turn")
    wide = long.with_columns(turn).pivot(
        on="column", on_columns=values, index=[*keys, "turn"], values="value", aggregate_function="first", maintain_order=True
    )
    return wide.drop("turn").sort(_TIME, maintain_order=True)


def _values(counters: pl.DataFrame, layout: CounterTable, series: Series) -> pl.DataFrame:
    name, label = _pattern(series.name), _pattern(series.series)
    rows = counters.filter(pl.col("name").str.contains(name) & pl.col("series").str.contains(label))
    keys = [
        pl.col(source).str.extract(pattern, index).alias(key)
        for source, pattern, template in (("name", name, series.name), ("series", label, series.series))
        for index, key in enumerate(re.findall(r"{(\w+)}", template), start=1)
    ]
    fixed = [pl.lit(text).alias(column) for column, text in series.where.items() if text is not None]
    place = [pl.col("device").cast(pl.Int64).alias("deviceId")] if layout.has_device else []
    instance = [pl.col("instance").alias(layout.instance)] if layout.instance else []
    return rows.select(
        *place,
        pl.col("time_ns").alias(_TIME),
        *instance,
        *keys,
        *fixed,
        pl.lit(series.column).alias("column"),
        (pl.col("value") * series.scale).alias("value"),
    )


def _pattern(template: str) -> str:
    pieces = template.replace("}", "{").split("{")
    body = "".join("(.+)" if index % 2 else re.escape(piece) for index, piece in enumerate(pieces))
    return f"^{body}$"


def _typed(rows: pl.DataFrame, table: str, strings: StringIds) -> pl.DataFrame:
    """Columns with the types of the database: words to string ids, whole numbers rounded."""
    columns = []
    for column in PROFILER_DB[table].columns:
        if column.name not in rows.columns:
            continue
        values = rows[column.name]
        if column.name == "moduleId":
            numbers = {name: number for number, name in enum_with("ENUM_MODULE", values.unique().drop_nulls()).items()}
            columns.append(values.replace_strict(numbers, default=-1, return_dtype=pl.Int64).alias("moduleId"))
        elif column.is_string_id:
            columns.append(strings.of(values.cast(TEXT), 0, missing="N/A"))
        elif column.kind in "IK":
            whole = values.cast(pl.Float64, strict=False).round() if values.dtype != pl.Int64 else values
            columns.append(whole.cast(pl.Int64, strict=False))
        else:
            columns.append(values)
    return pl.DataFrame(columns)


def _ports(counters: pl.DataFrame) -> pl.DataFrame:
    """Rates of a port, and its totals or what the rates say about them (docs/formats/outputs.md 10)."""
    port = pl.coalesce(pl.col("name").str.extract(r"^Port (\d+)").cast(pl.Int64, strict=False), "instance").fill_null(0)
    wide = counters.with_columns(port.alias("funcId")).pivot(
        on="series", index=["device", "time_ns", "funcId"], values="value", aggregate_function="first", maintain_order=True
    )

    def value(*names: str) -> pl.Expr:
        there = [pl.col(name) for name in names if name in wide.columns]
        return pl.coalesce(there) if there else pl.lit(None, pl.Float64)

    bandwidth = value(PORT_BANDWIDTH) * MB  # bytes a second
    capacity = bandwidth / 8
    rates = {column: value(series, title) for column, (title, series) in PORT_RATES.items()}
    counts = []
    for way in ("rx", "tx"):
        packets, byte_rate = rates[f"{way}Packets"], capacity * rates[f"{way}Bytes"]
        derived = {
            f"{way}Packets": packets,
            f"{way}Errors": packets * rates[f"{way}Errors"],
            f"{way}Dropped": packets * rates[f"{way}Dropped"],
            f"{way}Bytes": byte_rate,
        }
        counts += [packets.alias(f"{way}PacketRate"), byte_rate.alias(f"{way}ByteRate")]
        counts += [pl.coalesce(value(name), amount).alias(name) for name, amount in derived.items()]
    return wide.select(
        pl.col("device").cast(pl.Int64).alias("deviceId"),
        pl.col("time_ns").alias(_TIME),
        bandwidth.alias("bandwidth"),
        *counts,
        "funcId",
    )
