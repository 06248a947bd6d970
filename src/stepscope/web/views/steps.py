# SPDX-License-Identifier: Apache-2.0
"""Where the time of each step went: on NPUs by what the device did, elsewhere by who was active first in a list."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from stepscope.analysis.overlap import intersect, merge, subtract
from stepscope.analysis.step_time import step_trace_time
from stepscope.web.csv_source import read_csv
from stepscope.web.loaded import LoadedCapture

NPU = (
    "Computing", "Communication(Not Overlapped)", "Overlapped", "Free", "Bubble", "Preparing", "Stage",
)  # fmt: skip
OTHER = ("Kernel", "Memcpy", "Memset", "Communication", "Runtime", "DataLoader", "CPU Exec", "Other")
_COLUMNS = {
    "Computing": "computing_ns", "Communication(Not Overlapped)": "not_overlapped_ns", "Overlapped": "overlapped_ns",
    "Communication": "communication_ns", "Free": "free_ns", "Stage": "stage_ns", "Bubble": "bubble_ns", "Preparing": "preparing_ns",
}  # fmt: skip
_SPAN = ["start_ns", "end_ns"]


def npu_steps(opened: LoadedCapture) -> pl.DataFrame:
    """step_trace_time.csv: device, step (null without steps) and values in us under their headings."""
    return opened.once("npu steps", lambda: _npu_steps(opened))


def _npu_steps(opened: LoadedCapture) -> pl.DataFrame:
    file = opened.output_file("step_trace_time.csv")
    frame = read_csv(file) if file else None
    if frame is not None and "Computing" in frame.columns and frame.height:
        values = [
            (pl.col(title) if title in frame.columns else pl.lit("0")).cast(pl.Float64, strict=False).fill_null(0.0).alias(title)
            for title in _COLUMNS
        ]
        device = pl.col("Device_id") if "Device_id" in frame.columns else pl.lit(None, pl.String)
        step = pl.col("Step") if "Step" in frame.columns else pl.lit(None, pl.String)
        return frame.select(
            device.cast(pl.Int64, strict=False).alias("device"), step.cast(pl.Int64, strict=False).alias("step"), *values
        )
    if not opened.has_device:
        return pl.DataFrame(schema={"device": pl.Int64, "step": pl.Int64, **dict.fromkeys(_COLUMNS, pl.Float64)})
    rows = step_trace_time(opened.tables)
    return rows.select(
        pl.col("device").cast(pl.Int64),
        "step",
        *((pl.col(name).cast(pl.Float64) / 1000.0).alias(title) for title, name in _COLUMNS.items()),
    )


def other_steps(opened: LoadedCapture) -> pl.DataFrame:
    """For GPU and CPU: step, one column per category of `OTHER`, and `total`, in us. The parts add up to the step."""
    return opened.once("other steps", lambda: _other_steps(opened))


def _other_steps(opened: LoadedCapture) -> pl.DataFrame:
    tables = opened.tables
    steps = tables.steps.select("step", *_SPAN)
    if not steps.height and opened.trace.count:
        base = opened.base_ns
        steps = pl.DataFrame({"step": [None], "start_ns": [base], "end_ns": [base + opened.trace.length_ns]}, schema=steps.schema)
    kind = pl.col("kind")
    loader = tables.ops["name"].cat.starts_with("enumerate(DataLoader)")
    layers = {
        "Kernel": tables.kernels.filter(kind == "compute"),
        "Memcpy": tables.kernels.filter(kind == "memcpy"),
        "Memset": tables.kernels.filter(kind == "memset"),
        "Communication": tables.kernels.filter(kind == "communication"),
        "Runtime": tables.api_calls,
        "DataLoader": tables.ops.filter(loader.fill_null(False)),
        "CPU Exec": tables.ops.filter(~tables.ops["name"].cat.starts_with("ProfilerStep").fill_null(False)),
    }
    whole = merge(steps.select(_SPAN))
    taken = pl.DataFrame(schema=dict.fromkeys(_SPAN, pl.Int64))
    columns = {}
    for name, frame in layers.items():
        spans = intersect(merge(frame.select(_SPAN)), whole)
        columns[name] = _inside(subtract(spans, taken), steps)
        taken = merge(pl.concat([taken, spans]))
    total = (steps["end_ns"] - steps["start_ns"]).to_numpy()
    columns["Other"] = total - sum(columns.values(), np.zeros(len(total), dtype=np.int64))
    return pl.DataFrame(
        {"step": steps["step"], **{name: column / 1000.0 for name, column in columns.items()}, "total": total / 1000.0}
    )


def _inside(spans: pl.DataFrame, steps: pl.DataFrame) -> npt.NDArray[np.int64]:
    """Time that disjoint sorted spans cover inside each step."""
    start, end = spans["start_ns"].to_numpy(), spans["end_ns"].to_numpy()
    before = np.concatenate(([0], np.cumsum(end - start)))

    def covered(time: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Covered time up to each moment."""
        place = np.searchsorted(start, time, side="right")
        last = np.maximum(place - 1, 0)
        over = np.where(place > 0, np.maximum(end[last] - time, 0), 0) if start.size else 0
        return np.asarray(before[place] - over, dtype=np.int64)

    return covered(steps["end_ns"].to_numpy()) - covered(steps["start_ns"].to_numpy())
