# SPDX-License-Identifier: Apache-2.0
"""How long the operators of each line of the program took, on the host and on the device."""

from __future__ import annotations

import polars as pl

from stepscope.analysis.operators import operator_times
from stepscope.tables import Tables

PLACE = r"^(?<file>.*)\((?<line>\d+)\)(?::\s*(?<function>.*))?$"
MOST_NAMES = 5


def line_times(tables: Tables, lines: pl.Series) -> pl.DataFrame:
    """One row per line that called operators, the longest first.

    Args:
        lines: `file(line): function` of each row of `ops`, null where it is not known.

    Returns:
        file, line, function, calls, host_ns, device_ns (operators themselves, so nothing counts twice), operators (names).
    """
    place = lines.cast(pl.String).str.extract_groups(PLACE).struct.unnest()
    rows = pl.concat([tables.ops.select(name=pl.col("name").cast(pl.String)), place, operator_times(tables)], how="horizontal")
    rows = rows.drop_nulls("file").with_columns(pl.col("line").cast(pl.Int64))
    key = ["file", "line", "function"]
    names = (
        rows.group_by(*key, "name")
        .agg(pl.col("host_self_ns").sum(), pl.col("device_self_ns").sum())
        .sort("device_self_ns", "host_self_ns", "name", descending=[True, True, False])
        .group_by(key, maintain_order=True)
        .agg(operators=pl.col("name").head(MOST_NAMES))
    )
    summed = rows.group_by(key).agg(
        calls=pl.len().cast(pl.Int64),
        host_ns=pl.col("host_self_ns").sum(),
        device_ns=pl.col("device_self_ns").sum().round().cast(pl.Int64),
    )
    order = ["device_ns", "host_ns", "file", "line", "function"]
    found: pl.DataFrame = summed.join(names, on=key, how="left", nulls_equal=True)
    return found.sort(order, descending=[True, True, False, False, False])
