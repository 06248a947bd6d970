# SPDX-License-Identifier: Apache-2.0
"""Calls into the operating system that `perf trace` recorded beside a capture, as rows of `api_calls` with level `os`."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from stepscope.formats.collector.plain_lines import read_lines
from stepscope.formats.framework.clock import FrameworkClock
from stepscope.tables import ALL_TABLES, TEXT, Tables, issues, lost

FILE, ANCHORS = "x.os_calls.txt", "x.os_call_anchors.csv"
ANCHOR_CALL = "getsid"
# `1234.567 ( 0.016 ms): python/77 read(fd: …) = 3`; thread names are left out when there is one thread, and a call that
# was interrupted by the line of another thread is given again when it ends.
_LINE = (
    r"^\s*(?<start>\d+\.\d+) \(\s*(?<length>\d+\.\d+) ms\):\s*(?:[^(]*?/(?<tid>\d+)\s+)?"
    r"(?:\.\.\. \[continued\]: )?(?<name>[a-z_]\w*)\("
)


def read(framework: Path, clock: FrameworkClock) -> Tables:
    """The calls; empty, with a row in `quality`, when they cannot be placed on the capture's clock."""
    path, anchors = framework / FILE, framework / ANCHORS
    if not path.is_file() or path.is_symlink() or not path.stat().st_size:
        return Tables()
    text = pl.Series("line", path.read_bytes().decode(errors="replace").splitlines(), dtype=pl.String)
    calls = text.to_frame().select(pl.col("line").str.extract_groups(_LINE)).unnest("line").drop_nulls(["start", "name"])
    milliseconds = pl.col("start", "length").cast(pl.Float64) * 1e6
    calls = calls.with_columns(milliseconds.round().cast(pl.Int64), pl.col("tid").cast(pl.Int64, strict=False))
    anchor_times = _anchors(anchors)
    anchor_calls = calls.filter(pl.col("name") == ANCHOR_CALL)["start"].sort().tail(anchor_times.height)
    if not anchor_times.height or len(anchor_calls) < anchor_times.height:
        return Tables().with_quality(lost(issues.CALLS_WITHOUT_CLOCK, FILE, calls.height))
    shift = int((anchor_times["at"] - anchor_calls).sort()[anchor_times.height // 2])
    pid = int(anchor_times["pid"][0])
    begin = calls["start"] + shift
    rows = calls.select(
        pl.lit(pid, pl.Int64).alias("pid"),
        pl.col("tid").fill_null(pid),
        clock.to_epoch_ns(begin).alias("start_ns"),
        clock.to_epoch_ns(begin + calls["length"]).alias("end_ns"),
        pl.lit("os").cast(TEXT).alias("level"),
        pl.col("name").cast(TEXT),
    ).sort("start_ns", maintain_order=True)
    return Tables({"api_calls": ALL_TABLES["api_calls"].conform(rows)})


def _anchors(path: Path) -> pl.DataFrame:
    """Process and time of the calls that only the collector makes: pid, at."""
    lines = read_lines(path, ("pid", "before", "after"))
    whole = lines.select(pl.all().cast(pl.Int64, strict=False)).drop_nulls()
    return whole.select("pid", ((pl.col("before") + pl.col("after")) // 2).alias("at"))
