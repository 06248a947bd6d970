# SPDX-License-Identifier: Apache-2.0
"""Sampled series of a timeline as JSON events (docs/formats/enums.md 6)."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from stepscope.export.trace.processes import placed
from stepscope.export.trace.timeline import Timeline
from stepscope.formats.ascend.hardware import PORT_BANDWIDTH, PORT_SERIES, PORT_TOTALS
from stepscope.formats.ascend.memory import MODULE_MEM
from stepscope.formats.ascend.trace import layers
from stepscope.formats.ascend.trace.counter_rows import INSTANCE_ARGUMENT
from stepscope.render.json_text import escaped, number
from stepscope.render.lines import Lines, Text, Whole
from stepscope.render.microseconds import TimeText

# Series of tables of their own that the timeline does not show.
NOT_SHOWN = (MODULE_MEM,)


def counter_events(timeline: Timeline, counters: pl.DataFrame, clock: TimeText) -> Iterator[Lines]:
    """One event per moment and counter; the values of several series at one moment share it."""
    for source in counters["source"].unique().drop_nulls().cast(pl.String).sort().to_list():
        if source in NOT_SHOWN:
            continue
        layer = layers.COUNTERS.get(source) or layers.Layer(source, layers.UNKNOWN_SORT)
        rows = counters.filter(pl.col("source") == source).rename({"time_ns": "start_ns"})
        rows = _as_in_timelines(rows) if source in ("NIC", "RoCE") else rows
        rows = placed(rows, timeline.processes, layer, os_pid="").with_columns(args=_argument(rows))
        key = ["pid", "name", "instance", "start_ns"]
        if rows.select(key).is_duplicated().any():
            rows = rows.group_by(key, maintain_order=True).agg(pl.col("args").str.join(", "))
        rows = rows.with_columns(args=_with_instance(rows, source)).sort("start_ns", maintain_order=True)
        place = ['", "pid": ', Whole("pid"), ', "tid": 0, "ts": ', *clock.at(rows, "start_ns")]
        yield Lines(rows, [', {"name": "', Text("name"), *place, ', "ph": "C", "args": {', pl.col("args"), "}}"])


def _as_in_timelines(rows: pl.DataFrame) -> pl.DataFrame:
    """Series of a network port that came from its csv file, under the names of the timeline; some have none there."""
    known = {title: series for title, series in PORT_SERIES.items() if title != series}
    series = pl.col("series").cast(pl.String)
    port = pl.concat_str(
        pl.lit("Port "), pl.col("instance").cast(pl.String).fill_null("0"), pl.lit("/"), series.replace(known).str.head(2)
    )
    name = pl.when(series.is_in(list(known))).then(port).otherwise(pl.col("name").cast(pl.String))
    in_timeline = series.is_not_null() & ~series.is_in([PORT_BANDWIDTH, *PORT_TOTALS])
    shown = rows.filter(in_timeline).with_columns(name.alias("name"), series.replace(known))
    # In the timeline the name tells the port. Databases give each value under both names; one is enough.
    shown = shown.with_columns(pl.lit(None, pl.Int64).alias("instance"))
    return shown.unique(["device", "name", "series", "start_ns"], keep="first", maintain_order=True)


def _argument(rows: pl.DataFrame) -> pl.Series:
    names = {name: f'"{escaped(name)}": ' for name in rows["series"].unique().drop_nulls().cast(pl.String).to_list()}
    label = pl.col("series").cast(pl.String).replace_strict(names, default='"value": ', return_dtype=pl.String)
    value = pl.col("value")
    # Frequencies are whole numbers in timelines.
    is_whole = (pl.col("source") == "AI Core Freq") & (value == value.round())
    shown = pl.when(is_whole).then(value.cast(pl.Int64, strict=False).cast(pl.String)).otherwise(number(value))
    return rows.select(label + shown.fill_null("null")).to_series()


def _with_instance(rows: pl.DataFrame, source: str) -> pl.Expr:
    text = pl.col("args")
    for (owner, start), argument in INSTANCE_ARGUMENT.items():
        if owner == source:
            numbered = text + pl.lit(f', "{argument}": ') + pl.col("instance").cast(pl.String)
            meant = pl.col("name").cast(pl.String).str.starts_with(start or "") & pl.col("instance").is_not_null()
            text = pl.when(meant).then(numbered).otherwise(text)
    return text
