# SPDX-License-Identifier: Apache-2.0
"""The Module view: time by module of the model (docs/reference/viewer.md 4.8)."""

from __future__ import annotations

from typing import Any

import polars as pl

from stepscope.analysis.views import has_modules, module_view
from stepscope.web.loaded import LoadedCapture
from stepscope.web.parameters import Query
from stepscope.web.problems import missing
from stepscope.web.row_filter import requested_step, step_numbers

COLUMNS = ("Module Name", "Occurrences", "Operators", "Host Total Time", "Host Self Time", "Device Total Time", "Device Self Time")


def modules(capture: LoadedCapture, query: Query) -> dict[str, Any]:
    """One row per module path, parents before children; times in us. `steps` are those that the query can name."""
    if not has_modules(capture.tables):
        raise missing("modules", "no modules in this capture")
    step = requested_step(capture, query)
    spans = None if step is None else capture.tables.steps.filter(pl.col("step") == step)
    frame = capture.once(f"modules {step}", lambda: module_view(capture.tables, step=spans))
    number = {path: place for place, path in enumerate(frame["path"].to_list())}
    rows = []
    for place, row in enumerate(frame.iter_rows(named=True)):
        outer, _, name = row["path"].rpartition("/")
        times = [row[f"{side}_{part}_ns"] / 1000.0 for side in ("host", "device") for part in ("total", "self")]
        rows.append(
            {
                "id": place,
                "parent": number.get(outer),
                "depth": row["depth"],
                "cells": [name, row["calls"], row["operators"], *times],
            }
        )
    return {"columns": list(COLUMNS), "rows": rows, "steps": step_numbers(capture)}
