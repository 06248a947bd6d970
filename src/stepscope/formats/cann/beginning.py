# SPDX-License-Identifier: Apache-2.0
"""When the recording began, and what the vendor's tools leave out because it had ended by then."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

from stepscope.formats.cann.clock import FAR_NS
from stepscope.formats.cann.tasks import JoinedTasks
from stepscope.tables import ALL_TABLES, issues, lost

_MODEL_LOAD = "ModelLoad"


class Calls(NamedTuple):
    """Tables `api_calls` and `early_calls`, and how many calls had ended before the recording began."""

    whole: pl.DataFrame
    early: pl.DataFrame
    skipped: int


def recording_start(apis: pl.DataFrame, tasks: pl.DataFrame, reported_ns: int | None) -> int:
    """When the recording began; a reported time after everything recorded is wrong and ignored."""
    last = max((int(frame.select(pl.col("end_ns").max()).item()) for frame in (apis, tasks) if frame.height), default=-FAR_NS)
    return reported_ns if reported_ns is not None and reported_ns <= last else -FAR_NS


def split_calls(apis: pl.DataFrame, begin_ns: int) -> Calls:
    """Split the calls. Calls made while a model was loaded belong to the recording, whenever that was."""
    skipped = apis["end_ns"] < begin_ns
    if skipped.any():
        loads = apis.filter(pl.col("type") == _MODEL_LOAD).select("tid", load_start="start_ns", load_end="end_ns")
        inside = (pl.col("start_ns") >= pl.col("load_start")) & (pl.col("end_ns") <= pl.col("load_end"))
        numbered = apis.select("tid", "start_ns", "end_ns").with_row_index().filter(skipped)
        skipped = skipped.scatter(numbered.join(loads, on="tid").filter(inside)["index"].unique(), False)
    kept = apis.filter(~skipped)
    early = kept.filter(~pl.col("has_begin")).rename({"start_ns": "zero_ns"})
    whole = ALL_TABLES["api_calls"].conform(kept.filter("has_begin"))
    return Calls(whole, ALL_TABLES["early_calls"].conform(early), int(skipped.sum()))


def without_early_tasks(joined: JoinedTasks, begin_ns: int) -> JoinedTasks:
    """The tasks without those that had ended before the recording began."""
    kept = joined.rows.filter(pl.col("end_ns") >= begin_ns)
    early = lost(issues.BEFORE_RECORDING, "stars_soc", joined.rows.height - kept.height, "tasks: left out")
    return JoinedTasks(kept, (*joined.quality, early))
