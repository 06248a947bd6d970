# SPDX-License-Identifier: Apache-2.0
"""Sampled series of a trace (events of phase C); read in a pass of its own because few traces have any."""

from __future__ import annotations

import re
from pathlib import Path

import orjson
import polars as pl

from stepscope.formats.chrome.events import read_events
from stepscope.tables import ALL_TABLES

# polars writes an object back as text without the escapes that its keys had.
_UNESCAPED = re.compile(r'"(.+?)": (-?\d[\d.eE+-]*)(?=, "|\}\Z)', re.DOTALL)


def read_counters(path: Path, base_ns: int) -> pl.DataFrame:
    """Table `counters`: one row per value of each counter event; values that are not numbers are left out."""
    parts = [
        events.filter((pl.col("ph") == "C") & pl.col("ts_ns").is_not_null()).select("name", "cat", "pid", "ts_ns", args="args.*")
        for events in read_events(path, {"*": pl.String()}, quality=[])
    ]
    samples = pl.concat(parts)
    # One Python object per sample: counters are sampled in milliseconds, not per operator.
    pairs = [_numbers(text) for text in samples["args"].to_list()]
    series = pl.Series([[name for name, _ in found] for found in pairs], dtype=pl.List(pl.String))
    values = pl.Series([[value for _, value in found] for found in pairs], dtype=pl.List(pl.Float64))
    rows = samples.with_columns(series=series, value=values).explode("series", "value").drop_nulls("value")
    return ALL_TABLES["counters"].conform(
        rows.select("name", "series", "value", source=pl.col("cat").fill_null("counter"), time_ns=pl.col("ts_ns") + base_ns)
    )


def _numbers(text: str | None) -> list[tuple[str, float]]:
    try:
        found = orjson.loads(text) if text else {}
    except orjson.JSONDecodeError:
        return [(key, float(value)) for key, value in _UNESCAPED.findall(text or "")]
    if not isinstance(found, dict):
        return []
    return [(key, float(value)) for key, value in found.items() if isinstance(value, (int, float))]
