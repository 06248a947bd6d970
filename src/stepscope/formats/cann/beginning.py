# SPDX-License-Identifier: Apache-2.0
"""When a collection began, and what the vendor's tools leave out because it was over by then."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from stepscope.formats.cann.clock import FAR_NS
from stepscope.formats.cann.tasks import Joined
from stepscope.tables import ALL_TABLES, lost

_MODEL_LOAD = "ModelLoad"


class Calls(NamedTuple):
    """Tables `api_calls` and `early_calls`, and how many calls were over before the collection began."""

    whole: pl.DataFrame
    early: pl.DataFrame
    over: int


def beginning(apis: pl.DataFrame, tasks: pl.DataFrame, said_ns: int | None) -> int:
    """When the collection began; a time after all that was recorded is wrong, and nothing is left out for it."""
    last = max((int(frame.select(pl.col("end_ns").max()).item()) for frame in (apis, tasks) if frame.height), default=-FAR_NS)
    return said_ns if said_ns is not None and said_ns <= last else -FAR_NS


def calls_of(apis: pl.DataFrame, begin_ns: int) -> Calls:
    """Tell the calls apart. Whatever was called while a model was loaded belongs to the collection, whenever that was."""
    over = apis["end_ns"] < begin_ns
    if over.any():
        loads = apis.filter(pl.col("type") == _MODEL_LOAD).select("tid", load_start="start_ns", load_end="end_ns")
        inside = (pl.col("start_ns") >= pl.col("load_start")) & (pl.col("end_ns") <= pl.col("load_end"))
        numbered = apis.select("tid", "start_ns", "end_ns").with_row_index().filter(over)
        over = over.scatter(numbered.join(loads, on="tid").filter(inside)["index"].unique(), False)
    kept = apis.filter(~over)
    early = kept.filter(~pl.col("has_begin")).rename({"start_ns": "zero_ns"})
    whole = ALL_TABLES["api_calls"].conform(kept.filter("has_begin"))
    return Calls(whole, ALL_TABLES["early_calls"].conform(early), int(over.sum()))


def since(joined: Joined, begin_ns: int) -> Joined:
    """Without the tasks that were over before the collection began."""
    kept = joined.rows.filter(pl.col("end_ns") >= begin_ns)
    early = lost("stars_soc", "tasks before the collection", joined.rows.height - kept.height, "left out")
    return Joined(kept, (*joined.quality, early))
