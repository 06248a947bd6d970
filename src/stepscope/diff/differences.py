# SPDX-License-Identifier: Apache-2.0
"""Names of two captures joined, with the differences of calls and times."""

from __future__ import annotations

import polars as pl


def differences(baseline: pl.DataFrame, experiment: pl.DataFrame) -> pl.DataFrame:
    """Both sides by name, the largest difference of time first.

    Args:
        baseline: name, calls and value of the first capture, as `operators.operators` gives them.
        experiment: those of the second.

    Returns:
        name; calls_a, calls_b, value_a, value_b (0 where a side lacks the name); calls_delta, value_delta (second minus first);
        calls_percent, value_percent (of the baseline, null where that is 0); only (`baseline` or `experiment` where the other
        lacks the name).
    """
    named = ((baseline, "a"), (experiment, "b"))
    sides = [frame.rename({"calls": f"calls_{side}", "value": f"value_{side}"}) for frame, side in named]
    joined = sides[0].join(sides[1], on="name", how="full", coalesce=True)
    only = (
        pl.when(pl.col("calls_b").is_null()).then(pl.lit("baseline")).when(pl.col("calls_a").is_null()).then(pl.lit("experiment"))
    )
    filled = joined.with_columns(only.alias("only")).with_columns(
        pl.col("calls_a", "calls_b").fill_null(0), pl.col("value_a", "value_b").fill_null(0.0)
    )
    frame = filled.with_columns(
        calls_delta=pl.col("calls_b") - pl.col("calls_a"), value_delta=pl.col("value_b") - pl.col("value_a")
    ).with_columns(calls_percent=_percent("calls"), value_percent=_percent("value"))
    return frame.sort(pl.col("value_delta").abs(), pl.col("name"), descending=[True, False])


def _percent(key: str) -> pl.Expr:
    return pl.when(pl.col(f"{key}_a") != 0).then(100.0 * pl.col(f"{key}_delta") / pl.col(f"{key}_a"))
