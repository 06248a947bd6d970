# SPDX-License-Identifier: Apache-2.0
"""Which rows a request means: those that start in its step, or between its `from` and `to`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.analysis.steps import step_of
from stepscope.web.loaded import LoadedCapture
from stepscope.web.parameters import Query
from stepscope.web.problems import bad_parameter

Chosen = npt.NDArray[np.bool_]


def step_numbers(capture: LoadedCapture) -> list[int]:
    return capture.tables.steps["step"].drop_nulls().unique(maintain_order=True).to_list()


def requested_step(capture: LoadedCapture, query: Query) -> int | None:
    """The step of a request; None when it names none."""
    step = query.whole("step")
    known = step_numbers(capture)
    if step is not None and step not in known:
        raise bad_parameter("step", f"one of {', '.join(map(str, known[:50])) or 'none'}")
    return step


def in_step(capture: LoadedCapture, query: Query, start_ns: pl.Series) -> Chosen | None:
    """Whether each row starts in the step asked for; None when the request names none."""
    step = requested_step(capture, query)
    if step is None:
        return None
    steps = capture.tables.steps
    return (steps["step"].gather(step_of(start_ns, steps)) == step).fill_null(False).to_numpy()


def in_window(capture: LoadedCapture, query: Query, start_ns: pl.Series) -> Chosen | None:
    """As `in_step`, and between `from` and `to` where they are given."""
    chosen = in_step(capture, query, start_ns)
    if query.optional("from") is None and query.optional("to") is None:
        return chosen
    low, high = query.window(capture.trace.length_ns)
    within = start_ns.is_between(capture.base_ns + low, capture.base_ns + high, closed="left").fill_null(False).to_numpy()
    return within if chosen is None else chosen & within
