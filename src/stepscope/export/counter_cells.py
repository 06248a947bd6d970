# SPDX-License-Identifier: Apache-2.0
"""Hardware counters of kernels as columns of a csv file (outputs.md 4, cann-raw.md 7.2)."""

from __future__ import annotations

from collections.abc import Collection
from decimal import ROUND_HALF_UP, Decimal

import numpy as np
import polars as pl

from stepscope.formats.ascend.metric_names import csv_columns, to_canonical
from stepscope.render.csv_file import NOT_KNOWN, Cells
from stepscope.render.lines import Numbers, Part
from stepscope.render.microseconds import microseconds
from stepscope.render.number_forms import SHORTEST, THOUSANDTHS, WHOLE, Form
from stepscope.tables import Tables

_THOUSANDTH = Decimal("0.001")
_MOST_THOUSANDTHS = 1e15  # above, floats have no thousandths to round


def counter_cells(tables: Tables, rows: pl.DataFrame, fixed: Collection[str] = ()) -> list[Cells]:
    """One column per hardware counter of the chosen set, also where the source lacks it (databases have no cube_utilization).

    Args:
        tables: of the capture.
        rows: of the file, with `kernel`: the row of `kernels`, null for what is none.
        fixed: titles of columns that always have three digits after the point.
    """
    metrics = tables.kernel_metrics
    if not metrics.height:
        return []
    known = [name for name in metrics.columns if name != "kernel"]
    place = rows.select("kernel").join(
        metrics.select("kernel").with_row_index("place"), on="kernel", how="left", maintain_order="left"
    )["place"]
    columns: list[Cells] = []
    for title in csv_columns(tables.facts.aic_metrics, known):
        name, factor = to_canonical(title)
        values = metrics[name].gather(place) if name in metrics.columns else pl.Series(name, [None] * rows.height, dtype=pl.Float64)
        columns.append((title, [_counter(title, values, factor, THOUSANDTHS if title in fixed else SHORTEST)]))
    return columns


def _counter(title: str, values: pl.Series, factor: float, form: Form) -> Part:
    if title.endswith("cycles"):
        return Numbers(values.round().cast(pl.Int64), WHOLE, NOT_KNOWN)
    return Numbers(thousandths(values if factor == 1.0 else microseconds(values)), form, NOT_KNOWN)


def thousandths(values: pl.Series) -> pl.Series:
    """Whole thousandths of floats; halves of what the float looks like go away from zero, as in SQLite."""
    numbers = np.clip(values.cast(pl.Float64).fill_null(0.0).fill_nan(0.0).to_numpy(), -_MOST_THOUSANDTHS, _MOST_THOUSANDTHS)
    scaled = np.abs(numbers) * 1000.0
    whole = np.floor(scaled + 0.5)
    near = np.flatnonzero(np.abs(scaled - np.floor(scaled) - 0.5) < 1e-6)
    if near.size:
        # The thousandfold is rounded itself: that of 0.5055 is less than 505.5.
        distinct, places = np.unique(np.abs(numbers[near]), return_inverse=True)
        exact = [int(Decimal(repr(value)).quantize(_THOUSANDTH, ROUND_HALF_UP) * 1000) for value in distinct.tolist()]
        whole[near] = np.array(exact, dtype=np.float64)[places]
    column = pl.Series(values.name, np.where(numbers < 0, -whole, whole).astype(np.int64))
    return column.set(values.is_null(), None) if values.null_count() else column
