# SPDX-License-Identifier: Apache-2.0
"""Times of the operators of a capture by name, on the host and on the device, whatever ran beside them."""

from __future__ import annotations

import polars as pl

from stepscope.analysis.operators import operator_calls, operator_groups
from stepscope.tables import Tables


def operators(tables: Tables, metric: str) -> pl.DataFrame:
    """One row per name: name, calls, value in us; totals leave out calls inside a call of the same name.

    Args:
        tables: linked tables.
        metric: one of `analysis.name_tree.METRICS`.
    """
    groups = operator_groups(operator_calls(tables), ["name"])
    return groups.select(pl.col("name").cast(pl.String), "calls", value=pl.col(f"{metric}_ns") / 1000.0)
