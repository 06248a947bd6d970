# SPDX-License-Identifier: Apache-2.0
"""Call stacks with the time spent in them, as FlameGraph reads them (docs/formats/outputs.md 11)."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from stepscope.analysis.operators import operator_times
from stepscope.errors import CaptureError
from stepscope.render.atomic import replacing, write_rows
from stepscope.tables import Tables

METRICS = {
    "self_cpu_time_total": "host_self_ns",
    "self_npu_time_total": "device_self_ns",
    "self_cuda_time_total": "device_self_ns",
}
SUFFIX = ".log"
# Frames of the profiler itself: the parts of the package that run inside a training process, and the commands that start one.
OUR_FRAME = (
    r"(^|[/\\])(stepscope[/\\](profiler|collect|simnpu|native|compat|cli|control|dynamic_profile|frameworks)[/\\]"
    r"|stepscope[/\\](__main__|autoload|mindspore|mstx)\.py|mstx_torch_plugin[/\\])[^;]*\("
)


def export_stacks(tables: Tables, path: str | Path, metric: str = "self_cpu_time_total") -> Path:
    """Write one line per operator that has a stack and spent time: `outermost;…;innermost microseconds`.

    Args:
        tables: linked tables of one capture.
        path: file to write; any other suffix is replaced by .log.
        metric: self_cpu_time_total, self_npu_time_total or its alias self_cuda_time_total.

    Returns:
        The file written.
    """
    if metric not in METRICS:
        raise CaptureError(
            f"unknown metric {metric!r}", cause="stacks can be weighed by self time only", fix=f"use one of {', '.join(METRICS)}"
        )
    stacks = tables.ops["stack"]
    if stacks.null_count() == stacks.len():
        raise CaptureError(
            f"none of the {stacks.len()} operators has a call stack",
            cause="the capture was made without with_stack=True",
            fix="capture with profile(with_stack=True), then export the stacks again",
        )
    value = operator_times(tables)[METRICS[metric]]
    lines = _lines(pl.DataFrame({"stack": stacks, "ns": value}))
    target = Path(path).with_suffix(SUFFIX)
    with replacing(target) as handle:
        write_rows(handle, lines)
    return target


def _lines(weighed: pl.DataFrame) -> pl.Series:
    """Lines joined by a line feed, none after the last."""
    shown = weighed.filter((pl.col("ns") > 0) & pl.col("stack").is_not_null() & (pl.col("stack").cast(pl.String) != ""))
    # Far fewer distinct stacks than operators: turn each around once.
    frames = pl.col("stack").cast(pl.String).str.split(";")
    turned = shown.select("stack").unique().with_columns(
        frames.list.eval(pl.element().filter(~pl.element().str.contains(OUR_FRAME)).str.strip_chars())
        .list.reverse().list.join(";").alias("path")
    )  # fmt: skip
    microseconds = (pl.col("ns").cast(pl.Int64, strict=False) // 1000).cast(pl.String)
    last = pl.int_range(pl.len()) == pl.len() - 1
    end = pl.when(last).then(pl.lit("")).otherwise(pl.lit("\n"))
    # An operator that nobody but the profiler called is not part of the user's program.
    return (
        shown.join(turned.filter(pl.col("path") != ""), on="stack", how="inner", maintain_order="left")
        .select(pl.concat_str("path", pl.lit(" "), microseconds, end))
        .to_series()
    )
