# SPDX-License-Identifier: Apache-2.0
"""A FRAMEWORK folder that MindSpore wrote, as tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from stepscope.formats.collector import mark_lines
from stepscope.formats.mindspore import cpu_files, data_pipeline, device_memory, dispatch_shapes, ranges
from stepscope.formats.mindspore.clock import read_mark_clock, read_tick_clock
from stepscope.formats.mindspore.losses import note
from stepscope.tables import ALL_TABLES, TEXT, Tables, issues
from stepscope.tables.union import union

_FOLDER = re.compile(r".*_(\d+)_\d{14,17}_ascend_ms")


def read(framework: Path, prof: Path | None, info: Mapping[str, Any], window: tuple[int | None, int | None]) -> Tables:
    """Everything in the folder; what is broken is counted in `quality`.

    Args:
        framework: FRAMEWORK/ of the capture.
        prof: its PROF folder, if it has one; the clock of the records is there.
        info: profiler_info of the capture.
        window: start and end of the recording where they are numbered. The allocator's curve reaches further back.
    """
    capture = framework.parent
    clock = read_tick_clock(capture, prof, info)
    quality = [clock.quality if ranges.files(framework) else ALL_TABLES["quality"].empty()]
    pid = _pid(capture, info)
    found = ranges.read(framework, clock, version=str(info.get("ms_version") or ""), pid=pid, quality=quality)
    host = _with_shapes(ranges.tables(found), device_memory.input_shapes(framework, quality), quality)
    device = None if prof is not None else 0
    kernels = cpu_files.read(framework, host.ops, device=device, pid=pid, quality=quality)
    parts = [
        host,
        kernels.replace(kernels=dispatch_shapes.with_shapes(kernels.kernels, found.rows, framework, clock, quality)),
        Tables({"memory_events": device_memory.memory_events(framework, quality)}),
        data_pipeline.read(framework, quality),
        mark_lines.read(framework, read_mark_clock(info)),
    ]
    tables = _within(union([part for part in parts if part.filled()] or parts[:1]), window, quality)
    return tables.with_quality(*quality)


def _with_shapes(host: Tables, recorded: pl.DataFrame, quality: list[pl.DataFrame]) -> Tables:
    """Operators with the shapes recorded beside them: the n-th of a name belongs to the n-th range that ends in it."""
    if not recorded.height:
        return host
    nth = pl.int_range(pl.len()).over("text").alias("nth")
    keys = ["text", "nth"]
    named = host.ops.select(text=pl.col("name").cast(pl.String).str.extract(r"([^:]*)$")).with_columns(nth)
    numbered = recorded.rename({"name": "text"}).with_columns(nth)
    found = named.join(numbered, on=keys, how="left", maintain_order="left")
    matched = found["shapes"].count()
    note(quality, issues.SHAPES_UNKNOWN, "mindspore.record_shapes", recorded.height - matched, "no range of that name")
    texts = [found[name].cast(TEXT) for name in ("shapes", "dtypes")]
    return host.replace(ops=host.ops.with_columns(texts)) if matched else host


def _within(tables: Tables, window: tuple[int | None, int | None], quality: list[pl.DataFrame]) -> Tables:
    """The tables without allocator rows of earlier captures, which MindSpore keeps (docs/formats/mindspore.md 2.7)."""
    start, end = window
    events = tables.memory_events
    inside = events.filter(
        (pl.col("device_type") != "cpu") | ((pl.col("time_ns") >= (start or 0)) & (pl.col("time_ns") <= (end or (1 << 62))))
    )
    outside = events.height - inside.height
    note(quality, issues.BEFORE_RECORDING, "cpu_ms_memory_record", outside, "left by earlier captures of the process: left out")
    return tables.replace(memory_events=inside) if outside else tables


def _pid(capture: Path, info: Mapping[str, Any]) -> int | None:
    """The process, by our own note or by the folder's name; the records hold thread numbers only."""
    collector = info.get("collector")
    recorded_pid = collector.get("pid") if isinstance(collector, Mapping) else None
    if isinstance(recorded_pid, int):
        return recorded_pid
    named = _FOLDER.fullmatch(capture.name)
    return int(named[1]) if named else None
