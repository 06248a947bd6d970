# SPDX-License-Identifier: Apache-2.0
"""Where the time of each step went, in the words and units of the page."""

from __future__ import annotations

import polars as pl

from stepscope.analysis.step_parts import PARTS, step_parts
from stepscope.analysis.step_time import step_times
from stepscope.formats.ascend.step_trace_time import VALUES
from stepscope.web.loaded import LoadedCapture

NPU = (
    "Computing", "Communication(Not Overlapped)", "Overlapped", "Free", "Bubble", "Preparing", "Stage",
)  # fmt: skip
OTHER = PARTS


def npu_steps(capture: LoadedCapture) -> pl.DataFrame:
    """Rows of step_trace_time.csv: device, step (null without steps), values in us under their headings, and `total`."""
    return capture.once("npu steps", lambda: _npu_steps(capture))


def _npu_steps(capture: LoadedCapture) -> pl.DataFrame:
    in_us = {item.key: pl.col(item.key) / item.unit for item in VALUES}
    titles = [in_us[item.key].alias(item.title) for item in VALUES]
    total = in_us["computing_ns"] + in_us["not_overlapped_ns"] + in_us["free_ns"]
    return step_times(capture.tables).select("device", "step", *titles, total=total)


def other_steps(capture: LoadedCapture) -> pl.DataFrame:
    """For GPU and CPU: step, one column per category of `OTHER`, and `total`, in us. The parts add up to the step."""
    return capture.once("other steps", lambda: _other_steps(capture))


def _other_steps(capture: LoadedCapture) -> pl.DataFrame:
    begin, length = capture.base_ns, capture.trace.length_ns
    rows = step_parts(capture.tables, (begin, begin + length) if capture.trace.count else None)
    return rows.with_columns(pl.col(*PARTS, "total") / 1000.0)
