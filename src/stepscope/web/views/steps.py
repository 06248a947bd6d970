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
# What a bar of a step is made of.
NPU_BAR = ("Computing", "Communication(Not Overlapped)", "Free", "Preparing", "Other")


def npu_steps(capture: LoadedCapture) -> pl.DataFrame:
    """Rows of step_trace_time.csv: device, step (null without steps), values in us under their headings, and `total`.

    `total` is the length of the step in the timeline, or what the device spent in it where that is more, as the verdict has it:
    a host that runs ahead is through with a step long before the device.
    """
    return capture.once("npu steps", lambda: _npu_steps(capture))


def npu_bars(capture: LoadedCapture) -> pl.DataFrame:
    """The same steps in parts that add up to `total`, in us.

    Preparing counts from the step's start on the host, when the device may still be busy with the step before: what exceeds the
    step is taken from it. The times on the device are those of every other view. Other is the end of the step after its last task.
    """
    *on_device, preparing, other = NPU_BAR
    left = (pl.col("total") - pl.sum_horizontal(on_device)).clip(lower_bound=0.0)
    rows = npu_steps(capture).select("device", "step", "total", *NPU_BAR[:-1])
    rows = rows.with_columns(pl.min_horizontal(preparing, left))
    return rows.with_columns((left - pl.col(preparing)).alias(other))


def _npu_steps(capture: LoadedCapture) -> pl.DataFrame:
    in_us = {item.key: pl.col(item.key) / item.unit for item in VALUES}
    titles = [in_us[item.key].alias(item.title) for item in VALUES]
    on_device = in_us["computing_ns"] + in_us["not_overlapped_ns"] + in_us["free_ns"]
    lengths = capture.tables.steps.group_by("step").agg(length=(pl.col("end_ns").max() - pl.col("start_ns").min()) / 1000.0)
    return (
        step_times(capture.tables)
        .join(lengths, on="step", how="left", maintain_order="left")
        .select("device", "step", *titles, total=pl.max_horizontal("length", on_device))
    )


def other_steps(capture: LoadedCapture) -> pl.DataFrame:
    """For GPU and CPU: step, one column per category of `OTHER`, and `total`, in us. The parts add up to the step."""
    return capture.once("other steps", lambda: _other_steps(capture))


def _other_steps(capture: LoadedCapture) -> pl.DataFrame:
    begin, length = capture.base_ns, capture.trace.length_ns
    rows = step_parts(capture.tables, (begin, begin + length) if capture.trace.count else None)
    return rows.with_columns(pl.col(*PARTS, "total") / 1000.0)
