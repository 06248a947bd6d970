# SPDX-License-Identifier: Apache-2.0
"""How often each mark was set and how long its ranges took, per domain."""

from __future__ import annotations

import polars as pl

from stepscope.tables import Tables

DEFAULT_DOMAIN = "default"
_NUMBERED = r"^(ProfilerStep#|step )\d+$"  # one name for the steps of a loop
_OPERATOR = r'opName\\*": *\\*"([^"\\]+)'  # of a communication mark, whose text is JSON, with or without backslashes


def mark_summary(tables: Tables) -> pl.DataFrame:
    """One row per domain and name; domains with the longest ranges first, inside of them names.

    Returns:
        domain, mark, calls, total_ns, mean_ns, min_ns, max_ns (null for marks, which have no length), device_calls, device_ns
    """
    text = pl.col("message").cast(pl.String).fill_null("")
    name = text.str.extract(_OPERATOR).fill_null(text.str.replace(_NUMBERED, "${1}*"))
    length = pl.when(pl.col("kind").cast(pl.String).is_in(["marker", "marker_ex"]).not_()).then(
        pl.col("end_ns") - pl.col("start_ns")
    )
    rows = tables.marks.select(
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
