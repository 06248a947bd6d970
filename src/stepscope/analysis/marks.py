# SPDX-License-Identifier: Apache-2.0
"""How often each mark was set and how long its ranges took, per domain."""

from __future__ import annotations

import polars as pl

from stepscope.analysis.operators import is_annotation
from stepscope.analysis.steps import is_step
from stepscope.tables import TEXT, Tables

DEFAULT_DOMAIN = "default"
_NUMBERED = r"^(ProfilerStep#|step )\d+$"  # one name for the steps of a loop
_OPERATOR = r'opName\\*": *\\*"([^"\\]+)'  # of a communication mark, whose text is JSON, with or without backslashes
_MARK = ("domain", "message", "kind", "start_ns", "end_ns", "device_start_ns", "device_end_ns")


def mark_summary(tables: Tables) -> pl.DataFrame:
    """One row per domain and name; domains with the longest ranges first, inside of them names.

    Ranges that were annotated on the host only count as marks where they do not count as operators (`operator_calls`).

    Returns:
        domain, mark, calls, total_ns, mean_ns, min_ns, max_ns (null for marks, which have no length), device_calls, device_ns
    """
    text = pl.col("message").cast(pl.String).fill_null("")
    name = text.str.extract(_OPERATOR).fill_null(text.str.replace(_NUMBERED, "${1}*"))
    length = pl.when(pl.col("kind").cast(pl.String).is_in(["marker", "marker_ex"]).not_()).then(
        pl.col("end_ns") - pl.col("start_ns")
    )
    rows = pl.concat([tables.marks.select(_MARK), _annotations(tables)]).select(
        pl.col("domain").cast(pl.String).fill_null(DEFAULT_DOMAIN),
        name.alias("mark"),
        length.alias("length"),
        (pl.col("device_end_ns") - pl.col("device_start_ns")).alias("on_device"),
    )
    total = pl.when(pl.col("length").count() > 0).then(pl.col("length").sum())
    summed = rows.group_by("domain", "mark", maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("calls"),
        total.alias("total_ns"),
        pl.col("length").mean().alias("mean_ns"),
        pl.col("length").min().alias("min_ns"),
        pl.col("length").max().alias("max_ns"),
        pl.col("on_device").count().cast(pl.Int64).alias("device_calls"),
        pl.when(pl.col("on_device").count() > 0).then(pl.col("on_device").sum()).alias("device_ns"),
    )
    of_domain = pl.col("total_ns").sum().over("domain")
    return summed.sort(
        of_domain, pl.col("domain"), pl.col("total_ns"), descending=[True, False, True], nulls_last=True, maintain_order=True
    )


def _annotations(tables: Tables) -> pl.DataFrame:
    """Annotated ranges that have no mark of their own."""
    if tables.device_kind == "npu":
        return tables.marks.clear().select(_MARK)
    place = ["message", "start_ns", "end_ns"]
    ranges = tables.ops.filter(is_annotation(tables.ops)).filter(~is_step()).rename({"name": "message"})
    host_only = ranges.select(place).join(tables.marks.select(place), on=place, how="anti", maintain_order="left")
    absent = {name: pl.lit(None, tables.marks.schema[name]) for name in _MARK if name not in (*place, "kind")}
    return host_only.with_columns(**absent, kind=pl.lit("annotation", TEXT)).select(_MARK)
