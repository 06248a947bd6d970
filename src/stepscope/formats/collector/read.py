# SPDX-License-Identifier: Apache-2.0
"""The FRAMEWORK folder with what our own collector may leave beside the records: a Kineto trace, samples of the host,
fetches of data loaders, marks."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from stepscope.errors import CaptureError
from stepscope.formats import framework
from stepscope.formats.collector import host_counters, loader_fetches, mark_lines, os_calls
from stepscope.formats.collector.plain_lines import read_lines
from stepscope.formats.framework.clock import FrameworkClock
from stepscope.tables import Facts, Tables, issues, lost
from stepscope.tables.union import union

KINETO_TRACE = "x.kineto_trace.json"
KINETO_FLOPS = "x.kineto_flops.csv"


def read(folder: Path, clock: FrameworkClock, *, parallel: bool = True) -> Tables:
    """Everything of the framework's side; see `framework.read`."""
    records = framework.read(folder, clock, parallel=parallel)
    parts = [records, host_counters.read(folder, clock), loader_fetches.read(folder, clock)]
    parts += [os_calls.read(folder, clock), mark_lines.read(folder, clock)]
    trace = folder / KINETO_TRACE
    if trace.is_file() and not trace.is_symlink():
        traced = _trace(trace)
        # Memory that the device recorded itself is in the trace too, in less detail.
        if records.memory_events.height and traced.memory_events.height:
            traced = traced.replace(memory_events=traced.memory_events.filter(pl.col("device_type") == "cpu"))
        parts.append(traced)
    filled = [part for part in parts if part.filled()]
    return union(filled) if filled else parts[0]


def _trace(trace: Path) -> Tables:
    # Few captures have one.
    from stepscope.formats.kineto import read as kineto

    try:
        tables = kineto.read(trace)
    except CaptureError as problem:
        return Tables().with_quality(lost(issues.UNREADABLE_FILE, trace.name, 1, problem.what))
    tables = _with_flops(tables, trace.with_name(KINETO_FLOPS))
    facts = tables.facts
    # Settings are in profiler_info.json; only what the trace alone knows is taken from it.
    return tables.replace(
        meta=Facts(host_name=facts.host_name, device_ids=facts.device_ids, device_names=facts.device_names).table()
    )


def _with_flops(tables: Tables, path: Path) -> Tables:
    """torch counts operations but leaves them out of its trace; our collector writes them beside it."""
    lines = read_lines(path, ("external_id", "flops"))
    if not lines.height or not tables.ops.height:
        return tables
    counted = lines.select(pl.col("external_id", "flops").cast(pl.Int64, strict=False)).drop_nulls()
    ops = tables.ops.drop("flops").join(
        counted.unique("external_id", keep="first"), on="external_id", how="left", maintain_order="left"
    )
    known = tables.replace(ops=ops.select(tables.ops.columns))
    return known.with_quality(lost(issues.UNREADABLE_LINE, path.name, lines.height - counted.height))
