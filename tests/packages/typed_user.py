"""What a user of the Python API writes; `make check` holds it to strict types."""

from __future__ import annotations

from pathlib import Path

import polars as pl

import stepscope
from stepscope import profiler
from stepscope.share.pack import pack
from stepscope.share.publish import publish


def longest_kernels(run: Path) -> pl.DataFrame:
    capture = stepscope.open(run)
    length = (pl.col("end_ns") - pl.col("start_ns")).alias("ns")
    return capture.kernels.select("name", length).group_by("name").agg(pl.col("ns").sum()).sort("ns", descending=True)


def worth_fixing(run: str) -> list[str]:
    found = stepscope.verdict([capture.tables for capture in stepscope.open_all(run)])
    return [f"{finding.title}: {finding.saved_ms:.1f} ms" for finding in found.findings if finding.saved_ms > 1.0]


def record(folder: str) -> None:
    handler = profiler.tensorboard_trace_handler(folder)
    with profiler.profile(schedule=profiler.schedule(wait=1, warmup=1, active=2), on_trace_ready=handler) as recording:
        recording.step()


def hand_on(run: str, target: Path) -> int:
    publish(run, "wandb")
    return pack(stepscope.open_all(run), target, redact=["hosts"]).bytes_after
