# SPDX-License-Identifier: Apache-2.0
"""What a host thread did at each moment, as layers that do not overlap: the highest that is active counts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.analysis.partition import names
from stepscope.analysis.partition.spans import EMPTY, Spans, join, minus, spans_of
from stepscope.analysis.steps import is_step
from stepscope.tables import Tables

# Highest first. `other` is what is left of the thread's time: nothing was recorded of it.
LAYERS = ("gc", "sync", "alloc", "compile", "checkpoint", "data", "api", "operator", "python", "other")
USER_RANGE = 7  # scope of a range that the user or the framework's Python code named


def thread_layers(tables: Tables, tid: int) -> dict[str, Spans]:
    """The layers of one thread, each without what higher ones cover; `other` is not among them."""
    taken, found = EMPTY, {}
    for name, spans in _claims(tables, tid).items():
        found[name] = minus(spans, taken)
        taken = join(taken, spans)
    return found


def _claims(tables: Tables, tid: int) -> dict[str, Spans]:
    """What each layer would cover alone."""
    own = pl.col("tid") == tid
    api, ops, frames = (tables[name].filter(own) for name in ("api_calls", "ops", "python_calls"))
    marks = tables.marks.filter(own & ~pl.col("kind").is_in(["marker", "marker_ex"]).fill_null(False))
    is_operator = (pl.col("scope").fill_null(0) != USER_RANGE) & ~is_step()

    def named(frame: pl.DataFrame, pattern: str, *, column: str = "name", but_not: str = "") -> Spans:
        return spans_of(_chosen(frame, names.matches(frame[column], pattern, but_not=but_not)))

    def saves(frame: pl.DataFrame, column: str = "name") -> Spans:
        return named(frame, names.SAVE, column=column, but_not=names.NOT_SAVE)

    return {
        "gc": spans_of(tables.gc_pauses),
        "sync": named(api, names.SYNC),
        "alloc": named(api, names.ALLOC),
        "compile": named(api, names.COMPILE),
        "checkpoint": join(saves(frames), saves(ops), saves(marks, "message")),
        "data": join(
            named(ops, names.DATA),
            named(marks, names.DATA, column="message"),
            named(frames, names.DATA_FRAME),
            spans_of(_pipeline(tables).filter(own)),
        ),
        "api": spans_of(api),
        "operator": spans_of(ops.filter(is_operator)),
        "python": spans_of(frames),
    }


def _pipeline(tables: Tables) -> pl.DataFrame:
    """Ranges of `ops` in which an input pipeline worked."""
    return tables.ops[tables.data_stages["op"].drop_nulls()] if tables.data_stages.height else tables.ops.clear()


def _chosen(frame: pl.DataFrame, mask: npt.NDArray[np.bool_]) -> pl.DataFrame:
    return frame.filter(pl.Series(mask)) if mask.any() else frame.clear()
